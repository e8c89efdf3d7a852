"""Choice of a fine-tuning's device: a GPU that no other fine-tuning of this user uses, or the CPU.

On a machine with GPUs, Snakemake starts as many fine-tunings as there are cores: too many for one GPU's memory.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)


def claim_device() -> tuple[torch.device, FileLock | None]:
    """Return a device and the lock that reserves it until the lock is released or this process ends."""
    if not torch.cuda.is_available():
        return torch.device("cpu"), None
    names = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    index, lock = claim(names, Path(tempfile.gettempdir()))
    torch.cuda.set_device(index)
    return torch.device("cuda", index), lock


def claim(names: Sequence[str], folder: Path) -> tuple[int, FileLock]:
    """Claim a free one of `names` in `folder`, waiting if there is none; return its index and the lock."""
    locks = [FileLock(folder / f"bertline-{os.getuid()}-{name}.lock") for name in names]
    for index, lock in enumerate(locks):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        return index, lock
    # Spread the waiting processes over the devices.
    index = os.getpid() % len(locks)
    logger.info("other fine-tunings are on every GPU; waiting for number %d", index)
    locks[index].acquire()
    return index, locks[index]
