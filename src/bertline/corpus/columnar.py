"""Reading of columnar files, Parquet and Arrow, a few rows at a time and within limits that hold before they unpack."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet

from bertline.console import BertlineError
from bertline.corpus.unpacking import Allowance

ROWS_AT_ONCE = 64
USUAL_RATIO = 20  # of bytes unpacked to bytes packed, at most, in a Parquet file of texts
DICTIONARY_PAGE = 2  # Parquet's PageType
BYTES_AT_ONCE = 1 << 24  # of the rows of other Parquet files, at most, if one row has no more

Check = Callable[[list[str]], None]  # of the names of all columns


def record_batches(
    path: Path, names: Sequence[str] | None, check: Check, allowance: Allowance
) -> Iterator[pa.RecordBatch]:
    """Yield a Parquet or Arrow file's columns `names`, or all; see `parquet_batches`."""
    batches = parquet_batches if path.suffix.lower() == ".parquet" else _ipc_batches
    return batches(path, names, check, allowance)


def first_rows(path: Path, count: int, allowance: Allowance) -> list[dict[str, Any]]:
    """Return the first `count` rows of a Parquet or Arrow file, or all if it has fewer, with all columns."""
    found: list[dict[str, Any]] = []
    with arrow_errors(path):
        for batch in record_batches(path, None, lambda names: None, allowance):
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
            batch.validate(full=True)
            _check_fits(allowance, batch.nbytes)  # of damaged runs, it would end the process
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
