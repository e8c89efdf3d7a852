"""Indices of TensorFlow checkpoints, entry by entry, also those that TensorFlow does not write."""

from __future__ import annotations

import struct
from pathlib import Path

from bertline.modeling.tensorflow_checkpoint import MAGIC, masked_checksum

SCALAR = b"\x08\x01\x12\x00\x28\x04"  # a float32 of 4 bytes


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def entry(key: bytes, value: bytes = SCALAR, shared: int = 0) -> bytes:
    return varint(shared) + varint(len(key)) + varint(len(value)) + key + value


def write_index(path: Path, block: list[bytes], times: int = 1) -> None:
    """An index whose entries are in one block, which is named so many times."""
    table, handles = b"", []
    for entries in (block, [], None):
        whole = [entry(b"z%d" % number, handles[0]) for number in range(times)] if entries is None else entries
        content = b"".join(whole) + struct.pack("<2I", 0, 1) + b"\0"
        handles.append(varint(len(table)) + varint(len(content) - 1))
        table += content + masked_checksum(content)
    path.write_bytes(table + (handles[1] + handles[2]).ljust(40, b"\0") + struct.pack("<Q", MAGIC))
