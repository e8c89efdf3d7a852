"""Tables with one document per row: JSON Lines, arrays in JSON, CSV, TSV, Parquet, Arrow."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bertline.console import BertlineError
from bertline.corpus.columnar import arrow_errors, record_batches
from bertline.corpus.documents import tidy
from bertline.corpus.encodings import Encodings
from bertline.corpus.json_rows import MAX_ROW_LENGTH, Row, json_objects
from bertline.corpus.plain_text import Origin, decoded_lines
from bertline.corpus.unpacking import Allowance, check_is_unpacked, name_without_compression, open_unpacked

DELIMITED, COLUMNAR = (".csv", ".tsv"), (".parquet", ".arrow")
OTHER_MARKS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}  # that divide columns in some CSV files
TABLES = (".jsonl", ".ndjson", ".json", *DELIMITED, *COLUMNAR)


class Columns(NamedTuple):
    """The names of a table's columns by content; None if there is no such column."""

    text: str = "text"
    id: str | None = None
    title: str | None = None
    url: str | None = None

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name in self if name is not None))


def columns_of(settings: Mapping[str, Any]) -> Columns:
    """Return the columns that a corpus's settings name."""
    return Columns(**{key: settings[key] for key in Columns._fields if key in settings})


def is_table(path: Path) -> bool:
    return _plain_name(path).endswith(TABLES)


def is_delimited(path: Path) -> bool:
    """Return whether a table is CSV or TSV, perhaps compressed, by its name."""
    return _plain_name(path).endswith(DELIMITED)


def is_columnar(path: Path) -> bool:
    """Return whether a table is Parquet or Arrow, by its name."""
    return _plain_name(path).endswith(COLUMNAR)


def _plain_name(path: Path) -> str:
    return name_without_compression(path.name.lower())


def rows(
    path: Path, columns: Columns, encoding: Encodings, allowance: Allowance, chosen: Counter[str] | None = None
) -> Iterator[tuple[str, Row]]:
    """Yield where every row of a table is, for errors, and its `columns`, in order.

    Rows are streamed; Parquet and Arrow are read a few rows at a time. JSON is UTF-8; a column that the first object
    has is null in others without it. CSV and TSV are in `encoding` and have a header line; of several encodings,
    the one that is taken is counted in `chosen`. All but Parquet and Arrow may be compressed, see `open_unpacked`.

    Raises BertlineError naming an invalid row or a missing or repeated column, and for the errors that pyarrow raises
    for damaged files.
    """
    if is_columnar(path):
        if _plain_name(path) != path.name.lower():
            raise BertlineError(f"{path}: Parquet and Arrow are compressed inside; unpack the file")
        yield from _arrow_rows(path, columns, allowance)
        return
    with open_unpacked(path, allowance) as stream:
        check_is_unpacked(stream, str(path))
        if is_delimited(path):
            yield from _csv_rows(stream, path, columns, encoding, chosen)
        else:
            yield from _json_rows(stream, path, columns)


def text_and_origin(row: Row, columns: Columns, *, where: str, default_id: str) -> tuple[str, Origin]:
    """Return a row's text, empty if it is null, and the other fields of its document.

    Args:
        where: for errors, such as `file, line 3`.
        default_id: the document's id if no column contains one.

    Raises BertlineError for a text, title or url that is not text, and an id that is neither text nor an integer.
    """
    values: dict[str, str] = {}
    for key, column in columns._asdict().items():
        value = "" if column is None or row[column] is None else row[column]
        if key == "id" and isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            kind = type(value).__name__
            raise BertlineError(f"{where}: its '{column}' is of type {kind}, not text; take another column as {key}")
        values[key] = value if key == "text" else tidy(value)
    if columns.id is not None and not values["id"]:
        raise BertlineError(f"{where}: its '{columns.id}' is empty; take another column as id, or none")
    return values["text"], Origin(values["id"] or default_id, values["title"], values["url"])


def check_columns(found: Iterable[str], columns: Columns, where: str) -> None:
    """Raise BertlineError naming a wanted column that is not among those found, or is there more than once."""
    found = list(found)
    for name in columns.names:
        if name not in found:
            raise BertlineError(
                f"{where} has no column '{name}'; it has {list_names(found[:20]) or 'none'}; "
                "select columns by the corpus's text, id, title and url"
            )
        if (count := found.count(name)) > 1:
            raise BertlineError(f"{where} has {count} columns '{name}'; rename all but the one to read")


def check_delimiter(header: Sequence[str], path: Path) -> None:
    """Raise BertlineError if the header of a CSV or TSV file is one column, but several by another mark.

    A column's own name may contain such a mark: check only a header that lacks a column to read.
    """
    name = next((name for mark, name in OTHER_MARKS.items() if mark in header[0]), None) if len(header) == 1 else None
    if name is not None:
        raise divided_by(name, path)


def check_first_line(line: str, path: Path) -> None:
    """Raise BertlineError if another mark divides a line that is no CSV, as of names in quotes."""
    for mark, name in OTHER_MARKS.items():
        with suppress(csv.Error):
            if len(next(csv.reader([line], delimiter=mark, strict=True), [])) > 1:
                raise divided_by(name, path)


def divided_by(name: str, path: Path) -> BertlineError:
    """Return the error of a table whose columns are divided by another mark than its own."""
    return BertlineError(
        f"{path}: its columns are divided by {name}; convert it to CSV with commas (a spreadsheet program does), "
        "or to .jsonl"
    )


def list_names(names: Iterable[str]) -> str:
    """Join names of columns for an error; one with white space at an end or a byte order mark is quoted, to show it."""
    return ", ".join(name if name == tidy(name) else repr(name) for name in names)


def _json_rows(stream: BinaryIO, path: Path, columns: Columns) -> Iterator[tuple[str, Row]]:
    for number, (where, row) in enumerate(json_objects(stream, path)):
        if number == 0:
            check_columns(row, columns, where)
        yield where, {name: row.get(name) for name in columns.names}  # many programs leave out what is null


def _csv_rows(
    stream: BinaryIO, path: Path, columns: Columns, encoding: Encodings, chosen: Counter[str] | None
) -> Iterator[tuple[str, Row]]:
    names: list[str] | None = None
    for where, values in csv_cells(stream, path, encoding, chosen):
        if names is None:
            names = values
            if columns.text not in names:
                check_delimiter(names, path)
            check_columns(names, columns, str(path))
            continue
        if len(values) != len(names):
            raise BertlineError(f"{where} has {len(values)} columns, not {len(names)} as in the first; fix the file")
        yield where, dict(zip(names, values, strict=True))
    if names is None:
        raise BertlineError(f"{path} is empty: it has no line that names its columns; copy it again, or leave it out")


def csv_cells(
    stream: BinaryIO, path: Path, encoding: Encodings, chosen: Counter[str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield where each row of a CSV or TSV file that is not empty is, for errors, and its cells. Raises BertlineError.

    In a TSV file quotes are text, as IANA registered text/tab-separated-values and as most programs write it.
    """
    csv.field_size_limit(MAX_ROW_LENGTH)
    lines = (f"{line}\n" for line in decoded_lines(stream, str(path), encoding, MAX_ROW_LENGTH, chosen))
    first = next(lines, "")
    if _plain_name(path).endswith(".tsv"):
        table = csv.reader(chain([first], lines), delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        table = csv.reader(chain([first], lines), strict=True)
    try:
        for values in table:
            if values:
                yield f"{path}, line {table.line_num}", values
    except csv.Error as error:
        if table.line_num == 1:
            check_first_line(first, path)
        raise BertlineError(f"{path}, line {table.line_num} is not CSV ({error}); fix the file") from None


def _arrow_rows(path: Path, columns: Columns, allowance: Allowance) -> Iterator[tuple[str, Row]]:
    number = 0
    with arrow_errors(path):
        for batch in record_batches(
            path, columns.names, lambda found: check_columns(found, columns, str(path)), allowance
        ):
            for row in batch.to_pylist():
                allowance.take(sum(len(value) for value in row.values() if isinstance(value, str)))
                number += 1
                yield f"{path}, row {number}", row
