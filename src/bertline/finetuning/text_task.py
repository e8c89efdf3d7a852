"""Tasks on one text or two: GLUE's, custom tables, and others whose files name their columns."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.tokenizer import separators_in_pair
from bertline.finetuning.digest import digest_of_examples
from bertline.finetuning.examples import Examples, check_metrics, count_in_train, labels_of, read_examples, read_labels
from bertline.finetuning.prepared import Evaluation, PredictedSet, PreparedTask
from bertline.finetuning.scoring import compute_scores
from bertline.finetuning.sequences import Sequences, make_sequences, tokenize, truncate_pair
from bertline.finetuning.submissions import write_predictions, write_submission_file
from bertline.tasks.task import LABELLED_SETS, METRICS_OF_NUMBERS, TextTask

logger = logging.getLogger(__name__)


def prepare_text_task(
    task: TextTask, data: Mapping[str, str], settings: Mapping[str, Any], tokenizer: Tokenizer
) -> PreparedTask:
    """Prepare a task whose files have named columns. Raises BertlineError for a bad file."""
    files = {name: read_examples(path, task, labelled=name in LABELLED_SETS) for name, path in data.items()}
    train, dev = files["train"].targets, files["dev"].targets
    constant = train.mean() if task.is_regression else np.bincount(train).argmax()
    majority = np.full(len(dev), constant)
    limit = settings["max_sequence_length"]

    def predicted(name: str, file: Examples) -> PredictedSet:
        def evaluate(outputs: np.ndarray) -> Evaluation:
            if name not in LABELLED_SETS:
                return Evaluation({}, lambda folder: _write_test(task, name, folder, outputs))
            suffix = name.removeprefix("dev")  # "_mismatched" of MNLI's second dev set
            path = f"predictions{suffix}.tsv"
            scores = _score(task, outputs[:, 0] if task.is_regression else outputs.argmax(axis=1), file.targets)
            return Evaluation(
                {f"{metric}{suffix}": score for metric, score in scores.items()},
                lambda folder: write_predictions(folder / path, _cells(task, outputs)),
            )

        digest = digest_of_examples(file.labelled(task)) if name in LABELLED_SETS else ""
        return PredictedSet(name, sequences_of_texts(name, file.texts, tokenizer, limit), evaluate, digest)

    return PreparedTask(
        head="sequence",
        outputs=len(task.labels) or 1,
        primary=task.metrics[0],
        train=sequences_of_texts("train", files["train"].texts, tokenizer, limit),
        train_targets=train,
        predicted=tuple(predicted(name, file) for name, file in files.items() if name != "train"),
        baselines={"majority": _score(task, majority, dev)[task.metrics[0]]},
        examples={name: len(file.first) for name, file in files.items()}
        | {f"{name}_skipped": file.skipped for name, file in files.items() if name in LABELLED_SETS}
        | {f"{name}_empty": file.empty for name, file in files.items() if file.empty}
        | count_in_train({name: file.texts for name, file in files.items()}),
        labels=task.labels,
    )


def sequences_of_texts(name: str, texts: Iterable[Sequence[str]], tokenizer: Tokenizer, limit: int) -> Sequences:
    """Return inputs of one or two texts each, of at most `limit` tokens; of two, the longer is truncated first.

    `name` is that of the set, for the log.
    """
    given = list(texts)
    tokens = iter(tokenize(tokenizer, [text for pair in given for text in pair]))
    pairs = [list(islice(tokens, len(pair))) for pair in given]
    room = {1: limit - 2, 2: limit - 2 - separators_in_pair(tokenizer)}  # without special tokens
    if pairs and room[longest := max(map(len, pairs))] < 0:
        raise BertlineError(
            f"max_sequence_length {limit}: special tokens of {longest} texts take {limit - room[longest]}; raise it"
        )
    longer = sum(sum(map(len, pair)) > room[len(pair)] for pair in pairs)
    if longer:
        logger.info(
            "%s: %d of %d inputs are longer than max_sequence_length %d; their end is cut off",
            name,
            longer,
            len(pairs),
            limit,
        )
    truncated = (
        truncate_pair(pair[0], pair[1], room[2]) if len(pair) > 1 else (pair[0][: room[1]], None) for pair in pairs
    )
    return make_sequences(truncated, tokenizer)


def prepare_table(
    table: Mapping[str, Any], data: Mapping[str, str], settings: Mapping[str, Any], tokenizer: Tokenizer
) -> PreparedTask:
    """Prepare a custom table for classification or regression. Raises BertlineError for a metric of the other kind."""
    return prepare_text_task(text_task_of(table, data["train"]), data, settings, tokenizer)


def text_task_of(table: Mapping[str, Any], train: str) -> TextTask:
    """Return a table's description; `labels` default to those of the train file, `metrics` to the usual ones."""
    is_regression = table["kind"] == "regression"
    labels = () if is_regression else labels_of(table) or read_labels(train, table["label"])
    if not is_regression and len(labels) < 2:
        raise BertlineError(f"{train}: column '{table['label']}' contains only one class; a task needs two or more")
    usual = METRICS_OF_NUMBERS if is_regression else ("accuracy", "f1" if len(labels) == 2 else "f1_macro", "matthews")
    metrics = tuple(table.get("metrics", ())) or usual
    check_metrics(table["kind"], metrics, labels)
    return TextTask(title="", texts=tuple(table["texts"]), label=table["label"], labels=labels, metrics=metrics)


def _write_test(task: TextTask, name: str, folder: Path, outputs: np.ndarray) -> None:
    if name in task.submissions:
        write_submission_file(folder / "submission" / task.submissions[name], task, outputs)
    else:
        write_predictions(folder / f"predictions_{name}.tsv", _cells(task, outputs))


def _cells(task: TextTask, outputs: np.ndarray) -> list[str]:
    if task.is_regression:
        return [f"{value:.6g}" for value in outputs[:, 0]]
    return [task.labels[index] for index in outputs.argmax(axis=1)]


def _score(task: TextTask, predictions: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    scores = compute_scores("texts", "+".join(task.metrics), predictions, targets)
    return {name: 100.0 * value for name, value in scores.items()}
