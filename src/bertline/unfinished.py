"""Folders with what is not finished, next to the output; of a killed process, they are found again."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def unfinished_folder(output: Path) -> Iterator[Path]:
    """Yield an empty folder next to `output`, which may be renamed, and remove it in the end.

    What killed processes left next to `output` is removed.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(output)
    unfinished, lock = _make_unfinished(output)
    try:
        yield unfinished
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        os.close(lock)


def is_in_use(folder: Path) -> bool:
    """Return whether a living process has locked an unfinished folder; a file system may have no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
    return False


def _make_unfinished(output: Path) -> tuple[Path, int]:
    """Make an empty folder next to `output`; return it with a descriptor that is locked while it is in use."""
    while True:
        unfinished = output.with_name(f".{output.name}.{secrets.token_hex(4)}.part")
        unfinished.mkdir()
        descriptor = os.open(unfinished, os.O_RDONLY)
        # A file system may have no locks. Another process may look at the folder just now, or remove it.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if unfinished.exists():
            return unfinished, descriptor
        os.close(descriptor)


def _remove_unfinished(output: Path) -> None:
    """Remove the unfinished folders next to `output` that no living process of this machine has locked."""
    name = re.compile(rf"\.{re.escape(output.name)}\.[0-9a-f]{{8}}\.part")
    for path in [path for path in output.parent.iterdir() if name.fullmatch(path.name) and path.is_dir()]:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
