"""The lock of a download: several checkouts may share a folder of downloads, and want the same file at once."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

RETRY_SECONDS = 2.0


@contextmanager
def lock_of(output: Path) -> Iterator[bool]:
    """Keep other processes from downloading `output`, a file or a folder, and wait for one that does.

    Yields whether another process has made it since this one asked. The lock ends with the process that holds it, also
    when that is killed. It holds between machines where the file system has locks that do; on one without locks there
    is none.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    lock, before = output.with_name(f".{output.name}.lock"), _version(output)
    descriptor = _acquire(lock, output)
    try:
        yield _version(output) not in (None, before)
    finally:
        lock.unlink(missing_ok=True)  # while it is held: whoever opened it sees that it has no name any more
        os.close(descriptor)


def _acquire(lock: Path, output: Path) -> int:
    """Return the descriptor of the locked file `lock`."""
    is_waiting = False
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # some file systems say EACCES
            os.close(descriptor)
            if not is_waiting:
                logger.info("%s: another process is downloading it; waiting until it is done", output.name)
                is_waiting = True
            time.sleep(RETRY_SECONDS)
            continue
        except OSError as error:
            if error.errno != errno.ESTALE:  # a file system without locks
                return descriptor
        if _is_at(lock, descriptor):
            return descriptor
        os.close(descriptor)  # its owner released and removed it after it was opened here


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether `path` still leads to the opened file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _version(path: Path) -> tuple[int, int] | None:
    """Return what changes when `path` is replaced; None if it does not exist."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_mtime_ns
