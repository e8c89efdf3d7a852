"""Tables with one document per row: JSON Lines, CSV, TSV, Parquet, Arrow."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from bertline.console import BertlineError
from bertline.corpus.documents import tidy
from bertline.corpus.encodings import Encodings
from bertline.corpus.plain_text import Origin, decoded_lines
from bertline.corpus.unpacking import Allowance, name_without_compression, open_unpacked

DELIMITED, COLUMNAR = (".csv", ".tsv"), (".parquet", ".arrow")
TABLES = (".jsonl", ".ndjson", ".json", *DELIMITED, *COLUMNAR)
MAX_ROW_LENGTH = 1 << 25  # characters; a row is read as a whole
ROWS_AT_ONCE = 64
USUAL_RATIO = 20  # of bytes unpacked to bytes packed, at most, in a Parquet file of texts
DICTIONARY_PAGE = 2  # Parquet's PageType
BYTES_AT_ONCE = 1 << 24  # of the rows of other Parquet files, at most, if one row has no more

Row = dict[str, Any]


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
) -> Iterator[Row]:
    """Yield the `columns` of every row of a table, in order.

    Rows are streamed; Parquet and Arrow are read a few rows at a time. JSON Lines are UTF-8; a column that the first
    line has is null in others without it. CSV and TSV are in `encoding` and have a header line; of several encodings,
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
        if is_delimited(path):
            yield from _csv_rows(stream, path, columns, encoding, chosen)
        else:
            yield from _json_rows(stream, path, columns)


def text_and_origin(row: Row, columns: Columns, *, where: str, default_id: str) -> tuple[str, Origin]:
    """Return a row's text, empty if it is null, and the other fields of its document.

    Args:
        where: for errors, such as `file, row 3`.
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


def list_names(names: Iterable[str]) -> str:
    """Join names of columns for an error; one with white space at an end or a byte order mark is quoted, to show it."""
    return ", ".join(name if name == tidy(name) else repr(name) for name in names)


def _json_rows(stream: BinaryIO, path: Path, columns: Columns) -> Iterator[Row]:
    for number, (where, row) in enumerate(json_objects(stream, path)):
        if number == 0:
            check_columns(row, columns, where)
        yield {name: row.get(name) for name in columns.names}  # many programs leave out what is null


def json_objects(stream: BinaryIO, path: Path) -> Iterator[tuple[str, Row]]:
    """Yield where each line of JSON Lines is, for errors, and its object. Raises BertlineError naming another line."""
    number = 0
    while line := stream.readline(MAX_ROW_LENGTH + 1):
        number += 1
        where = f"{path}, line {number}"
        if len(line) > MAX_ROW_LENGTH:
            raise BertlineError(f"{where} has more than {MAX_ROW_LENGTH} bytes; divide its document")
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            wrong = f"its byte {error.start} is 0x{line[error.start]:02x} ({error.reason})"
            raise BertlineError(f"{where} is not utf-8: {wrong}; convert the file") from None
        except (ValueError, RecursionError) as error:
            raise BertlineError(f"{where} is not JSON ({error}); every line has to be one object") from None
        if not isinstance(row, dict):
            raise BertlineError(f"{where} is not a JSON object; every line has to be one object")
        yield where, row


def _csv_rows(
    stream: BinaryIO, path: Path, columns: Columns, encoding: Encodings, chosen: Counter[str] | None
) -> Iterator[Row]:
    names: list[str] | None = None
    for where, values in csv_cells(stream, path, encoding, chosen):
        if names is None:
            names = values
            if len(names) == 1 and columns.text not in names and any(mark in names[0] for mark in ";\t"):
                mark = "semicolons" if ";" in names[0] else "tabs"
                raise BertlineError(
                    f"{path}: its columns are divided by {mark}; convert it to CSV with commas (a spreadsheet program "
                    "does), or to .jsonl"
                )
            check_columns(names, columns, str(path))
            continue
        if len(values) != len(names):
            raise BertlineError(f"{where} has {len(values)} columns, not {len(names)} as in the first; fix the file")
        yield dict(zip(names, values, strict=True))


def csv_cells(
    stream: BinaryIO, path: Path, encoding: Encodings, chosen: Counter[str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Yield where each row of a CSV or TSV file that is not empty is, for errors, and its cells. Raises BertlineError.

    In a TSV file quotes are text, as IANA registered text/tab-separated-values and as most programs write it.
    """
    csv.field_size_limit(MAX_ROW_LENGTH)
    lines = (f"{line}\n" for line in decoded_lines(stream, str(path), encoding, MAX_ROW_LENGTH, chosen))
    if _plain_name(path).endswith(".tsv"):
        table = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        table = csv.reader(lines, strict=True)
    try:
        for values in table:
            if values:
                yield f"{path}, line {table.line_num}", values
    except csv.Error as error:
        raise BertlineError(f"{path}, line {table.line_num} is not CSV ({error}); fix the file") from None


def _arrow_rows(path: Path, columns: Columns, allowance: Allowance) -> Iterator[Row]:
    batches = parquet_batches if path.suffix.lower() == ".parquet" else _ipc_batches
    with arrow_errors(path):
        for batch in batches(path, columns.names, lambda found: check_columns(found, columns, str(path)), allowance):
            for row in batch.to_pylist():
                allowance.take(sum(len(value) for value in row.values() if isinstance(value, str)))
                yield row


def first_rows(path: Path, count: int, allowance: Allowance) -> list[Row]:
    """Return the first `count` rows of a Parquet or Arrow file, or all if it has fewer, with all columns."""
    batches = parquet_batches if path.suffix.lower() == ".parquet" else _ipc_batches
    found: list[Row] = []
    with arrow_errors(path):
        for batch in batches(path, None, lambda names: None, allowance):
            allowance.take(batch.nbytes)
            found += batch.to_pylist()
            if len(found) >= count:
                break
    return found[:count]


@contextmanager
def arrow_errors(path: Path | str) -> Iterator[None]:
    """Turn the errors of pyarrow for a damaged or truncated file into a BertlineError about `path`."""
    try:
        yield
    # Its text may not be UTF-8, and its times may be none that Python has.
    except (pa.ArrowException, OSError, ValueError, OverflowError, struct.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error).strip().partition("\n")[0]
        raise BertlineError(f"{path} is damaged or truncated ({reason}); replace it") from None


Check = Callable[[list[str]], None]  # of the names of all columns


def parquet_batches(
    path: Path, names: Sequence[str] | None, check: Check, allowance: Allowance
) -> Iterator[pa.RecordBatch]:
    """Yield a Parquet file's columns `names`, or all, at most ROWS_AT_ONCE rows at a time.

    Raises BertlineError for a part that is larger than `allowance` has left: before it is unpacked, by the sizes that
    the file states, and then by what it is. Wrap it in `arrow_errors`.
    """
    with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        check(file.schema_arrow.names)
        # Of all columns of a row group: asked for one of them, pyarrow aborts the process on some damaged files.
        sizes = [file.metadata.row_group(number).total_byte_size for number in range(file.metadata.num_row_groups)]
        for size in sizes:
            _check_fits(allowance, size)
        is_usual = sum(sizes) <= USUAL_RATIO * path.stat().st_size
        rows = ROWS_AT_ONCE if is_usual else _rows_at_once(path, file.metadata, names)
        count = 0
        for batch in file.iter_batches(batch_size=rows, columns=names and list(names), use_threads=False):
            _check_fits(allowance, batch.nbytes)
            count += batch.num_rows
            yield batch
        if count != file.metadata.num_rows:
            raise pa.ArrowInvalid(f"{count} rows instead of {file.metadata.num_rows}")


def _rows_at_once(path: Path, metadata: pyarrow.parquet.FileMetaData, names: Sequence[str] | None) -> int:
    """Return how many rows of the columns `names`, or of all, may be read at a time.

    A text of a dictionary may be in all of these rows, each time at its length, and so may what texts of the encoding
    DELTA_BYTE_ARRAY share. All other texts are stored one by one.
    """
    largest = 1
    with path.open("rb") as file:
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for chunk in map(group.column, range(group.num_columns)):
                if names is None or any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in names):
                    is_shared = "DELTA_BYTE_ARRAY" in chunk.encodings
                    size = chunk.total_uncompressed_size if is_shared else _size_of_dictionary(file, chunk)
                    largest = max(largest, size)
    return min(ROWS_AT_ONCE, max(1, BYTES_AT_ONCE // largest))


def _size_of_dictionary(file: BinaryIO, chunk: pyarrow.parquet.ColumnChunkMetaData) -> int:
    """Return how many bytes a column's dictionary unpacks to, 0 if it has none.

    It is the first page. A page begins with its kind and its unpacked size, as integers of Thrift's compact protocol,
    https://parquet.apache.org/docs/file-format/data-pages/.
    """
    start = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    file.seek(max(0, min(start, file.seek(0, io.SEEK_END))))  # the file may be damaged
    header = io.BytesIO(file.read(24))
    kind, size = _thrift_integer(header), _thrift_integer(header)
    return size if kind == DICTIONARY_PAGE else 0


def _thrift_integer(header: BinaryIO) -> int:
    header.read(1)  # the field's number and type
    value = shift = 0
    while (byte := header.read(1)) and byte[0] & 0x80:
        value |= (byte[0] & 0x7F) << shift
        shift += 7
    return (value | int.from_bytes(byte) << shift) >> 1  # the lowest bit is the sign


def _check_fits(allowance: Allowance, size: int) -> None:
    """Refuse what the allowance has no room for, without taking it: its texts are counted as they are read."""
    if size > max(allowance.left, allowance.path.stat().st_size):
        allowance.take(size)


def _ipc_batches(
    path: Path, names: Sequence[str] | None, check: Check, allowance: Allowance
) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file:
        is_file = file.read(6) == b"ARROW1"  # the two forms: a file with a footer, or a stream with an end mark
        file.seek(max(0, file.size() - 8))
        if not is_file and file.read() != b"\xff\xff\xff\xff\0\0\0\0":
            raise pa.ArrowInvalid("its end mark is missing")
        file.seek(0)
        if is_file:
            reader = pa.ipc.open_file(file)
            batches: Iterable[pa.RecordBatch] = map(reader.get_batch, range(reader.num_record_batches))
        else:
            batches = reader = pa.ipc.open_stream(file)
        check(reader.schema.names)
        for size in ipc_sizes(path):
            _check_fits(allowance, size)
        for batch in batches:
            _check_fits(allowance, batch.nbytes)
            batch.validate(full=True)
            wanted = batch if names is None else batch.select(list(names))
            for start in range(0, wanted.num_rows, ROWS_AT_ONCE):
                yield wanted.slice(start, ROWS_AT_ONCE)
        if not is_file and file.tell() != file.size():
            raise pa.ArrowInvalid(f"an end mark is at byte {file.tell()} of {file.size()}")


def ipc_sizes(path: Path) -> Iterator[int]:
    """Yield how many bytes each message of an Arrow file unpacks to, as it states, 0 if it is not packed.

    A packed buffer begins with its size, https://arrow.apache.org/docs/format/Columnar.html#compression.
    """
    with pa.memory_map(str(path)) as file:
        file.seek(8 if file.read(6) == b"ARROW1" else 0)
        for message in pa.ipc.MessageReader.open_stream(file):
            metadata, body = message.metadata.to_pybytes(), memoryview(message.body or b"")
            size = 0
            for offset, length in _packed_buffers(metadata):
                stated = int.from_bytes(body[offset : offset + 8], "little", signed=True) if length >= 8 else 0
                size += max(stated, length)
            yield size


def _packed_buffers(metadata: bytes) -> Iterator[tuple[int, int]]:
    """Yield offset and length of a message's buffers if they are compressed: flatbuffers of format/Message.fbs."""
    message = struct.unpack_from("<I", metadata)[0]
    kind, header = _field(metadata, message, 1), _field(metadata, message, 2)
    if not kind or not header or metadata[kind] not in (2, 3):  # a batch of a dictionary, or of records
        return
    table = header + struct.unpack_from("<I", metadata, header)[0]
    if metadata[kind] == 2:
        data = _field(metadata, table, 1)
        if not data:
            return
        table = data + struct.unpack_from("<I", metadata, data)[0]
    buffers = _field(metadata, table, 2)
    if not buffers or not _field(metadata, table, 3):
        return
    vector = buffers + struct.unpack_from("<I", metadata, buffers)[0]
    for number in range(struct.unpack_from("<I", metadata, vector)[0]):
        yield struct.unpack_from("<qq", metadata, vector + 4 + 16 * number)


def _field(metadata: bytes, table: int, number: int) -> int:
    """Return the position of a field of a flatbuffers table, 0 if it is absent."""
    places = table - struct.unpack_from("<i", metadata, table)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", metadata, places)[0]:
        return 0
    offset = struct.unpack_from("<H", metadata, places + place)[0]
    return table + offset if offset else 0
