"""Files of inputs and of predictions. Tables are read and predictions are written in chunks, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bertline.console import BertlineError, progress
from bertline.files import Json, write_atomically
from bertline.finetuning.conll import FORM, is_conll_u
from bertline.finetuning.conll import SUFFIXES as CONLL_SUFFIXES
from bertline.finetuning.examples import columns_of, read_texts
from bertline.finetuning.prediction import FinetunedModel, answer, classify, tag
from bertline.finetuning.prediction_options import (
    QUESTION_COLUMNS,
    check_answer_options,
    check_columns,
    check_format,
    check_inputs,
    check_named_columns,
)
from bertline.finetuning.squad_answers import n_best
from bertline.finetuning.squad_windows import Question, SquadFile, read_squad
from bertline.finetuning.submissions import submission_cells
from bertline.finetuning.tag_task import read_conll

CHUNK = 4096  # inputs of a chunk are sorted by length, against padding


def predict_files(
    model: FinetunedModel,
    inputs: Sequence[Path],
    output: Path,
    *,
    columns: Sequence[str] = (),
    count: int = 1,
    null_threshold: float | None = None,
) -> int:
    """Write the predictions for all inputs, in order, in the format that the suffix of `output` names.

    Args:
        model: a fine-tuned model.
        inputs: .tsv, .csv, .jsonl or .parquet with named columns; also .conll and .conllu to tag, and SQuAD's .json to
            answer.
        output: the file to write, complete or absent.
        columns: those of the texts, instead of the columns that the model was trained with.
        count: number of answers per question in a .jsonl.
        null_threshold: see `predictions`.

    Returns the number of predictions. Raises BertlineError for a bad file, or a suffix or an option that the model does
    not support.
    """
    check_output(output, inputs)
    check_answer_options(model.head, count if count > 1 else None, null_threshold)
    check_format(model.head, output, count)
    if model.head == "sequence":
        check_number_of_texts(model, len(columns or model.columns))
    else:
        check_columns(model.head, columns, model.columns)
    check_inputs(model.head, inputs)
    check_named_columns("predict", columns, inputs)
    records: Iterator[Json] = (record for path in inputs for record in read_inputs(model, path, columns))
    if model.head == "answer" and output.suffix.lower() != ".jsonl":  # whose readers find an answer by its id
        records = _with_unique_ids(model, inputs, columns)
    elif output.suffix.lower() == ".conll":  # whose readers find a sentence by its number
        records = _with_words(model, inputs, columns)
    done = 0
    with _writer(output, model) as write:
        shown = progress(records, description="predicting", unit="inputs")
        for rows in predictions(model, shown, count, null_threshold):
            write([{"index": done + number, **row} for number, row in enumerate(rows)])
            done += len(rows)
        if done == 0:
            raise BertlineError(f"{', '.join(map(str, inputs))}: no input; name files with at least one")
    return done


def check_output(output: Path, inputs: Sequence[Path]) -> None:
    """Raise BertlineError for an output that would replace an input."""
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise BertlineError(f"{output} is one of the inputs and would be overwritten; give another output")


def check_number_of_texts(model: FinetunedModel, number: int) -> None:
    """Raise BertlineError if inputs of one text are given to a model for pairs, or pairs to one for single texts.

    A model of a ranking takes neither: its inputs are cut off in another way.
    """
    if str(model.task.get("task")).startswith("ranking/"):
        raise BertlineError(
            "the model ranks passages for queries; use workflow/scripts/rank.py, or give `predict` a collection, "
            "queries and candidates"
        )
    if not 1 <= number <= 2:
        raise BertlineError(f"columns: given {number}; this model needs one, of the text, or two, of a pair")
    if model.task and number != len(model.columns):
        wanted = "pairs: two columns, or --text and --text-pair" if len(model.columns) > 1 else "single texts"
        raise BertlineError(f"the model was trained on {wanted}; given {'two texts' if number > 1 else 'one text'}")


def read_inputs(model: FinetunedModel, path: Path, columns: Sequence[str]) -> Iterator[Json]:
    """Yield the inputs of a file: `texts`, `words`, or `id`, `question` and `context`, as the model needs."""
    if model.head == "answer":
        if path.suffix.lower() == ".json":
            squad = read_squad(path, version_2=True, labelled=False)
            for question in squad.questions:
                yield {"id": question.id, "question": question.text, "context": squad.contexts[question.context]}
            return
        for cells in read_texts(path, columns or QUESTION_COLUMNS, first_is_id=True):
            yield dict(zip(QUESTION_COLUMNS, cells, strict=True))
    elif model.head == "tokens":
        if path.suffix.lower() in CONLL_SUFFIXES:
            # The columns of the training data may be those of another format.
            word = FORM if is_conll_u(path) else model.task.get("table", {}).get("word", 0)
            yield from ({"words": words} for words in read_conll(path, word=word, tag=word, tagged=False).words)
            return
        yield from ({"words": texts[0].split()} for texts in read_texts(path, columns or ("text",)))
    else:
        task = model.text_task
        own = columns_of(task, path)[:-1] if task is not None else model.columns
        yield from ({"texts": texts} for texts in read_texts(path, columns or own, task))


def _with_unique_ids(model: FinetunedModel, inputs: Sequence[Path], columns: Sequence[str]) -> Iterator[Json]:
    seen: set[str] = set()
    for path in inputs:
        for number, record in enumerate(read_inputs(model, path, columns), start=1):
            if record["id"] in seen:
                raise BertlineError(
                    f"{path}: input {number}: the id '{record['id']}' appears twice in the inputs; make ids unique"
                )
            seen.add(record["id"])
            yield record


def _with_words(model: FinetunedModel, inputs: Sequence[Path], columns: Sequence[str]) -> Iterator[Json]:
    for path in inputs:
        for number, record in enumerate(read_inputs(model, path, columns), start=1):
            if not record["words"]:
                raise BertlineError(
                    f"{path}: input {number} has no word, and so no place in a .conll; remove it, or write a .jsonl"
                )
            yield record


def predictions(
    model: FinetunedModel, records: Iterable[Mapping[str, Any]], count: int = 1, null_threshold: float | None = None
) -> Iterator[list[Json]]:
    """Yield the predictions for `records` (see `read_inputs`), chunk by chunk.

    Args:
        model: a fine-tuned model.
        records: the inputs.
        count: number of answers per question.
        null_threshold: a question gets no answer if the score of "no answer" exceeds the best one's by more; None
            for the threshold chosen in training, and for a model without one every question is answered.
    """
    predict_chunk: dict[str, Callable[[list[Mapping[str, Any]]], list[Json]]] = {
        "sequence": lambda chunk: _classes(model, chunk),
        "tokens": lambda chunk: _tags(model, chunk),
        "answer": lambda chunk: _answers(model, chunk, count, null_threshold),
    }
    iterator = iter(records)
    while chunk := list(islice(iterator, CHUNK)):
        yield predict_chunk[model.head](chunk)


def _classes(model: FinetunedModel, records: list[Mapping[str, Any]]) -> list[Json]:
    values = classify(model, [record["texts"] for record in records])
    if not model.labels:
        return [{"prediction": float(f"{value:.6g}")} for value in values[:, 0]]
    return [
        {
            "prediction": model.labels[row.argmax()],
            "probability": float(row.max()),
            "probabilities": dict(zip(model.labels, map(float, row), strict=True)),
        }
        for row in values
    ]


def _tags(model: FinetunedModel, records: list[Mapping[str, Any]]) -> list[Json]:
    sentences = [record["words"] for record in records if record["words"]]
    tags = iter(tag(model, sentences) if sentences else [])
    return [{"words": record["words"], "tags": next(tags) if record["words"] else []} for record in records]


def _answers(
    model: FinetunedModel, records: list[Mapping[str, Any]], count: int, null_threshold: float | None
) -> list[Json]:
    contexts = list(dict.fromkeys(record["context"] for record in records))
    places = {context: place for place, context in enumerate(contexts)}
    # Ids may repeat between files.
    questions = [
        Question(str(number), record["question"], places[record["context"]], ())
        for number, record in enumerate(records)
    ]
    threshold = model.task.get("null_threshold") if null_threshold is None else null_threshold
    found = answer(model, SquadFile(contexts, questions, []))
    ranked = n_best(found, with_null=threshold is not None)
    rows = []
    for question, record in zip(questions, records, strict=True):
        answered = found[question.id]
        empty = threshold is not None and answered.null_difference > threshold
        text = "" if empty else answered.best_text
        candidates = ranked[question.id]
        probability = next((float(one["probability"]) for one in candidates if one["text"] == text), 0.0)
        row = {"id": record["id"], "prediction": text, "probability": probability}
        rows.append(row | ({"n_best": candidates[:count]} if count > 1 else {}))
    return rows


@contextmanager
def _writer(path: Path, model: FinetunedModel) -> Iterator[Callable[[list[Json]], None]]:
    """Yield a function that appends rows to a file; the file gets its name when all are written."""
    with write_atomically(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        answers: dict[str, str] = {}
        key, suffix = "id" if model.head == "answer" else "index", path.suffix.lower()
        if suffix == ".tsv":
            file.write(f"{key}\tprediction\n")

        def write(rows: list[Json]) -> None:
            if suffix == ".json":
                answers.update({row["id"]: row["prediction"] for row in rows})
            elif suffix == ".jsonl":
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            elif suffix == ".conll":
                file.writelines(_conll(row) for row in rows)
            else:  # without quoting, as GLUE's server reads it
                cells = [(str(row[key]), _cell(model, row["prediction"])) for row in rows]
                file.writelines("\t".join(" ".join(cell.split()) for cell in pair) + "\n" for pair in cells)

        yield write
        if suffix == ".json":
            json.dump(answers, file, ensure_ascii=False, indent=1)


def _cell(model: FinetunedModel, prediction: str | float) -> str:
    if isinstance(prediction, float) and model.text_task is not None:
        return submission_cells(model.text_task, np.array([[prediction]]))[0]
    return str(prediction)


def _conll(row: Json) -> str:
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(row["words"], row["tags"], strict=True)) + "\n"
