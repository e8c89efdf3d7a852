"""Files of several packed streams, one after the other."""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable
from typing import BinaryIO

BUFFER_BYTES = 1 << 16


class Streams(io.RawIOBase):
    """The content of a file of bz2 or xz streams; after the first, Python's readers take damage for the end."""

    def __init__(
        self,
        file: BinaryIO,
        new_decompressor: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor],
        start: bytes,
        padding: bytes = b"",
    ) -> None:
        self._file, self._new, self._start, self._padding = file, new_decompressor, start, padding
        self._decompressor, self._packed = new_decompressor(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            if self._decompressor.eof and not self._begin_stream():
                return 0
            if self._decompressor.needs_input and not self._packed:
                self._packed = self._file.read(BUFFER_BYTES)
                if not self._packed:
                    raise EOFError("it ends within a stream")
            content = self._decompressor.decompress(self._packed, len(buffer))
            self._packed = b""
            if content:
                buffer[: len(content)] = content
                return len(content)

    def _begin_stream(self) -> bool:
        rest = self._decompressor.unused_data.lstrip(self._padding)
        while len(rest) < len(self._start) and (more := self._file.read(BUFFER_BYTES)):
            rest = (rest + more).lstrip(self._padding)
        if not rest:
            return False
        if not rest.startswith(self._start):
            raise EOFError(f"no stream begins at byte {self._file.tell() - len(rest)}")
        self._decompressor, self._packed = self._new(), rest
        return True
