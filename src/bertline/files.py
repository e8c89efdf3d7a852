"""JSON files, atomic writing of files, and their digests."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertline.console import BertlineError

Json = dict[str, Any]


class Recipe(dict[str, Any]):
    """A JSON object with everything that a job needs to know; on a command line, the path of its file."""


def fsync_directory(directory: Path) -> None:
    """Make a rename inside `directory` survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_atomically(path: Path | str, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success fsync it and rename it to `path`, on failure remove it.

    Without `durable` nothing is synced: writing many files is fast, but a power failure may leave one empty.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        if durable:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        if durable:
            fsync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def write_folder_atomically(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside `folder`; on success rename it to `folder`, which it replaces, else remove it."""
    unfinished = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.replace(folder)
        fsync_directory(folder.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_link(link: Path, target: Path) -> None:
    """Make `link` a relative symbolic link to `target`, replacing another link but never a real file."""
    relative = Path(os.path.relpath(target, link.parent))
    if link.is_symlink() and link.readlink() == relative:
        return
    if link.exists() and not link.is_symlink():
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.link")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(relative)
    temporary.replace(link)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 `text` atomically."""
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` atomically as readable JSON with sorted keys: the same value gives the same bytes."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def read_text(path: Path | str) -> str:
    """Read a UTF-8 file. Raises BertlineError if it is missing, not readable or not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; check the path, or make it first") from None
    except (IsADirectoryError, PermissionError) as error:
        raise BertlineError(f"{path} cannot be read ({error.strerror}); give another file, or allow it") from None
    except UnicodeDecodeError as error:
        raise BertlineError(f"{path}: byte {error.start} is not UTF-8; give another file, or make it again") from None


def read_json(path: Path | str) -> Any:
    """Read a JSON file. Raises BertlineError if it is missing, not readable or not JSON."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise BertlineError(f"{path} is not JSON ({error}); give another file, or make this one again") from None


def sha256_of_file(path: Path | str) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_files(paths: Iterable[Path], remembered: Path) -> dict[str, str]:
    """Return the SHA-256 of each file, keyed by its path as given.

    Digests are cached in the JSON file `remembered` by path, size and modification time, because the graph needs them
    at every start and a folder of books takes seconds to read.
    """
    try:
        cache = json.loads(remembered.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        cache = {}
    digests, changed = {}, False
    for path in paths:
        status = path.stat()
        known = cache.get(str(path))
        if known is None or known[:2] != [status.st_size, status.st_mtime_ns]:
            known = [status.st_size, status.st_mtime_ns, sha256_of_file(path)]
            cache[str(path)] = known
            changed = True
        digests[str(path)] = known[2]
    if changed:
        write_json(remembered, cache)
    return digests
