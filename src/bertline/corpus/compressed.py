"""Text files compressed with zstd in indexed frames, so that a range can be read without the data before it.

The format is zstd's "seekable format": ordinary frames and, at the end, a table of their sizes. `zstd -d` reads it.
Each frame has its content's size in its header and ends with a checksum, so that a flipped bit anywhere is found: a
frame is decompressed and checked as a whole before any byte of it is returned, and the table is compared with the
headers before a range is read. Files of other writers may have neither sizes nor checksums.
https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from pyzstd import CParameter, ZstdDecompressor, ZstdError, compress, get_frame_info

from bertline.console import BertlineError
from bertline.files import open_existing, write_atomically

# Larger frames save little (0.7 % at 4 MiB on English Wikipedia) and make random access slower.
FRAME_BYTES = 1 << 20
OPTIONS: Mapping[int, int] = {CParameter.compressionLevel: 3, CParameter.checksumFlag: 1}

_TABLE_START = struct.Struct("<II")  # magic number, bytes that follow
_TABLE_END = struct.Struct("<IBI")  # number of frames, flags, magic number
_START_NUMBER, _END_NUMBER = 0x184D2A5E, 0x8F92EAB1
_ENTRY_TYPE = np.dtype([("compressed", "<u4"), ("content", "<u4")])
_USED_FLAGS = 0b11111100
_MAX_FRAME_HEADER_BYTES = 18


@contextmanager
def write_compressed(path: Path | str) -> Iterator[Writer]:
    """Yield a binary file to write to; `path` is created, complete, when the block ends without an error."""
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        writer = Writer(file)
        yield writer
        writer.finish()


class Writer:
    """Writing of a compressed file, in frames of FRAME_BYTES."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._pending = bytearray()
        self._entries: list[tuple[int, int]] = []

    def write(self, content: bytes) -> int:
        """Append to the file; return the number of bytes, as files do."""
        self._pending += content
        while len(self._pending) >= FRAME_BYTES:
            self._write_frame(self._pending[:FRAME_BYTES])
            del self._pending[:FRAME_BYTES]
        return len(content)

    def _write_frame(self, content: bytearray) -> None:
        compressed = compress(content, OPTIONS)
        self._file.write(compressed)
        self._entries.append((len(compressed), len(content)))

    def finish(self) -> None:
        """Write the last frame and the table."""
        if self._pending:
            self._write_frame(self._pending)
        entries = np.array(self._entries, dtype=_ENTRY_TYPE).tobytes()
        self._file.write(_TABLE_START.pack(_START_NUMBER, len(entries) + _TABLE_END.size))
        self._file.write(entries + _TABLE_END.pack(len(self._entries), 0, _END_NUMBER))


@contextmanager
def read_compressed(path: Path | str) -> Iterator[BinaryIO]:
    """Yield a binary file to read lines or ranges from. Raises BertlineError if it is missing or damaged."""
    with open_existing(path) as file, io.BufferedReader(cast(io.RawIOBase, _Reader(file))) as reader:
        yield reader


class _Reader(io.RawIOBase):
    """The content of a compressed file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._table_is_checked = False
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - _TABLE_END.size))
        end = file.read()
        if len(end) < _TABLE_END.size:
            raise self._damaged("it is cut off")
        number, flags, magic = _TABLE_END.unpack(end)
        table_bytes = _TABLE_START.size + number * _ENTRY_TYPE.itemsize + _TABLE_END.size
        if magic != _END_NUMBER or flags & _USED_FLAGS or table_bytes > size:
            raise self._damaged("it does not end with a table of frames")
        file.seek(size - table_bytes)
        table = file.read(table_bytes)
        entries = np.frombuffer(table, _ENTRY_TYPE, number, _TABLE_START.size)
        # Where each frame begins, and where the last one ends: in the file, and in the content.
        self._starts, self._content_starts = (
            np.concatenate([[0], np.cumsum(entries[name], dtype=np.int64)]) for name in _ENTRY_TYPE.names or ()
        )
        if (
            _TABLE_START.unpack_from(table) != (_START_NUMBER, table_bytes - _TABLE_START.size)
            or self._starts[-1] != size - table_bytes
        ):
            raise self._damaged("its table of frames does not fit it")
        self._position = 0
        self._frame, self._content = -1, b""  # the frame decompressed last

    def _damaged(self, reason: str) -> BertlineError:
        return BertlineError(f"{self._file.name} is damaged ({reason}); delete it and make it again")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_CUR:
            self._check_table()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: int(self._content_starts[-1])}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # of a BufferedReader
        if self._position >= self._content_starts[-1]:
            return 0
        frame = int(np.searchsorted(self._content_starts, self._position, side="right")) - 1
        if frame != self._frame:
            self._frame, self._content = frame, self._decompress(frame)
        start = self._position - int(self._content_starts[frame])
        found = self._content[start : start + len(buffer)]
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)

    def _decompress(self, frame: int) -> bytes:
        size = int(self._content_starts[frame + 1] - self._content_starts[frame])
        decompressor = ZstdDecompressor()
        try:
            content = decompressor.decompress(self._read(frame), size + 1)
        except ZstdError as error:
            raise self._damaged(f"frame {frame}: {error}") from None
        if not decompressor.eof or decompressor.unused_data or len(content) != size:
            raise self._damaged(f"frame {frame} does not have the size that the table of frames says")
        return content

    def _read(self, frame: int, at_most: int | None = None) -> bytes:
        start, end = self._starts[frame : frame + 2].tolist()
        self._file.seek(start)
        return self._file.read(end - start if at_most is None else min(at_most, end - start))

    def _check_table(self) -> None:
        """Compare the content sizes in the table with those in the frames' headers."""
        if self._table_is_checked:
            return
        for frame, size in enumerate(np.diff(self._content_starts).tolist()):
            try:
                stated = get_frame_info(self._read(frame, _MAX_FRAME_HEADER_BYTES)).decompressed_size
            except ZstdError as error:
                raise self._damaged(f"frame {frame}: {error}") from None
            if stated not in (None, size):
                raise self._damaged(f"frame {frame} does not have the size that the table of frames says")
        self._table_is_checked = True
