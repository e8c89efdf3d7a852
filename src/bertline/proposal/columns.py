"""Columns of the user's tables: which one holds the text, by its name and the first rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from bertline.console import BertlineError
from bertline.corpus.columnar import first_rows
from bertline.corpus.documents import tidy
from bertline.corpus.encodings import Encodings, WrongEncoding
from bertline.corpus.json_rows import json_objects
from bertline.corpus.plain_text import decoded_lines
from bertline.corpus.tables import OTHER_MARKS, csv_cells, divided_by, is_columnar, is_delimited, list_names
from bertline.corpus.text_files import LINES_TO_JUDGE
from bertline.corpus.unpacking import UNPACK_RATIO, Allowance
from bertline.files import Json
from bertline.proposal.encodings import opened

ROWS_TO_JUDGE = 50
NUMBER_WITH_COMMA = re.compile(r"\s*[+-]?(\d[\d.]*,\d+|\d{1,3}(,\d{3})+(\.\d+)?)\s*")  # of decimals, or thousands
# Columns that hold the text, in this order of preference; of a table without any with long texts, the longest one.
TEXT_COLUMNS = ("text", "content", "body", "document", "article", "sentence")
SHARE_OF_LONGEST = 1 / 3  # of the mean length: from it on, a column is as likely text as the longest
WORDS_OF_TEXT, CHARACTERS_OF_TEXT = 5, 20  # of a text in the place of a column's name; characters without spaces


def columns_of(file: Path, encoding: Encodings, column: str | None) -> tuple[list[str], dict[str, float]]:
    """Return a table's columns, and the mean length of those that hold text, and not only numbers.

    `column` is the one that was given.
    """
    rows: list[Json] = []
    if is_columnar(file):
        rows = first_rows(file, ROWS_TO_JUDGE, Allowance(file, UNPACK_RATIO))
    else:
        with opened(file) as stream:
            if is_delimited(file):
                cells = csv_cells(stream, file, encoding)
                _, header = next(cells, ("", []))
                if len(header) == 1 and column not in header:
                    _check_is_undivided(file, encoding)
                if column not in header:
                    check_is_unquoted(header, file)
                rows = [dict(zip(header, row, strict=False)) for _, row in islice(cells, ROWS_TO_JUDGE - 1)]
            else:
                rows = _first_objects(stream, file)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    texts = {name: [row[name] for row in rows if isinstance(row.get(name), str)] for name in columns}
    lengths = {
        name: sum(map(len, cells)) / len(rows)
        for name, cells in texts.items()
        if any(number_of(cell) is None and not NUMBER_WITH_COMMA.fullmatch(cell) for cell in cells)
    }
    return columns, lengths


def _first_objects(stream: BinaryIO, file: Path) -> list[Json]:
    try:
        return [row for _, row in islice(json_objects(stream, file), ROWS_TO_JUDGE)]
    except WrongEncoding:
        raise
    except BertlineError as error:  # such as a file of settings among texts
        raise BertlineError(f"{error}; if it is no text, move the file to another folder") from None


def check_is_unquoted(header: Sequence[str], file: Path) -> None:
    """Raise BertlineError if all names of columns are in quotes, as in no other table than a .tsv."""
    if header and all(len(name) > 1 and name[0] == name[-1] == '"' for name in header):
        raise BertlineError(
            f"{file}: its names are in quotes, which are a part of the text in .tsv; convert it to CSV (a spreadsheet "
            "program does), or to .jsonl"
        )


def _check_is_undivided(file: Path, encoding: Encodings) -> None:
    """Raise BertlineError if another mark than its own divides a table whose header seems to be one column.

    The name of a single column may contain such a mark: then it does not divide most rows into as many cells.
    """
    with opened(file) as stream:
        lines = list(islice(decoded_lines(stream, str(file), encoding), LINES_TO_JUDGE))
    for mark, name in OTHER_MARKS.items():
        header, *rows = [cells for cells in csv.reader((f"{line}\n" for line in lines), delimiter=mark) if cells]
        alike = sum(len(cells) == len(header) for cells in rows)
        if len(header) > 1 and 2 * alike >= len(rows):
            raise divided_by(name, file)


def column_of(
    file: Path, columns: Sequence[str], lengths: Mapping[str, float], column: str | None
) -> tuple[str, str] | None:
    """Return the column of a table that holds the text, and why it is taken; None without any."""
    if column is not None and column not in columns:
        raise BertlineError(f"{file} has no column '{column}' but {list_names(columns)}; give one, as COLUMN=text")
    long = long_columns(lengths)
    usual = next((name for wanted in TEXT_COLUMNS for name in long if name.lower() == wanted), None)
    chosen = column or usual or max(lengths, key=lambda name: lengths[name], default=None)
    if chosen is None:
        return None
    if column is None:
        check_is_name(chosen, columns, lengths[chosen], file)
    return chosen, "the column of the text" if column or usual else "the column with the longest texts"


def check_is_name(name: str, columns: Iterable[str], length: float, file: Path) -> None:
    """Raise BertlineError if a column's name seems to be a text, as of a CSV file without a line of names.

    Args:
        name: of a column of texts.
        columns: the names of all; a usual one shows that they are names.
        length: the mean of the column's texts.
    """
    has_no_spaces = len(name.encode()) >= 2 * len(name)  # as in most such scripts
    is_long = len(name.split()) >= WORDS_OF_TEXT or (has_no_spaces and len(name) >= CHARACTERS_OF_TEXT)
    if (
        is_delimited(file)
        and is_long
        and len(name) >= SHARE_OF_LONGEST * length
        and not any(column.lower() in TEXT_COLUMNS for column in columns)
    ):
        raise BertlineError(
            f"{file}: its first line seems to be a row, as '{tidy(name)[:60]}' is as long as a text; add a first line "
            "with names, or rename this one 'text'"
        )


def long_columns(lengths: Mapping[str, float]) -> list[str]:
    """Return the columns with texts of at least SHARE_OF_LONGEST of the longest column's mean length."""
    longest = max(lengths.values(), default=0)
    return [name for name, length in lengths.items() if length >= SHARE_OF_LONGEST * longest]


def number_of(cell: Any) -> float | None:
    """Return the number that a cell or its text is; None if it is none."""
    try:
        return float(cell) if isinstance(cell, str | int | float) else None
    except (ValueError, OverflowError):
        return None
