"""The lock of a training, which limits it to one trainer: its owner's host, process, job and heartbeat.

The modification time of its file is the heartbeat. If the owner's process on the same host has ended, the lock is taken
over at once. A process on another host, in another container, or from before a reboot cannot be looked up, nor can that
of a damaged lock: the lock is taken over after its heartbeat has stopped for a while, measured on the waiting side's
clock, so that clocks need not agree.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from filelock import FileLock

from bertline.console import BertlineError
from bertline.files import write_json
from bertline.results import paths
from bertline.training.contract import JOB
from bertline.training.stop import StopSignal, end_if_asked

if TYPE_CHECKING:  # it imports torch, and the lock is read by commands that need none
    from bertline.training.distributed.process_group import Group

logger = logging.getLogger(__name__)


def own_job() -> str | None:
    """Return scheduler and number of the job of this process, as in `slurm 4711`; None outside of jobs."""
    return os.environ.get(JOB)


HEARTBEAT_SECONDS = 10.0
# A network file system may delay a heartbeat by nearly as long.
STALE_SECONDS = 120.0
RETRY_SECONDS = 2.0


class TrainingLock:
    """The lock of one training, for the trainer's rank 0."""

    def __init__(self, directory: Path) -> None:
        """Make the checkpoints' `directory`, if it does not exist."""
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / Path(paths.LOCK).name
        self._guard = FileLock(directory / ".lock.guard")
        self._token = secrets.token_hex(8)
        self._seen: tuple[object, float] | None = None
        self._release = threading.Event()
        self._heart: threading.Thread | None = None

    def try_acquire(self) -> str | None:
        """Take the lock. Returns None on success, else a description of its owner. Call it again while waiting."""
        with self._guard:
            owner = _read(self._path)
            if owner is not None and self._lives(owner):
                return _described(owner)
            here = {"host": socket.gethostname(), "pid": os.getpid(), "process_started": _start_of(os.getpid())}
            write_json(self._path, {**here, "pids_of": _pid_namespace(), "job": own_job(), "token": self._token})
        self._heart = threading.Thread(target=self._beat, daemon=True, name="lock-heartbeat")
        self._heart.start()
        return None

    def check(self) -> None:
        """Raise BertlineError if the lock is gone, or another's because this one's heartbeat stopped for too long."""
        owner = _read(self._path)
        if not owner:
            raise BertlineError(
                f"{self._path} names no trainer any more: it was deleted or damaged, or another trainer took it over "
                "and is done; run the same command again"
            )
        if owner.get("token") != self._token:
            raise BertlineError(
                f"{self._path} belongs to another trainer, because this one's heartbeat stopped for more than "
                f"{STALE_SECONDS:.0f} s; let the other one finish"
            )

    def release(self) -> None:
        """Release the lock, if it is held."""
        self._release.set()
        if self._heart is None:
            return
        self._heart.join()
        with self._guard:
            owner = _read(self._path)
            if owner is not None and owner.get("token") == self._token:
                self._path.unlink()

    def _lives(self, owner: dict[str, Any]) -> bool:
        here = socket.gethostname(), _pid_namespace(), _boot_of(_start_of(os.getpid()))
        started = owner.get("process_started")
        # Two machines may have the same name: then only the boot differs.
        if (owner.get("host"), owner.get("pids_of"), _boot_of(started)) == here:
            with suppress(PermissionError):  # /proc hides the processes of others: the heartbeat decides
                return _start_of(owner["pid"]) == started
        sign = (owner.get("token"), self._path.stat().st_mtime_ns)
        now = time.monotonic()
        if self._seen is None or self._seen[0] != sign:
            self._seen = (sign, now)
        return now - self._seen[1] < STALE_SECONDS

    def _beat(self) -> None:
        while not self._release.wait(HEARTBEAT_SECONDS):
            # An error of a file server passes; without a heartbeat another trainer would take over.
            with suppress(OSError):
                owner = _read(self._path)
                if owner is None or owner.get("token") != self._token:
                    return
                os.utime(self._path)


def _start_of(pid: int) -> str | None:
    """Return when a process was started, which with its number identifies it; None if there is no such process.

    Linux counts from the boot. The start time of psutil counts from 1970, and changes when the clock is set. Raises
    PermissionError for a process of another user that /proc hides.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    except (FileNotFoundError, ProcessLookupError):
        pass
    try:
        os.kill(pid, 0)
        return str(psutil.Process(pid).create_time())
    except (ProcessLookupError, OverflowError, psutil.NoSuchProcess):
        return None


def _boot_of(start: object) -> str:
    """Return the boot in what `_start_of` returned; empty without Linux's /proc."""
    return str(start).rpartition(" ")[0]


def _pid_namespace() -> str | None:
    """Return what process numbers belong to: containers on one host have their own. None without Linux's /proc."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def acquire(lock: TrainingLock | None, group: Group, *, wait: bool, stop_signal: StopSignal | None = None) -> bool:
    """Wait until rank 0 has the lock; `lock` is None on the others. Returns whether another trainer had it.

    All ranks retry together, so that no collective times out. Raises BertlineError instead of waiting unless `wait`,
    and SystemExit with status 75 when any rank's `stop_signal` is set while they wait.
    """
    waited = False
    while (owner := group.broadcast(lock.try_acquire() if lock else None)) is not None:
        if not wait:
            raise BertlineError(f"{owner} is training this; let it finish or stop it; after a reboot, wait two minutes")
        if not waited:
            logger.info("%s is training this; waiting until it is done", owner)
            waited = True
        end_if_asked(group, stop_signal)
        time.sleep(RETRY_SECONDS)
    return waited


def owner_of(path: Path) -> str:
    """Return a description of the owner of the lock in the file `path`; empty if its heartbeat has stopped.

    For people, not for a decision: unlike the lock, it compares this machine's clock with that of the file server.
    """
    owner = _read(path)
    try:
        is_alive = time.time() - path.stat().st_mtime <= STALE_SECONDS
    except FileNotFoundError:  # released meanwhile
        return ""
    return _described(owner) if owner is not None and is_alive else ""


def _described(owner: dict[str, Any]) -> str:
    if not owner:
        return "an unknown process"
    job = f", job {owner['job']}" if owner.get("job") else ""
    return f"process {owner['pid']} on {owner['host']}{job}"


def _read(path: Path) -> dict[str, Any] | None:
    """Return the owner that a lock states; {} if it is damaged, None if there is no lock."""
    try:
        owner = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return {}
    return owner if isinstance(owner, dict) and {"host", "pid", "process_started"} <= owner.keys() else {}
