"""The operating system's cache of mapped files: what was missing in it, and reading ahead."""

from __future__ import annotations

import ctypes
import mmap
import resource

import numpy as np

LIBC = ctypes.CDLL(None)
LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
# Linux counts for each thread; elsewhere only for the process.
THIS_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def major_faults() -> int:
    """Return how often this thread has waited for a page to be read from storage so far."""
    return resource.getrusage(THIS_THREAD).ru_majflt


def will_need(array: np.ndarray, start: int, count: int) -> None:
    """Let the operating system read `array[start : start + count]` of a mapped file, without waiting for it.

    Not `mmap.madvise`, which holds the GIL: the call waits where the system's queue of reads is full.
    """
    first = array.ctypes.data + start * array.itemsize
    page = first - first % mmap.PAGESIZE
    LIBC.madvise(page, first + count * array.itemsize - page, mmap.MADV_WILLNEED)
