"""Reader of TensorFlow checkpoints that does not need TensorFlow.

Format: tensorflow/core/util/tensor_bundle and tensorflow/core/lib/io/table_format.txt. `{prefix}.index` is a sorted
table in LevelDB's format that maps a tensor's name to a BundleEntryProto (type, shape, location);
`{prefix}.data-?????-of-?????` contain the concatenated values. Checksums (CRC-32C) are not compared.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bertline.console import BertlineError

MAGIC = 0xDB4775248B80FB57
FOOTER = 48  # bytes: locations of two blocks, padding, and the magic number
# tensorflow/core/framework/types.proto; only counters have other types.
TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    9: np.dtype("<i8"),
    19: np.dtype("<f2"),
}


def read_checkpoint(prefix: Path | str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and the values of every tensor, sorted by name; values are read when accessed.

    Args:
        prefix: of the files' names, such as `bert_model.ckpt`.

    Raises BertlineError for a file that is absent, truncated or of another format.
    """
    index = Path(f"{prefix}.index")
    try:
        table = list(_table(index.read_bytes()))
    except FileNotFoundError:
        raise BertlineError(f"{index} does not exist; name a folder with a TensorFlow checkpoint") from None
    except (IndexError, struct.error, ValueError) as error:
        raise BertlineError(f"{index} is not the index of a TensorFlow checkpoint ({error}); fetch it again") from None
    shards = 1
    for name, value in table:  # sorted: the header, whose name is empty, comes first
        if name:
            yield name.decode(), _tensor(Path(prefix), name.decode(), value, shards)
        else:
            shards = _fields(value).get(1, [1])[-1]


def _tensor(prefix: Path, name: str, value: bytes, shards: int) -> np.ndarray:
    entry = _fields(value)
    kind, shard, offset, size = (entry.get(field, [0])[-1] for field in (1, 3, 4, 5))
    shape = tuple(_fields(dimension).get(1, [0])[-1] for dimension in _fields(entry.get(2, [b""])[-1]).get(2, []))
    path = prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}")
    dtype = TYPES.get(kind)
    if dtype is None or size != math.prod(shape) * dtype.itemsize:
        raise BertlineError(f"{prefix}.index: {name} is of type {kind} and {size} bytes, which cannot be read")
    if not path.exists():
        raise BertlineError(f"{path} does not exist; fetch it, it belongs to {prefix.name}.index")
    if path.stat().st_size < offset + size:
        raise BertlineError(f"{path} is cut off: {name} ends at byte {offset + size}; fetch it again")
    return np.memmap(path, dtype, "r", offset, shape) if shape else np.fromfile(path, dtype, 1, offset=offset)[0]


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a table: an index block points to the blocks with them."""
    footer = content[-FOOTER:]
    if len(footer) < FOOTER or struct.unpack("<Q", footer[-8:])[0] != MAGIC:
        raise ValueError("its magic number is wrong")
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    for _, handle in _block(content, *index):
        yield from _block(content, *_handle(handle, 0)[0])


def _handle(content: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(content, at)
    size, at = _varint(content, at)
    return (offset, size), at


def _block(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield a block's entries. Each shares a prefix of its key with the one before; restart offsets follow them."""
    if content[offset + size]:
        raise ValueError("it is compressed")
    block = content[offset : offset + size]
    (restarts,) = struct.unpack_from("<I", block, size - 4)
    at, end, key = 0, size - 4 * (restarts + 1), b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + length]
        at += own + length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _fields(message: bytes) -> dict[int, list[Any]]:
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
