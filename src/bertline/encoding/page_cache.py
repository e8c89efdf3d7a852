"""The operating system's cache of mapped files: detection of missing pages, and reading ahead."""

from __future__ import annotations

import ctypes
import resource

import numpy as np

LIBC = ctypes.CDLL(None)
LIBC.memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
# Linux counts for each thread; elsewhere only for the process.
THIS_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def major_faults() -> int:
    """Return how often this thread has waited for a page to be read from storage so far."""
    return resource.getrusage(THIS_THREAD).ru_majflt


def wait_for_pages(array: np.ndarray, start: int, count: int) -> None:
    """Wait until `array[start : start + count]` of a mapped file is in memory, without the GIL.

    madvise(MADV_WILLNEED) would not wait, but file systems drop its requests: of 256 samples FUSE read 50.
    """
    size = count * array.itemsize
    LIBC.memcpy(ctypes.create_string_buffer(size), array.ctypes.data + start * array.itemsize, size)
