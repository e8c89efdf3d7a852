"""The tasks of GLUE and their official TSV files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertline.console import BertlineError


@dataclass(frozen=True)
class GlueTask:
    """A task: the official names of its columns and labels, and its scores.

    texts: columns of the one or two sentences. labels: the classes in the order of their ids, none for a regression.
    columns: of a file without a header. skips_broken_rows: whether the official file has rows that lack columns.
    """

    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    primary: str
    columns: tuple[str, ...] = ()
    skips_broken_rows: bool = False

    @property
    def is_regression(self) -> bool:
        return not self.labels


_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
# Source: https://gluebenchmark.com/tasks for the files and metrics, of which the first is the one reports lead with.
GLUE_TASKS = {
    "cola": GlueTask(
        ("sentence",),
        "acceptability",
        _BINARY,
        ("matthews", "accuracy"),
        "matthews",
        columns=("source", "acceptability", "original_judgement", "sentence"),
    ),
    "sst2": GlueTask(("sentence",), "label", _BINARY, ("accuracy",), "accuracy"),
    "mrpc": GlueTask(("#1 String", "#2 String"), "Quality", _BINARY, ("accuracy", "f1"), "accuracy"),
    "stsb": GlueTask(_PAIR, "score", (), ("pearson", "spearman"), "spearman"),
    # Hugging Face's reader of GLUE skips the broken rows of the official QQP file too.
    "qqp": GlueTask(
        ("question1", "question2"), "is_duplicate", _BINARY, ("accuracy", "f1"), "accuracy", skips_broken_rows=True
    ),
    "mnli": GlueTask(_PAIR, "gold_label", ("contradiction", "entailment", "neutral"), ("accuracy",), "accuracy"),
    "qnli": GlueTask(("question", "sentence"), "label", _ENTAILMENT, ("accuracy",), "accuracy"),
    "rte": GlueTask(_PAIR, "label", _ENTAILMENT, ("accuracy",), "accuracy"),
    "wnli": GlueTask(_PAIR, "label", _BINARY, ("accuracy",), "accuracy"),
}


@dataclass(frozen=True)
class GlueFile:
    """The examples of a file.

    first, second: the sentences; `second` is None where the task has one. targets: int64 [N] class ids, or float32 [N]
    scores of a regression. skipped: how many broken rows were left out.
    """

    first: list[str]
    second: list[str] | None
    targets: np.ndarray
    skipped: int


def read_glue(path: Path | str, task: GlueTask) -> GlueFile:
    """Read a task's train or dev file: tab-separated, without quoting, a byte order mark allowed.

    Raises BertlineError naming the file, and the line and column of what is wrong: text that is not UTF-8, a missing
    column, a row with too few or too many columns, an unknown label, a file without examples.
    """
    rows = _rows(Path(path))
    header = list(task.columns)
    if not header:
        header = next(rows, (1, []))[1]
        for column in (*task.texts, task.label):
            if column not in header:
                found = ", ".join(header) or "nothing"
                raise BertlineError(f"{path}: line 1: no column '{column}', found are {found}; name the official file")
    text_columns = [header.index(column) for column in task.texts]
    label_column = header.index(task.label)
    texts: list[list[str]] = [[] for _ in text_columns]
    targets: list[float] = []
    skipped = 0
    for line, row in rows:
        if len(row) != len(header):
            if task.skips_broken_rows:
                skipped += 1
                continue
            problem = f"no column '{header[len(row)]}'" if len(row) < len(header) else "too many columns"
            raise BertlineError(
                f"{path}: line {line}: {problem}, it has {len(row)} of {len(header)}; correct or remove the line"
            )
        for position, kept in zip(text_columns, texts, strict=True):
            kept.append(row[position])
        targets.append(_target(row[label_column], task, f"{path}: line {line}: column '{task.label}'"))
    if not targets:
        raise BertlineError(f"{path} holds no example; name the task's official file")
    dtype = np.float32 if task.is_regression else np.int64
    return GlueFile(texts[0], texts[1] if len(texts) > 1 else None, np.array(targets, dtype=dtype), skipped)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells. Only a newline ends a line: sentences hold characters that str.splitlines splits at."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                yield number, text.split("\t")
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; put the task's official file there") from None
    except UnicodeDecodeError as error:
        raise BertlineError(f"{path}: line {number}: not UTF-8 ({error.reason}); convert the file") from None


def _target(cell: str, task: GlueTask, where: str) -> float:
    if not task.is_regression:
        if cell not in task.labels:
            raise BertlineError(f"{where}: given '{cell}', allowed are {', '.join(task.labels)}; correct the line")
        return task.labels.index(cell)
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise BertlineError(f"{where}: given '{cell}', allowed is a number; correct the line")
    return value
