"""Temporary storage for numbers that may not fit into memory, in unnamed files.

A `Spool` is appended to, then memory-mapped; a `BucketSpool` is appended to in any order, then read bucket by bucket.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

# A smaller spool is read into memory: the tokens of a shard of 100 MB fit, which is a tenth faster.
HELD_BYTES = 64_000_000
# Rows of a BucketSpool that are sorted and written together: 100 buckets are then read in pieces of 40 KB.
BLOCK_BYTES = 1 << 22


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Raise an OSError of an unnamed file again with the name of its folder, which `one_line_errors` prints."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error


class Spool:
    """A file without a name, which is always removed, even if the process is killed.

    Mapped pages count as memory of the process, and reading one byte can map 2 MB. So random reads should be
    interrupted by `release` every few dozen reads, which frees the pages; the numbers stay readable.
    """

    def __init__(self, folder: Path, dtype: Any) -> None:
        """Create a spool of `dtype`, which may be that of a row, on the disk of `folder`."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `read`
        self._folder = folder
        self._dtype = np.dtype(dtype)
        self.memory: mmap.mmap | bytes = b""

    def append(self, values: np.ndarray) -> None:
        """Append numbers. Raises OSError with the name of the folder on a full disk, as `read` does."""
        with _named(self._folder):
            self._file.write(np.ascontiguousarray(values, dtype=self._dtype.base).data)

    def read(self) -> np.ndarray:
        """Finish writing and return all numbers, mapped and read-only: [numbers] or [rows, columns]."""
        with _named(self._folder), self._file as file:
            size = file.tell()
            file.seek(0)
            held = size <= HELD_BYTES
            self.memory = file.read() if held else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(self.memory, dtype=self._dtype)

    def release(self) -> None:
        """Free the memory of the pages read so far."""
        if isinstance(self.memory, mmap.mmap):
            self.memory.madvise(mmap.MADV_DONTNEED)


class BucketSpool:
    """Rows in buckets, in one unnamed file. The rows of a bucket keep the order in which they were appended.

    The memory is about three times BLOCK_BYTES while a block is written, and 8 bytes for each bucket and block.
    """

    def __init__(self, folder: Path, dtype: Any, buckets: int) -> None:
        """Create a spool of `dtype` on the disk of `folder`, with at most 65,536 buckets."""
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed when it is no longer needed
        self._folder = folder
        self.dtype = np.dtype(dtype)
        self._buckets = buckets
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []
        self._pending_rows = self._written_rows = 0
        self._borders: list[np.ndarray] = []  # of the buckets in each block, in rows of the file

    def append(self, rows: np.ndarray, buckets: np.ndarray) -> None:
        """Append rows, each to its bucket. Raises OSError with the folder's name on a full disk, as `read` does."""
        self._pending.append((rows, buckets.astype(np.uint16)))
        self._pending_rows += len(rows)
        if self._pending_rows * self.dtype.itemsize >= BLOCK_BYTES:
            self._write_block()

    def _write_block(self) -> None:
        if not self._pending_rows:
            return
        rows, buckets = (np.concatenate(arrays) for arrays in zip(*self._pending, strict=True))
        counts = np.bincount(buckets, minlength=self._buckets)
        self._borders.append(self._written_rows + np.concatenate([[0], np.cumsum(counts)]))
        with _named(self._folder):
            self._file.write(rows[np.argsort(buckets, kind="stable")].data)
        self._written_rows += len(rows)
        self._pending, self._pending_rows = [], 0

    def read(self, bucket: int) -> Iterator[np.ndarray]:
        """Yield the rows of a bucket, in arrays of at most a block. Meanwhile rows may be appended to other buckets."""
        self._write_block()
        with _named(self._folder):
            self._file.flush()
        for borders in self._borders:
            first, last = borders[bucket : bucket + 2].tolist()
            if first < last:
                size = self.dtype.itemsize
                with _named(self._folder):
                    content = os.pread(self._file.fileno(), (last - first) * size, first * size)
                yield np.frombuffer(content, dtype=self.dtype)
