"""Reservation of GPUs among the trainings of this user on a node; trainings of one process may share a GPU.

On a machine with GPUs, Snakemake starts as many fine-tunings as there are cores: too many for one GPU's memory. A GPU
has MAX_SHARING locks. A fine-tuning of one process takes one of the first few; everything else takes all of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import stat
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from bertline.console import BertlineError
from bertline.training.allocator import keep_freed_memory
from bertline.training.contract import WAITS_FOR_GPU
from bertline.training.distributed.process_group import Group
from bertline.training.options import MAX_SHARING
from bertline.training.stop import StopSignal, end_if_asked

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0


def claim_device(sharing: int = 1, stop_signal: StopSignal | None = None) -> tuple[torch.device, FileLock | None]:
    """Return a GPU that fewer than `sharing` others use, or the CPU, and the lock that reserves one of its slots.

    On a CPU this process keeps freed memory from then on. Raises SystemExit with status 75 when `stop_signal` is set
    while it waits.
    """
    if not torch.cuda.is_available():
        keep_freed_memory()
        return torch.device("cpu"), None
    names = [_name(index) for index in range(torch.cuda.device_count())]
    index, lock = claim(names, private_folder(Path(tempfile.gettempdir())), sharing, stop_signal)
    torch.cuda.set_device(index)
    return torch.device("cuda", index), lock


def claim(
    names: Sequence[str], folder: Path, sharing: int, stop_signal: StopSignal | None = None
) -> tuple[int, FileLock]:
    """Claim a slot of one of the GPUs `names`, the emptiest first, waiting if there is none.

    Returns the GPU's index and the lock, which holds until it is released or this process ends.
    """
    slots = [(index, _lock(folder, name, slot)) for slot in range(sharing) for index, name in enumerate(names)]
    for index, lock in slots:
        if _try(lock):
            return index, lock
    # Spread the waiting processes over the slots.
    index, lock = slots[os.getpid() % len(slots)]
    logger.info("%s every GPU; waiting for number %d", WAITS_FOR_GPU, index)
    while not _try(lock):
        end_if_asked(Group(0, 1, torch.device("cpu")), stop_signal)
        time.sleep(RETRY_SECONDS)
    return index, lock


def claim_whole_gpu(group: Group, stop_signal: StopSignal | None = None) -> list[FileLock]:
    """Reserve this rank's GPU until the locks are released, waiting until nothing else uses it; [] without a GPU.

    All ranks retry together, so that no collective times out. Raises SystemExit with status 75 when any rank's
    `stop_signal` is set while they wait.
    """
    if group.device.type != "cuda":
        return []
    return claim_whole(_name(group.device.index or 0), private_folder(Path(tempfile.gettempdir())), group, stop_signal)


def claim_whole(name: str, folder: Path, group: Group, stop_signal: StopSignal | None = None) -> list[FileLock]:
    """Claim all slots of the GPU `name` of this rank."""
    locks = [_lock(folder, name, slot) for slot in range(MAX_SHARING)]
    waited = False
    while group.all_reduce_max(int(not all(_try(lock) for lock in locks))):
        # Two trainings that each hold a GPU of the other's would wait forever.
        for lock in locks:
            lock.release(force=True)
        if not waited:
            logger.info("%s the GPU; waiting until they are done", WAITS_FOR_GPU)
            waited = True
        end_if_asked(group, stop_signal)
        time.sleep(RETRY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311
    return locks


def private_folder(shared: Path) -> Path:
    """Return this user's folder in `shared`, the same in all of the user's processes on a node; make it if needed.

    Raises BertlineError if another user made it, or can write to it: locks there could be held up or be links.
    """
    folder = shared / f"bertline-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise BertlineError(
            f"{folder}, where trainings reserve GPUs, is not a folder that only this user can write to; remove it, or "
            "set TMPDIR to another folder"
        )
    folder.chmod(0o700)  # who can open a file for reading can lock it
    return folder


def _name(index: int) -> str:
    return str(torch.cuda.get_device_properties(index).uuid)


def _lock(folder: Path, name: str, slot: int) -> FileLock:
    return FileLock(folder / f"{name}-{slot}.lock")


def _try(lock: FileLock) -> bool:
    with contextlib.suppress(Timeout):
        lock.acquire(timeout=0)
    return lock.is_locked
