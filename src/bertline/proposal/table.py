"""A table of the user's to fine-tune on: its columns, and its rows divided for training and for scores."""

from __future__ import annotations

import filecmp
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from bertline.console import BertlineError
from bertline.corpus.tables import is_delimited, list_names
from bertline.files import Json, write_atomically
from bertline.finetuning.examples import read_labelled
from bertline.finetuning.tables import SUFFIXES, read_records
from bertline.planning.patterns import check_can_be_named
from bertline.proposal.columns import NUMBER_WITH_COMMA, check_is_name, check_is_unquoted, long_columns, number_of

DEV_SHARE, MIN_ROWS = 0.2, 20
LABELS = ("label", "labels", "class", "category", "target", "tag", "stars", "rating", "score", "sentiment")
IDS = ("id", "index", "idx", "key")
MAX_CLASSES = 50
MAX_NUMBER = 5  # that a network predicts well
NAMED = 5  # columns in a message
WORDS = 3  # of a short text, about


@dataclass
class _Column:
    """What the cells of a column are."""

    length: int = 0  # of all texts together
    spaces: int = 0
    more_bytes: int = 0  # than characters, in UTF-8
    numbers: int = 0
    fractions: int = 0  # numbers that are not whole
    largest: float = 0.0  # absolute value of a finite number
    with_comma: int = 0  # numbers with a comma
    example: str = ""  # the first of these
    values: set[int] = field(default_factory=set)  # hashes of the different ones, MAX_CLASSES + 1 at most

    def add(self, cell: Any) -> None:
        self.length += len(cell) if isinstance(cell, str) else 0
        self.spaces += cell.count(" ") if isinstance(cell, str) else 0
        self.more_bytes += len(cell.encode(errors="replace")) - len(cell) if isinstance(cell, str) else 0
        if (number := number_of(cell)) is not None:
            self.numbers += 1
            if math.isfinite(number):
                self.fractions += not number.is_integer()
                self.largest = max(self.largest, abs(number))
        if isinstance(cell, str) and NUMBER_WITH_COMMA.fullmatch(cell):
            self.with_comma += 1
            self.example = self.example or cell.strip()
        if len(self.values) <= MAX_CLASSES:
            self.values.add(hash(str(cell)))


@dataclass
class _Table:
    """A file, and the columns of it that were chosen."""

    file: str
    texts: list[str]
    label: str
    is_regression: bool

    def rows(self) -> Iterator[tuple[str, Json]]:
        """Yield the name of each row's class, empty for a number, and its cells. Raises BertlineError."""
        for name, cells in read_labelled(Path(self.file), self.texts, self.label, is_regression=self.is_regression):
            yield name, dict(zip((*self.texts, self.label), cells, strict=True))


def files_of(table: str | None) -> list[str]:
    """Return the files of TABLE=, with commas between. Raises BertlineError for an empty name."""
    files = [file.strip() for file in table.split(",")] if table else []
    if not all(files):
        raise BertlineError(f"TABLE={table}: a name is empty; give one file, or one for training and one to score")
    return files


def describe_table(files: list[str], folder: Path, *, force: bool = False) -> Json:
    """Describe a table for a configuration: its `name`, `settings`, and `reasons` for them.

    The `rows` are their number, `characters` those of a row's texts in the mean, `notes` lines about what was guessed.

    A single file is divided: DEV_SHARE of its rows, chosen by a hash of their content, become the dev set; but none of
    a class that training would then lack. Both are written as JSON Lines. No row is kept in memory.

    Args:
        files: the table, or one for training and one for scores: .csv, .tsv, .jsonl, .parquet with named columns.
        folder: for the divided table.
        force: overwrite one of another content there.

    Raises BertlineError for a file that is absent, damaged or of another form, without a column of labels or texts,
    for a row without its text or its label, for labels that are all the same, and for rows to score on that are those
    to train on.
    """
    if len(files) > 2:
        raise BertlineError(
            f"TABLE={','.join(files)}: {len(files)} files; give one, or one for training and one to score"
        )
    if len(files) == 2 and os.path.realpath(files[0]) == os.path.realpath(files[1]):
        raise BertlineError(
            f"TABLE={','.join(files)} is one file: training would see the rows to score on; give it once, then a part "
            "of its rows is kept for the scores"
        )
    if len(files) == 2:  # the graph reads them where they are
        for file in files:
            _check_path(file)
    columns, count = _look_at(files[0])
    label, other_labels = _label_of(columns, count, files[0])
    texts, unused = _texts_of(columns, count, label, files[0])
    _check_has_names(files[0], columns, count, label, texts)
    described = columns[label]
    has_many = len(described.values) > MAX_CLASSES
    is_regression = described.numbers == count and (has_many or described.fractions > 0)
    numbers = described.numbers + described.with_comma
    if described.with_comma and (numbers == count or (has_many and 2 * numbers > count)):
        raise BertlineError(
            f"TABLE={files[0]}: column '{label}' has numbers with a comma, such as {described.example}; write a point, "
            "or nothing where it marks thousands"
        )
    if len(files) == 1 and count < MIN_ROWS:
        raise BertlineError(f"{files[0]} has {count} rows; {MIN_ROWS} or more are needed to score on some")
    table = _Table(files[0], texts, label, is_regression)
    name = _name_of(Path(files[0]))
    found = f"more than {MAX_CLASSES}" if has_many else f"{len(described.values)}"
    reasons = {"label": f"{found} different values", "texts": "the columns of text"}
    guesses = []
    if others := [column for column in other_labels if column not in texts]:
        reasons["label"] += f"; not taken: {_some(others)}; name the right one 'label'"
        guesses.append(f"taken as label: {label}, not {_some(others)}; if that is wrong, name the right one 'label'")
    if is_regression and described.largest > MAX_NUMBER:
        reasons["label"] += f"; scale the numbers to about -{MAX_NUMBER} to {MAX_NUMBER}"
    if unused:
        reasons["texts"] += f"; not used: {_some(unused)}"
        guesses.append(
            f"taken as text: {list_names(texts)}, not {_some(unused)}; to read two of them, remove the others"
        )
    notes = [f"Of TABLE={files[0]} {guess}." for guess in guesses]
    train, dev = files[0], files[-1]
    if len(files) == 1:
        train, dev = divided_into(files[0], folder)
        scored = _divide(table, Path(train), Path(dev), force=force)
        reasons["dev"] = f"{scored:,} rows of {files[0]}, which training does not see"
    else:
        _check_dev(table, files[1])
    settings = {
        "kind": "regression" if is_regression else "classification",
        "train": train,
        "dev": dev,
        "texts": texts,
        "label": label,
    }
    characters = sum(columns[text].length for text in texts) / count
    return {
        "name": name,
        "settings": settings,
        "reasons": reasons,
        "rows": count,
        "characters": characters,
        "notes": notes,
    }


def _check_path(file: str) -> None:
    try:
        check_can_be_named(file)
    except BertlineError as error:
        raise BertlineError(f"TABLE={error}") from None


def _some(names: Sequence[str]) -> str:
    return list_names(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def divided_into(file: str, folder: Path) -> list[str]:
    """Return the files in `folder` for training and for scores that a table is divided into."""
    return [f"{folder.as_posix()}/{_name_of(Path(file))}-{split}.jsonl" for split in ("train", "dev")]


def _name_of(file: Path) -> str:
    """Return a name for a task: that of its table, or of the folder of one called train."""
    stem = file.name.partition(".")[0]
    if stem.lower() in ("train", "training"):
        stem = file.absolute().parent.name
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in stem).strip("-") or "table"


def _look_at(file: str) -> tuple[dict[str, _Column], int]:
    """Return the columns of a table, by name, and the number of its rows."""
    path = Path(file)
    if path.suffix.lower() not in SUFFIXES:
        raise BertlineError(f"TABLE={path}: given '{path.suffix}', allowed are {', '.join(SUFFIXES)}; convert the file")
    if not path.is_file():
        raise BertlineError(f"TABLE={path} does not exist; give a table with a column of texts and one of labels")
    columns: dict[str, _Column] = {}
    count = 0
    for _, record in read_records(path):
        if not columns:
            check_is_unquoted(list(record), path)
            columns = {name: _Column() for name in record}
        for name, column in columns.items():
            column.add(record.get(name))
        count += 1
    if not count:
        raise BertlineError(f"TABLE={file} has no rows; give a table with a column of texts and one of labels")
    return columns, count


def _check_has_names(file: str, columns: dict[str, _Column], count: int, label: str, texts: list[str]) -> None:
    """Raise BertlineError if a row seems to be in the place of the columns' names."""
    if is_delimited(Path(file)) and number_of(label) is not None:
        raise BertlineError(
            f"TABLE={file}: its first line is a row, as '{label}' is the name of the labels' column; add a first line "
            "with names, such as text and label"
        )
    if not any(name.lower() in LABELS for name in columns):
        for text in texts:
            check_is_name(text, columns, columns[text].length / count, Path(file))


def _check_labels(table: _Table, classes: set[str]) -> None:
    if table.is_regression:
        return
    if table.label in classes:
        raise BertlineError(
            f"TABLE={table.file}: '{table.label}' is the name of a column and one of its labels: a row is in the place "
            "of the columns' names; add a first line with names, such as text and label"
        )
    if len(classes) < 2:
        raise BertlineError(
            f"TABLE={table.file}: all labels in '{table.label}' are '{next(iter(classes), '')}'; "
            "give rows of two classes or more"
        )


def _check_dev(table: _Table, file: str) -> None:
    """Check the labels and texts of both files. Raises BertlineError."""
    classes = {name for name, _ in table.rows()}
    _check_labels(table, classes)
    count = 0
    for name, _ in _Table(file, table.texts, table.label, table.is_regression).rows():
        count += 1
        if name not in classes:
            raise BertlineError(f"TABLE={file}: the label '{name}' is not among those of {table.file}; add a row there")
    if not count:
        raise BertlineError(f"TABLE={file} has no rows; give rows to score on")


def _divide(table: _Table, train: Path, dev: Path, *, force: bool) -> int:
    """Write the rows to train on and those to score on. Returns the number of the latter.

    Raises BertlineError if one of the files exists with another content, unless `force` is given.
    """
    classes, trained, scored, count = set(), set(), 0, 0
    for name, row in table.rows():
        count += 1
        classes.add(name)
        if not _is_for_dev(_line(row)):
            trained.add(name)
    _check_labels(table, classes)
    train.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(train) as new_train, write_atomically(dev) as new_dev:
        with new_train.open("w", encoding="utf-8") as to_train, new_dev.open("w", encoding="utf-8") as to_dev:
            for name, row in table.rows():
                line = _line(row)
                is_scored = name in trained and _is_for_dev(line)
                output: TextIO = to_dev if is_scored else to_train
                output.write(f"{line}\n")
                scored += is_scored
        if not scored and 2 * len(classes) > count:
            raise BertlineError(
                f"TABLE={table.file}: column '{table.label}' has {len(classes)} different labels in {count} rows: it "
                "is no class; name a column of classes 'label'"
            )
        if not scored or not trained:
            raise BertlineError(f"{table.file}: its rows are all alike and cannot be divided; give two files instead")
        for new, old in ((new_train, train), (new_dev, dev)):
            if not force and old.exists() and not filecmp.cmp(new, old, shallow=False):
                raise BertlineError(
                    f"{old} has other rows than those of {table.file}, and another configuration may use it; give "
                    "OUTPUT= with another name of the file, or FORCE=yes to overwrite it"
                )
    return scored


def _line(row: Json) -> str:
    return json.dumps(row, ensure_ascii=False)


def _is_for_dev(line: str) -> bool:
    return int.from_bytes(hashlib.sha256(line.encode()).digest()[:4]) < DEV_SHARE * 2**32


def _label_of(columns: dict[str, _Column], count: int, file: str) -> tuple[str, list[str]]:
    """Return the column of labels, and others that could be it, unless one is called `label`.

    It is the one with the most usual name, or else the one of the fewest different values.
    """
    usual = [column for name in LABELS for column in columns if column.lower() == name]
    most = min(MAX_CLASSES, count // 2)
    few = {name: len(column.values) for name, column in columns.items() if 1 < len(column.values) <= most}
    possible = list(dict.fromkeys([*usual, *sorted(few, key=lambda column: few[column])]))
    if not possible:
        raise BertlineError(f"TABLE={file} has no column of labels among {', '.join(columns)}; name one 'label'")
    label, *others = possible
    return label, [] if label.lower() == LABELS[0] else others


def _texts_of(columns: dict[str, _Column], count: int, label: str, file: str) -> tuple[list[str], list[str]]:
    """Return one or two columns of text, and other columns of text, which cannot be used.

    A column is text if it is at least a third as long as the longest, or if its cells have some words, as a short
    hypothesis or question beside a long passage; names of persons have two, and digests and addresses one, of ASCII.
    """
    possible = {
        name: column
        for name, column in columns.items()
        if name != label and name.lower() not in IDS and column.length > 3 * count and column.numbers < count
    }
    if not possible:
        raise BertlineError(f"TABLE={file} has no column of texts besides '{label}'; add one")
    several = {
        name: column
        for name, column in possible.items()
        if column.spaces >= count or column.more_bytes >= column.length  # a script that may have no spaces
    }
    lengths = {name: column.length / count for name, column in (several or possible).items()}
    longest, long = max(lengths, key=lambda column: lengths[column]), long_columns(lengths)
    texts = [column for column in lengths if column in long or columns[column].spaces >= WORDS * count]
    chosen = next((some for some in (texts, long) if len(some) <= 2), [longest])
    return chosen, [column for column in texts if column not in chosen]
