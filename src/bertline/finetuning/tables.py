"""Reading of the cells of a task's tables, by column names: tab-separated, CSV, JSON Lines or Parquet.

.tsv      a header, cells without quoting, as in GLUE's files
.csv      a header, quoting as in RFC 4180
.jsonl    one object per line
.parquet  as stored by Hugging Face's datasets

Capitals in a suffix make no difference.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.corpus.encodings import WrongEncoding, decoded
from bertline.files import Json, parse_json

MAX_CELL_LENGTH = 2**31 - 1  # a cell may contain a whole book; the csv module's default limit is 128 KiB
BYTES_OF_CELL = 8  # of a number, or of nothing, where unpacked bytes are counted
SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet")

Check = Callable[[str, Sequence[str]], None]  # of the columns at a place
Cells = tuple[str, list[Any] | None]  # location of the row, and the selected cells; None for a broken row


def read_records(path: Path) -> Iterator[tuple[str, Json]]:
    """Yield the place of each row, for messages, and all of its cells by their columns. Raises BertlineError."""
    if path.suffix.lower() == ".jsonl":
        yield from _json_records(path)
        return
    names = [name for name in column_names(path) if name]  # a trailing comma makes a column without a name
    if path.suffix.lower() != ".parquet":
        _check_delimiter(names, path)
    for where, cells in read_columns(path, names):
        if cells is not None:
            yield where, dict(zip(names, cells, strict=True))


def column_names(path: Path) -> list[str]:
    """Return the columns that a Parquet file states, or the cells of the first row of a .tsv or .csv."""
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet

        from bertline.corpus.columnar import arrow_errors

        with arrow_errors(path), pyarrow.parquet.ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    return next(_delimited_rows(path), (1, []))[1]


def read_columns(
    path: Path,
    columns: Sequence[str],
    *,
    header: Sequence[str] = (),
    skips_broken_rows: bool = False,
    remedy: str = "correct the task's texts or label",
) -> Iterator[Cells]:
    """Yield the cells of `columns` row by row.

    Args:
        header: the columns of a .tsv or .csv that lacks a header.
        skips_broken_rows: whether rows that lack columns are yielded as None, not refused.
        remedy: what to do about a missing column, besides correcting the file.
    """
    check = partial(_check_columns, columns, remedy)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise BertlineError(f"{path}: given '{path.suffix}', allowed are {', '.join(SUFFIXES)}; convert the file")
    check_exists(path)
    if suffix == ".jsonl":
        yield from _read_jsonl(path, columns, check)
    elif suffix == ".parquet":
        yield from _read_parquet(path, columns, check)
    else:
        yield from _select(path, _delimited_rows(path), columns, check, header, skips_broken_rows)


def _delimited_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    if path.suffix.lower() == ".csv":
        return _csv_rows(path)
    return ((number, line.split("\t")) for number, line in read_lines(path))


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines. Only a newline ends a line: sentences may contain str.splitlines's other breaks."""
    check_exists(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise _not_utf_8(path, f"{path}: line {number}: not UTF-8") from None
            yield number, text


def check_exists(path: Path) -> None:
    """Raise BertlineError unless `path` is a file."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise BertlineError(f"{path} {what}; put the task's file there")


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(MAX_CELL_LENGTH)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            empty = 0  # the number of the first empty line
            for row in reader:
                if row and empty and len(row) == 1:  # perhaps an empty text; of more columns, it is no row
                    raise BertlineError(f'{path}: line {empty} is empty; remove it, or write "" for an empty text')
                if row:
                    yield reader.line_num, row
                else:
                    empty = empty or reader.line_num
        except csv.Error as error:
            if reader.line_num == 1:
                _check_first_line(path)
            raise BertlineError(f"{path}: line {reader.line_num}: not CSV ({error}); correct the line") from None
        except UnicodeDecodeError:
            raise _not_utf_8(path, f"{path} is not UTF-8") from None


def _not_utf_8(path: Path, what: str) -> BertlineError:
    """Return the error of a file with bytes that are not UTF-8: the first of them, and how to convert the file."""
    try:
        with path.open("rb") as file:
            for _ in decoded(file, str(path), "utf-8"):
                pass
    except WrongEncoding as error:
        such = (
            f", as {error.advised} if that reads it well (iconv -f {error.advised} -t utf-8)" if error.advised else ""
        )
        return BertlineError(f"{what}: {error.reason}; convert the file{such}")
    return BertlineError(f"{what}; convert the file")  # it changed meanwhile


def _select(
    path: Path,
    rows: Iterator[tuple[int, list[str]]],
    columns: Sequence[str],
    check: Check,
    header: Sequence[str],
    skips_broken_rows: bool,
) -> Iterator[Cells]:
    header = header or next(rows, (1, []))[1]
    if not set(columns) <= set(header):
        _check_delimiter(header, path)
    check(f"{path}: line 1", header)
    places = [header.index(column) for column in columns]
    for line, row in rows:
        where = f"{path}: line {line}"
        if len(row) == len(header):
            yield where, [row[place] for place in places]
        elif skips_broken_rows:
            yield where, None
        else:
            problem = f"no column '{header[len(row)]}'" if len(row) < len(header) else "too many columns"
            raise BertlineError(f"{where}: {problem}, it has {len(row)} of {len(header)}; correct or remove the line")


def _check_delimiter(header: Sequence[str], path: Path) -> None:
    from bertline.corpus.tables import check_delimiter  # imports pyarrow

    check_delimiter(header, path)


def _check_first_line(path: Path) -> None:
    from bertline.corpus.tables import check_first_line

    check_first_line(next(read_lines(path))[1], path)


def _read_jsonl(path: Path, columns: Sequence[str], check: Check) -> Iterator[Cells]:
    for where, record in _json_records(path):
        check(where, list(record))
        yield where, [record[column] for column in columns]


def _json_records(path: Path) -> Iterator[tuple[str, Json]]:
    for number, line in read_lines(path):
        where = f"{path}: line {number}"
        if not line.strip():  # perhaps of a lost record
            raise BertlineError(f"{where} is empty; remove it, or restore its record")
        try:
            record = parse_json(line)
        except ValueError as error:
            raise BertlineError(f"{where}: not JSON ({error}); correct the line") from None
        if not isinstance(record, dict):
            raise BertlineError(f"{where}: no JSON object; correct the line")
        yield where, record


def _read_parquet(path: Path, columns: Sequence[str], check: Check) -> Iterator[Cells]:
    from bertline.corpus.columnar import arrow_errors, parquet_batches
    from bertline.corpus.unpacking import UNPACK_RATIO, Allowance

    allowance = Allowance(path, UNPACK_RATIO, advice="if it is not meant to harm, convert it to .jsonl")
    number = 0
    with arrow_errors(path):
        for batch in parquet_batches(path, list(columns), partial(check, str(path)), allowance):
            for record in batch.to_pylist():
                number += 1
                cells = [record[column] for column in columns]
                allowance.take(sum(len(cell) if isinstance(cell, str) else BYTES_OF_CELL for cell in cells))
                yield f"{path}: row {number}", cells


def _check_columns(columns: Sequence[str], remedy: str, where: str, header: Sequence[str]) -> None:
    for column in columns:
        if column not in header:
            has = f"it has {', '.join(header)}" if header else "it is empty"
            raise BertlineError(f"{where}: no column '{column}', {has}; {remedy}, or correct the file")
        if header.count(column) > 1:
            raise BertlineError(
                f"{where}: the column '{column}' appears {header.count(column)} times; rename the others"
            )
