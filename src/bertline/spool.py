"""Temporary storage for numbers that may not fit into memory: an unnamed file, appended to, then memory-mapped."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

# A smaller spool is read into memory: the tokens of a shard of 100 MB fit, which is a tenth faster.
HELD_BYTES = 64_000_000


class Spool:
    """A file without a name, which is always removed, even if the process is killed.

    Mapped pages count as memory of the process, and reading one byte can map 2 MB. So random reads should be
    interrupted by `release` every few dozen reads, which frees the pages; the numbers stay readable.
    """

    def __init__(self, folder: Path, dtype: Any, columns: int | None = None) -> None:
        """Create a spool of `dtype` on the disk of `folder`; with `columns`, of rows."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `read`
        self._dtype = np.dtype(dtype)
        self._columns = columns
        self.memory: mmap.mmap | bytes = b""

    def append(self, values: np.ndarray) -> None:
        """Append numbers. Raises OSError on a full disk."""
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)

    def read(self) -> np.ndarray:
        """Finish writing and return all numbers, mapped and read-only: [numbers] or [rows, columns]."""
        with self._file as file:
            size = file.tell()
            file.seek(0)
            held = size <= HELD_BYTES
            self.memory = file.read() if held else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        array = np.frombuffer(self.memory, dtype=self._dtype)
        return array if self._columns is None else array.reshape(-1, self._columns)

    def release(self) -> None:
        """Free the memory of the pages read so far."""
        if isinstance(self.memory, mmap.mmap):
            self.memory.madvise(mmap.MADV_DONTNEED)
