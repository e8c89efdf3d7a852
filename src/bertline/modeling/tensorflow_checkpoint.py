"""Reader and writer of TensorFlow checkpoints that do not need TensorFlow.

Format: tensorflow/core/util/tensor_bundle and tensorflow/core/lib/io/table_format.txt. `{prefix}.index` is a sorted
table in LevelDB's format that maps a tensor's name to a BundleEntryProto (type, shape, location);
`{prefix}.data-?????-of-?????` contain the concatenated values. Blocks of the table and values have a CRC-32C, which is
masked as in LevelDB.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from bertline.console import BertlineError

MAGIC = 0xDB4775248B80FB57
MAX_DIMENSIONS = 8
MAX_KEY = 1000  # bytes; one of a few bytes may share the rest with the one before
MAX_VARINT = 10  # bytes, of 64 bits
FOOTER = 48  # bytes: locations of two blocks, padding, and the magic number
TRAILER = 5  # bytes after a block: whether it is compressed, and the checksum
# tensorflow/core/framework/types.proto; only counters have other types.
TYPES = {number: np.dtype(code) for number, code in ((1, "<f4"), (2, "<f8"), (3, "<i4"), (9, "<i8"), (19, "<f2"))}


def names_in_checkpoint(prefix: Path | str) -> list[str]:
    """Return the names of all tensors, sorted. Raises BertlineError for an index that is absent or damaged."""
    return [name for name, _ in _entries(prefix)[0]]


def read_checkpoint(prefix: Path | str, names: Collection[str] | None = None) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the values of every tensor, sorted by name; values are read when accessed.

    Args:
        prefix: of the files' names, such as `bert_model.ckpt`.
        names: of the tensors to read; all by default.

    Raises BertlineError for a file that is absent, truncated, damaged or of another format.
    """
    entries, shards = _entries(prefix)
    for name, entry in entries:
        if names is None or name in names:
            yield name, _tensor(Path(prefix), name, entry, shards)


def _entries(prefix: Path | str) -> tuple[list[tuple[str, Entry]], int]:
    """Return the entries of a checkpoint's index by name, and the number of files with the values."""
    index = Path(f"{prefix}.index")
    entries: list[tuple[str, Entry]] = []
    shards = 1
    try:
        for key, value in _table(index.read_bytes()):  # sorted: the header, whose name is empty, comes first
            if key:
                entries.append((key.decode(), _entry_of(value)))
            else:
                shards = _last(protocol_fields(value), 1, int) or 1
    except FileNotFoundError:
        raise BertlineError(f"{index} does not exist; name a folder with a TensorFlow checkpoint") from None
    except (IndexError, struct.error, ValueError) as error:
        raise BertlineError(f"{index} is not the index of a TensorFlow checkpoint ({error}); fetch it again") from None
    return entries, shards


class Entry(NamedTuple):
    """A tensor's type, its shape, the number of its file, its first byte there and its size in bytes, and checksum."""

    kind: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: bytes


def _entry_of(value: bytes) -> Entry:
    fields = protocol_fields(value)
    kind, shard, offset, size = (_last(fields, number, int) or 0 for number in (1, 3, 4, 5))
    dimensions = protocol_fields(_last(fields, 2, bytes) or b"").get(2, [])
    if not all(isinstance(dimension, bytes) for dimension in dimensions):
        raise ValueError("a shape is not a list of messages")
    shape = tuple(_last(protocol_fields(dimension), 1, int) or 0 for dimension in dimensions)
    return Entry(kind, shape, shard, offset, size, _last(fields, 6, bytes) or b"")


def _last(fields: Mapping[int, list[Any]], number: int, kind: type) -> Any:
    """Return the last value of a field, None if it is absent. Raises ValueError if it is of another type."""
    value = fields.get(number, [None])[-1]
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"field {number} is of another type")
    return value


def _tensor(prefix: Path, name: str, entry: Entry, shards: int) -> np.ndarray:
    kind, shape, shard, offset, size, checksum = entry
    path = prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")
    dtype = TYPES.get(kind)
    if dtype is None or size != math.prod(shape) * dtype.itemsize or len(shape) > MAX_DIMENSIONS:
        raise BertlineError(
            f"{prefix}.index: {name} is of type {kind} and {size} bytes, which cannot be read; fetch it again, or "
            "choose other weights"
        )
    if not size:
        return np.zeros(shape, dtype)
    if not path.exists():
        raise BertlineError(f"{path} does not exist; fetch it, it belongs to {prefix.name}.index")
    if path.stat().st_size < offset + size:
        raise BertlineError(f"{path} is cut off: {name} ends at byte {offset + size}; fetch it again")
    values = np.memmap(path, dtype, "r", offset, shape) if shape else np.fromfile(path, dtype, 1, offset=offset)[0]
    if checksum != masked_checksum(values.tobytes()):
        raise BertlineError(f"{path} is damaged: {name} does not have the checksum it was written with; fetch it again")
    return values


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a table: an index block points to the blocks with them."""
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or struct.unpack("<Q", footer[-8:])[0] != MAGIC:
        raise ValueError("its magic number is wrong")
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    end, last = 0, None
    for _, handle in _block(content, *index):
        (offset, size), _ = _handle(handle, 0)
        if offset < end:  # otherwise a small file is read any number of times
            raise ValueError("its blocks overlap")
        end = offset + size
        for key, value in _block(content, offset, size):
            if last is not None and key <= last:
                raise ValueError("its keys are not sorted")
            last = key
            yield key, value


def _handle(content: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(content, at)
    size, at = _varint(content, at)
    return (offset, size), at


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield a block's entries. Each shares a prefix of its key with the one before; restart offsets follow them."""
    if content[offset + size]:
        raise ValueError("it is compressed")
    if content[offset + size + 1 : offset + size + 5] != masked_checksum(content[offset : offset + size + 1]):
        raise ValueError("its checksum is wrong")
    block = content[offset : offset + size]
    (restarts,) = struct.unpack_from("<I", block, size - 4)
    at, end, key = 0, size - 4 * (restarts + 1), b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        if len(key) > MAX_KEY:
            raise ValueError(f"it has a key of more than {MAX_KEY} bytes")
        yield key, block[at + own : at + own + length]
        at += own + length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * MAX_VARINT, 7):
        byte = content[at]
        value, at = value | (byte & 127) << shift, at + 1
        if byte < 128:
            return value, at
    raise ValueError(f"it has a number of more than {MAX_VARINT} bytes")


def protocol_fields(message: bytes) -> dict[int, list[Any]]:
    """Return the values of a protocol buffer's fields, integers or bytes, by the fields' numbers."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value: int | bytes
        if tag & 7 == 0:
            value, at = _varint(message, at)
        else:  # of a given size, or of 64 or 32 bits
            length, at = _varint(message, at) if tag & 7 == 2 else (8 if tag & 7 == 1 else 4, at)
            value, at = message[at : at + length], at + length
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def write_checkpoint(prefix: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a checkpoint in one shard.

    Args:
        prefix: of the files' names, such as `bert_model.ckpt`.
        tensors: by name, float32 or another type of `TYPES`.
    """
    numbers = {dtype: number for number, dtype in TYPES.items()}
    entries = [(b"", _field(1, 1) + _field(3, _field(1, 1)))]  # one shard, little-endian; version 1
    with prefix.with_name(f"{prefix.name}.data-00000-of-00001").open("wb") as file:
        for name in sorted(tensors):
            values = np.asarray(tensors[name], order="C")
            content, shape = values.tobytes(), b"".join(_field(2, _field(1, size)) for size in values.shape)
            place = (
                _field(1, numbers[values.dtype]) + _field(2, shape) + _field(4, file.tell()) + _field(5, len(content))
            )
            entries.append((name.encode(), place + b"\x35" + masked_checksum(content)))  # field 6, of 32 bits
            file.write(content)
    table = _finished_block(entries)
    handles = [_varint_of(0) + _varint_of(len(table) - TRAILER)]
    for block in (_finished_block([]), _finished_block([(entries[-1][0], handles[0])])):  # of metadata, of the blocks
        handles.append(_varint_of(len(table)) + _varint_of(len(block) - TRAILER))
        table += block
    footer = (handles[1] + handles[2]).ljust(FOOTER - 8, b"\0") + struct.pack("<Q", MAGIC)
    Path(f"{prefix}.index").write_bytes(table + footer)


def _finished_block(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a block with its trailer; every key is whole, so every entry is a restart."""
    block, restarts = b"", []
    for key, value in entries:
        restarts.append(len(block))
        block += _varint_of(0) + _varint_of(len(key)) + _varint_of(len(value)) + key + value
    restarts = restarts or [0]
    block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)) + b"\0"  # not compressed
    return block + masked_checksum(block)


def _field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protocol buffer."""
    if isinstance(value, bytes):
        return _varint_of(number << 3 | 2) + _varint_of(len(value)) + value
    return _varint_of(number << 3) + _varint_of(value)


def _varint_of(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def masked_checksum(content: bytes) -> bytes:
    """Return the CRC-32C of `content`, masked as in LevelDB, as four bytes."""
    crc = google_crc32c.value(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
