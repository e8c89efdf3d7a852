"""The examples of a task in a table: texts, with the ids of their classes or with numbers."""

from __future__ import annotations

import logging
import math
import reprlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertline.console import BertlineError
from bertline.finetuning.tables import column_names, read_columns
from bertline.tasks.task import METRICS_OF_CLASSES, METRICS_OF_NUMBERS, TextTask

logger = logging.getLogger(__name__)
MAX_NUMBER = float(np.finfo(np.float32).max)

OF_INPUTS = "name its columns with `columns`"  # what to do if those of texts to predict from are missing


@dataclass(frozen=True)
class Examples:
    """The examples of a file.

    Attributes:
        first: the first texts.
        second: the second texts; None if the task has only one.
        targets: int64 [N] class ids or float32 [N] numbers of a regression, empty without labels.
        skipped: number of broken rows.
        empty: number of examples with a text of nothing but white space.
    """

    first: list[str]
    second: list[str] | None
    targets: np.ndarray
    skipped: int
    empty: int

    @property
    def texts(self) -> Iterator[tuple[str, ...]]:
        """The one or two texts of each example."""
        return zip(self.first, strict=True) if self.second is None else zip(self.first, self.second, strict=True)

    def labelled(self, task: TextTask) -> Iterator[tuple[str | float, ...]]:
        """Yield the texts of each example with the name of its class, or its number."""
        for texts, target in zip(self.texts, self.targets.tolist(), strict=True):
            yield (*texts, task.labels[target] if task.labels else target)


def labels_of(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the labels that a table's settings list, as text; () without any. Raises BertlineError for equal ones."""
    labels = tuple(str(label).strip() for label in table.get("labels", ()))
    for label in labels:
        if labels.count(label) > 1:
            raise BertlineError(f"labels: given '{label}' more than once, as a number and as text; leave one")
    return labels


def count_in_train(texts: Mapping[str, Iterable[Hashable]]) -> dict[str, int]:
    """Return, and log, how many examples of each set have the texts of a training example, as `{set}_in_train`.

    Args:
        texts: of the examples of each set.
    """
    train, counts = set(texts["train"]), {}
    for name in sorted(texts.keys() - {"train"}):
        found = [example in train for example in texts[name]]
        counts[f"{name}_in_train"] = sum(found)
        if any(found):
            logger.warning("%s: %d of %d examples have the texts of a training example", name, sum(found), len(found))
    return counts


def check_metrics(kind: str, metrics: Sequence[str], labels: Sequence[str]) -> None:
    """Raise BertlineError for a metric of the other kind of table, or for F1 of the second of more than two classes."""
    allowed = METRICS_OF_NUMBERS if kind == "regression" else METRICS_OF_CLASSES
    for metric in metrics:
        if metric not in allowed:
            raise BertlineError(f"metrics: given '{metric}', allowed for {kind} are {', '.join(allowed)}")
    if "f1" in metrics and len(labels) > 2:
        raise BertlineError(
            f"metrics: given 'f1', which is that of the second of two classes, but there are {len(labels)}; write "
            "f1_macro, their mean"
        )


def read_examples(path: Path | str, task: TextTask, *, labelled: bool = True) -> Examples:
    """Read a table; `labelled` is False for a test set, which has no labels. Examples with an empty text are logged.

    Raises BertlineError naming file, line and column of the problem: text that is not UTF-8, a column that is missing
    or appears twice, a row with too few or too many columns, a cell of another type, an unknown or absent label, or no
    example at all.
    """
    path = Path(path)
    columns = columns_of(task, path)
    texts: list[list[str]] = [[] for _ in task.texts]
    targets: list[float] = []
    skipped = empty = 0
    first_empty = ""
    rows = read_columns(
        path,
        columns if labelled else columns[:-1],
        header=task.header if labelled else (),
        # A skipped test row would shift all predictions after it.
        skips_broken_rows=task.skips_broken_rows and labelled,
    )
    for where, cells in rows:
        if cells is None:
            skipped += 1
            continue
        for column, kept, cell in zip(columns, texts, cells, strict=False):
            kept.append(_text(cell, f"{where}: column '{column}'"))
        if not all(column[-1].strip() for column in texts):
            empty, first_empty = empty + 1, first_empty or where
        if labelled:
            targets.append(_target(cells[-1], task, f"{where}: column '{columns[-1]}'"))
    if not texts[0]:
        raise BertlineError(f"{path} contains no example; name a file with at least one")
    if empty:
        logger.warning("%s: an empty text; %d of %d examples of the file have one", first_empty, empty, len(texts[0]))
    dtype = np.float32 if task.is_regression else np.int64
    return Examples(texts[0], texts[1] if len(texts) > 1 else None, np.array(targets, dtype), skipped, empty)


def columns_of(task: TextTask, path: Path) -> tuple[str, ...]:
    """Return the columns of a task's texts and of its label in a file."""
    is_parquet = path.suffix.lower() == ".parquet"
    return task.parquet_columns if is_parquet and task.parquet_columns else (*task.texts, task.label)


def read_texts(
    path: Path | str, columns: Sequence[str], task: TextTask | None = None, *, first_is_id: bool = False
) -> Iterator[tuple[str, ...]]:
    """Yield the texts of `columns`, row by row; rows with an empty one are logged.

    Raises BertlineError as `read_examples` does.

    If `first_is_id`, an integer in the first column is written as text. `task` is that of a .tsv or .csv that may
    lack a header, as its labelled files do: then its first row has a class.
    """
    path = Path(path)
    header: Sequence[str] = ()
    if task is not None and task.header and path.suffix.lower() in (".tsv", ".csv") and path.is_file():
        first = column_names(path)
        if len(first) == len(task.header) and first[task.header.index(task.label)] in task.labels:
            header = task.header
    rows = empty = 0
    first_empty = ""
    for where, cells in read_columns(path, columns, header=header, remedy=OF_INPUTS):
        if cells is not None:
            if first_is_id and type(cells[0]) is int:  # and no truth value
                cells[0] = str(cells[0])
            texts = tuple(_text(cell, f"{where}: column '{name}'") for name, cell in zip(columns, cells, strict=True))
            rows += 1
            if not all(text.strip() for text in texts):
                empty, first_empty = empty + 1, first_empty or where
            yield texts
    if empty:
        logger.warning("%s: an empty text; %d of %d inputs of the file have one", first_empty, empty, rows)


def read_labels(path: Path | str, column: str) -> tuple[str, ...]:
    """Return all distinct values of a column, sorted.

    Raises BertlineError as `read_examples` does, and for a number that is written in two ways, such as 1 and 1.0.
    """
    numbers: dict[float, str] = {}
    found = {
        _class_once(cells[0], f"{where}: column '{column}'", numbers)
        for where, cells in read_columns(Path(path), [column])
        if cells is not None
    }
    return tuple(sorted(found))


def read_labelled(
    path: Path, texts: Sequence[str], label: str, *, is_regression: bool
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the name of each row's class, empty for a number, and its cells: the texts, then the label.

    Raises BertlineError as `read_examples` does, for a row without a text or a label, too, and as `read_labels` does.
    """
    numbers: dict[float, str] = {}
    task = TextTask(title="", texts=tuple(texts), label=label)
    for where, cells in read_columns(path, [*texts, label]):
        if cells is None:
            continue
        for column, cell in zip(texts, cells, strict=False):
            _text(cell, f"{where}: column '{column}'")
        place = f"{where}: column '{label}'"
        if is_regression:
            number, cell = _target(cells[-1], task, place), cells[-1]
            yield "", (*cells[:-1], cell if isinstance(cell, str | int | float) else number)
        else:
            yield _class_once(cells[-1], place, numbers), tuple(cells)


def _text(cell: Any, where: str) -> str:
    if not isinstance(cell, str):
        raise BertlineError(f"{where}: given {reprlib.repr(cell)}, allowed is text; correct the record")
    return cell


def _class(cell: Any, where: str) -> str:
    """Return the name of a class: text without white space around it, a number or a truth value."""
    is_number = isinstance(cell, int) or (isinstance(cell, float) and math.isfinite(cell))
    is_named = cell.strip() if isinstance(cell, str) else is_number
    if not is_named:
        raise BertlineError(f"{where}: given {reprlib.repr(cell)}, allowed is a class; correct or remove the record")
    return str(cell).strip()


def _class_once(cell: Any, where: str, numbers: dict[float, str]) -> str:
    """Return the name of a class, and keep that of a number in `numbers`, which are those of the column's cells so far.

    Raises BertlineError as `_class` does, and for a number that has another name there.
    """
    name = _class(cell, where)
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        other = numbers.setdefault(cell, name)
        if other != name:  # they would be two classes
            raise BertlineError(f"{where}: given {name}, and {other} in another record; write both alike")
    return name


def _target(cell: Any, task: TextTask, where: str) -> float:
    if not task.is_regression:
        name = cell.strip() if isinstance(cell, str) else _class(cell, where)
        if isinstance(cell, bool):
            name = name if name in task.labels else name.lower()  # as JSON writes it
        elif isinstance(cell, int) and 0 <= cell < len(task.numbered_labels):
            name = task.numbered_labels[cell]
        if name not in task.labels:
            raise BertlineError(f"{where}: given '{name}', allowed are {', '.join(task.labels)}; correct the record")
        return task.labels.index(name)
    try:
        # Python reads 1_000 as a number.
        value = float("nan") if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell) else float(cell)
    except (TypeError, ValueError, OverflowError):
        value = float("nan")
    if not abs(value) <= MAX_NUMBER:  # which NaN is not, either
        raise BertlineError(f"{where}: given {reprlib.repr(cell)}, allowed is a number; correct the record")
    return value
