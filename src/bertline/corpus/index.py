"""The file format of indexes: the position of each document of a part in its sentences.

An index is a `.npy` of INDEX_TYPE with a checksum after the array, where numpy reads nothing.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertline.arrays import read_array
from bertline.console import BertlineError
from bertline.files import open_existing, write_atomically

Index = npt.NDArray[np.void]

# One row per document: its byte range in the uncompressed text, with the empty line that ends it; see `hash_of_id`.
INDEX_TYPE = np.dtype([("offset", "<u8"), ("length", "<u8"), ("id_hash", "<u8"), ("sentences", "<u4")])
_CHECKSUM = b"\ncrc32: "  # before its 4 bytes


def index_of(part: str) -> str:
    """Return the path of a part's index."""
    return part.removesuffix(".txt.zst") + ".index.npy"


def write_index(path: Path | str, rows: Index | Sequence[tuple[int, int, int, int]]) -> None:
    """Write an index atomically. The memory does not grow with the number of rows, which may be mapped."""
    array = np.asarray(rows, dtype=INDEX_TYPE)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    checksum = 0
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        for piece in (header.getvalue(), array.data):
            file.write(piece)
            checksum = zlib.crc32(piece, checksum)
        file.write(_CHECKSUM + checksum.to_bytes(4, "little"))


def read_index(path: Path | str) -> Index:
    """Read and check an index, [documents] of INDEX_TYPE. Raises BertlineError."""
    with open_existing(path) as file:
        content = file.read()
    array, mark, checksum = content[:-12], content[-12:-4], content[-4:]
    if mark != _CHECKSUM or zlib.crc32(array) != int.from_bytes(checksum, "little"):
        raise BertlineError(f"{path} is damaged or not an index (its checksum); delete it and make it again")
    index: Index = read_array(path, "an index", INDEX_TYPE, content=array)
    ends = np.cumsum(index["length"])
    if not np.array_equal(index["offset"], ends - index["length"]) or not index["sentences"].all():
        raise BertlineError(f"{path}: its documents are empty or do not follow each other; delete it and make it again")
    return index
