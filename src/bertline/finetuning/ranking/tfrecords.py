"""Reader of TFRecord files with examples of int64 lists that does not need TensorFlow.

Format: tensorflow/core/lib/io/record_writer.h: each record has its length (8 bytes), the masked CRC-32C of the length,
the content, and the content's masked CRC-32C. The content is an Example of tensorflow/core/example/example.proto:
lists of numbers by name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bertline.console import BertlineError
from bertline.finetuning.tables import check_exists
from bertline.modeling.tensorflow_checkpoint import masked_checksum, protocol_fields

MAX_RECORD_BYTES = 2**24
HEADER, TRAILER = 12, 4  # bytes
GZIP = b"\x1f\x8b"


def read_examples(path: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield the place of each example, for messages, and its lists of numbers by name, int64.

    Raises BertlineError for a file that is absent or cut off, a wrong checksum, or a record of another form.
    """
    check_exists(path)
    with path.open("rb") as file:
        number = 0
        while header := file.read(HEADER):
            number += 1
            where = f"{path}: record {number}"
            if number == 1 and header.startswith(GZIP):
                raise BertlineError(f"{path} is compressed; unpack it")
            if len(header) == HEADER and header[8:] != masked_checksum(header[:8]):
                raise BertlineError(f"{where}: its length has a wrong checksum; name a TFRecord file, or get it again")
            size = struct.unpack("<Q", header[:8])[0] if len(header) == HEADER else 0
            if size > MAX_RECORD_BYTES:
                raise BertlineError(f"{where}: {size} bytes, allowed are {MAX_RECORD_BYTES}; write smaller records")
            content = file.read(size + TRAILER)
            if len(header) < HEADER or len(content) < size + TRAILER:
                raise BertlineError(f"{where}: the file is cut off; get it again")
            if content[size:] != masked_checksum(content[:size]):
                raise BertlineError(f"{where}: its content has a wrong checksum; get the file again")
            try:
                yield where, _example(content[:size])
            except (LookupError, OverflowError, ValueError, TypeError, AttributeError, UnicodeDecodeError):
                raise BertlineError(f"{where}: not an Example of int64 lists; name another file") from None


def _example(content: bytes) -> dict[str, np.ndarray]:
    lists = {}
    for features in protocol_fields(content).get(1, []):
        for entry in protocol_fields(features).get(1, []):
            fields = protocol_fields(entry)
            numbers = protocol_fields(fields[2][-1]).get(3, [])  # 1 and 2 are bytes and floats
            if numbers:
                lists[fields[1][-1].decode()] = _int64_list(numbers[-1])
    return lists


def _int64_list(content: bytes) -> np.ndarray:
    packed = protocol_fields(content).get(1, [])
    return np.concatenate(
        [_varints(part) if isinstance(part, bytes) else np.array([part], np.uint64).astype(np.int64) for part in packed]
        or [np.zeros(0, np.int64)]
    )


def _varints(content: bytes) -> np.ndarray:
    """Decode numbers of 7 bits a byte, the lowest first; the last byte of a number is below 128."""
    values = np.frombuffer(content, np.uint8)
    if not len(values):
        return np.zeros(0, np.int64)
    if values[-1] > 127:
        raise ValueError("the last number is cut off")
    starts = np.append(0, np.flatnonzero(values < 128)[:-1] + 1)
    shift = 7 * (np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values)))))
    if shift.max() > 63:
        raise ValueError("a number is too long")
    return np.add.reduceat((values & 127).astype(np.uint64) << shift.astype(np.uint64), starts).astype(np.int64)
