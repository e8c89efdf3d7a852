"""Where a fine-tuning computes: on a GPU that no other fine-tuning of this user uses, or on the CPU.

On a machine with GPUs, Snakemake starts as many fine-tunings as there are cores; one GPU's memory would not hold them.
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
    """The device, and the lock that keeps others off it until this process ends or lets go of it."""
    if not torch.cuda.is_available():
        return torch.device("cpu"), None
    names = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    index, lock = claim(names, Path(tempfile.gettempdir()))
    torch.cuda.set_device(index)
    return torch.device("cuda", index), lock


def claim(names: Sequence[str], folder: Path) -> tuple[int, FileLock]:
    """The index of a name that nobody has claimed in `folder`; waits for one while there is none."""
    locks = [FileLock(folder / f"bertline-{os.getuid()}-{name}.lock") for name in names]
    for index, lock in enumerate(locks):
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        return index, lock
    # Any will do, but not the same for all that wait.
    index = os.getpid() % len(locks)
    logger.info("other fine-tunings are on every GPU; waiting for number %d", index)
    locks[index].acquire()
    return index, locks[index]
