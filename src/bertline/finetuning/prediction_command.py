"""Prediction for the texts or the files of a command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import Json
from bertline.finetuning.prediction import FinetunedModel, load_finetuned
from bertline.finetuning.prediction_files import check_number_of_texts, predict_files, predictions
from bertline.finetuning.prediction_options import GivenTexts, check_answer_options
from bertline.training.distributed.claims import claim_device


def predict_given(
    folder: Path,
    texts: GivenTexts,
    inputs: Sequence[Path] | None,
    output: Path | None,
    *,
    columns: Sequence[str],
    n_best: int | None,
    null_threshold: float | None,
    precision: str,
) -> str:
    """Predict for texts, or for files, and return what to print: the prediction as JSON, or their number.

    Args:
        folder: of a fine-tuned model in Hugging Face's layout.
        texts: those of the command line, if there are no `inputs`; see `check_given`.
        inputs: see `predict_files`, as for `output`, `columns` and `null_threshold`.
        output: the file to write, if there are `inputs`.
        columns: of the texts in the inputs.
        n_best: number of answers; None for one.
        null_threshold: see `predictions`.
        precision: of the matrix products.

    Raises BertlineError for a bad file, or a text or an option that the model does not support.
    """
    device, _claim = claim_device()  # held until the end of this function
    model = load_finetuned(folder, precision=precision, device=device)
    check_answer_options(model.head, n_best, null_threshold)
    options: dict[str, Any] = {"count": n_best or 1, "null_threshold": null_threshold}
    if inputs is not None and output is not None:
        return f"{predict_files(model, inputs, output, columns=columns, **options):,} predictions in {output}"
    ((row,),) = predictions(model, [_record(folder, model, texts)], **options)
    return json.dumps({key: value for key, value in row.items() if key != "id"}, ensure_ascii=False, indent=1)


def _record(folder: Path, model: FinetunedModel, given: GivenTexts) -> Json:
    """Return the texts as `read_inputs` yields them. Raises BertlineError if the model needs others."""
    if (model.head == "answer") != (given.question is not None):
        needed = "--question and --context" if model.head == "answer" else "--text"
        raise BertlineError(f"{folder} needs {needed}")
    if model.head == "answer":
        return {"id": "", "question": given.question, "context": given.context}
    texts = [text for text in (given.text, given.text_pair) if text is not None]
    if model.head == "sequence":
        check_number_of_texts(model, len(texts))
        return {"texts": texts}
    if len(texts) > 1:
        raise BertlineError(f"{folder} tags one text; leave out --text-pair")
    return {"words": texts[0].split()}
