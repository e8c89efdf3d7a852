"""Keep freed memory in the process, as PyTorch's allocator for GPUs does.

By default glibc returns large blocks to the system as soon as they are freed. A training step frees and allocates the
same tensors in every micro-batch, and the system fills each of their pages with zeros again.
"""

from __future__ import annotations

import ctypes
import os

# See mallopt(3).
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
LARGEST = (1 << 31) - 1  # bytes; mallopt takes an int
LARGEST_BEFORE_2_35 = 32 << 20  # of the second threshold, in older versions of glibc


def keep_freed_memory() -> None:
    """Keep freed blocks of less than 2 GB for the next allocations, unless the environment says otherwise.

    Other C libraries have no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name in os.environ for name in USERS_OWN):
        mallopt(M_TRIM_THRESHOLD, LARGEST)
        if not mallopt(M_MMAP_THRESHOLD, LARGEST):
            mallopt(M_MMAP_THRESHOLD, LARGEST_BEFORE_2_35)
