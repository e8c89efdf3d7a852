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

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertline.command_line import Files, Threads, limit_threads, run_command
from bertline.finetuning.prediction_options import GivenTexts, Precision, check_given, range_of
from bertline.settings.configuration import defaults_of

DEFAULTS = defaults_of("text_prediction")


def predict(
    model: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    question: str | None = None,
    context: str | None = None,
    inputs: Files | None = None,
    output: Path | None = None,
    columns: list[str] = DEFAULTS["columns"],
    n_best: Annotated[int | None, Parameter(validator=range_of("text_prediction", "n_best"))] = None,
    null_threshold: float | None = DEFAULTS["null_threshold"],
    precision: Precision = DEFAULTS["precision"],
    threads: Threads = None,
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
    texts = GivenTexts(text, text_pair, question, context)
    check_given(texts, inputs, output, columns)
    limit_threads(threads)

    from bertline.finetuning.prediction_command import predict_given

    return predict_given(
        model,
        texts,
        inputs,
        output,
        columns=columns,
        n_best=n_best,
        null_threshold=null_threshold,
        precision=precision,
    )


if __name__ == "__main__":
    run_command(predict, __doc__)
