"""Predict with a fine-tuned model: the class of a text or a pair, the tags of its words, the answer to a question.

example:
  python workflow/scripts/predict.py results/runs/demo/glue/cola/model \\
    --text "The cat sat down."
  python workflow/scripts/predict.py results/runs/demo/squad_v1/model \\
    --question "Who sat down?" \\
    --context "The cat sat down." --n-best 3
  python workflow/scripts/predict.py results/runs/demo/glue/mrpc/model \\
    --inputs pairs.tsv \\
    --columns first second --output predictions.jsonl
"""

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from bertline.command_line import limit_threads, run_command
from bertline.console import BertlineError
from bertline.settings.configuration import defaults_of

DEFAULTS = defaults_of("text_prediction")


def predict(
    model: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    question: str | None = None,
    context: str | None = None,
    inputs: list[Path] | None = None,
    output: Path | None = None,
    columns: list[str] = DEFAULTS["columns"],
    n_best: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=20))] = None,
    null_threshold: float | None = DEFAULTS["null_threshold"],
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = DEFAULTS["precision"],
    threads: int | None = None,
) -> str:
    """Predict.

    Args:
        model: folder of a fine-tuned model in Hugging Face's layout.
        text: a text to classify, to score or to tag.
        text_pair: the second text of a pair.
        question: a question to answer from the context.
        context: the text that contains the answer.
        inputs: files with many inputs: .tsv, .csv, .jsonl or .parquet with named columns, .conll to tag, SQuAD's .json.
        output: file for their predictions: .jsonl, .tsv in GLUE's format, .conll, or .json in SQuAD's format.
        columns: columns of the texts; for answers, the columns of id, question and context.
        n_best: number of answers to print or to write to a .jsonl (default: 1).
        null_threshold: give no answer if the score of "no answer" exceeds the best answer's by more than this.
        precision: of the matrix products.
        threads: of the CPU (default: all).
    """
    given = [text is not None, question is not None or context is not None, inputs is not None]
    if sum(given) != 1 or (question is None) != (context is None) or (inputs is None) != (output is None):
        raise BertlineError("give --text, or --question and --context, or --inputs and --output")
    if text_pair is not None and text is None:
        raise BertlineError("--text-pair is the second text of --text; leave it out")
    if columns and inputs is None:
        raise BertlineError("--columns are those of --inputs; leave them out")
    for name, value in {"text": text, "text-pair": text_pair, "question": question, "context": context}.items():
        try:
            (value or "").encode()
        except UnicodeEncodeError:
            raise BertlineError(f"--{name} is not UTF-8; convert it") from None
    limit_threads(threads)

    from bertline.finetuning.prediction import load_finetuned
    from bertline.finetuning.prediction_files import check_number_of_texts, predict_files, predictions
    from bertline.finetuning.prediction_options import check_answer_options
    from bertline.training.distributed.claims import claim_device

    device, _claim = claim_device()
    loaded = load_finetuned(model, precision=precision, device=device)
    check_answer_options(loaded.head, n_best, null_threshold)
    count = n_best or DEFAULTS["n_best"]
    if inputs is not None and output is not None:
        done = predict_files(loaded, inputs, output, columns=columns, count=count, null_threshold=null_threshold)
        return f"{done:,} predictions in {output}"
    answers_questions = loaded.head == "answer"
    if answers_questions != (question is not None):
        raise BertlineError(f"{model} {'needs --question and --context' if answers_questions else 'needs --text'}")
    pair = (text, *([text_pair] if text_pair is not None else []))
    if loaded.head == "sequence":
        check_number_of_texts(loaded, len(pair))
    elif len(pair) > 1:
        raise BertlineError(f"{model} tags one text; leave out --text-pair")
    record = {"texts": pair, "words": (text or "").split(), "id": "", "question": question, "context": context}
    ((row,),) = predictions(loaded, [record], count, null_threshold)
    return json.dumps({key: value for key, value in row.items() if key != "id"}, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    run_command(predict, __doc__)
