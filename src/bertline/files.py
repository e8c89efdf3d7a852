"""JSON files, atomic writing of files, and their digests."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from bertline.console import DISK_FAILS, DISK_IS_FULL, BertlineError, progress_of_bytes
from bertline.unfinished import unfinished_folder

Json = dict[str, Any]

# The folder with config/, src/ and workflow/, which need not be the one where results are.
CHECKOUT = Path(__file__).parents[2]
SCHEMA = CHECKOUT / "config/config.schema.yaml"
DIGEST_THREADS = 8  # hashlib runs without Python's lock; network disks answer several readers faster than one
DIGEST_CHUNK = 1 << 20
BYTES_WORTH_A_BAR, BYTES_WORTH_A_HINT = 10**9, 10**11
SECONDS_BETWEEN_SAVES = 30.0
SNAKEMAKES = ".snakemake_timestamp"  # which it puts into the folders that are outputs of rules

logger = logging.getLogger(__name__)

HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")  # of surrogates, perhaps with its other half


class Recipe(dict[str, Any]):
    """A JSON object with everything that a job needs; on a command line, the path of its file."""

    def __missing__(self, key: str) -> Any:
        raise BertlineError(f"the recipe has no '{key}'; give one of results/recipes that is made for this command")


def fsync_directory(directory: Path) -> None:
    """Make a rename inside `directory` survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_atomically(path: Path | str, *, durable: bool = True, mode: int = 0o666) -> Iterator[Path]:
    """Yield an empty file next to `path`; on success fsync it and rename it to `path`, on failure remove it.

    Without `durable` nothing is synced: writing many files is fast, but a power failure may leave one empty. The umask
    takes its bits from `mode`. An OSError of a full or failing disk, and of a folder of this name, names `path`.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    # Not tempfile: its files are private, and a process with threads cannot read its umask to make them public.
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    permissions = stat.S_IMODE(temporary.stat().st_mode)
    try:
        yield temporary
        if durable:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.chmod(permissions)  # safetensors replaces the file by a private one
        temporary.replace(path)
        if durable:
            fsync_directory(path.parent)
    except OSError as error:
        # Most errors of a full disk have no name or the temporary one.
        if error.errno in DISK_IS_FULL or (error.errno in DISK_FAILS and not error.filename):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def write_folder_atomically(
    folder: Path, *, replaces: Sequence[str] | None = None, sources: Sequence[Path] = ()
) -> Iterator[Path]:
    """Yield an empty folder next to `folder`; on success rename it to `folder`, which it replaces, else remove it.

    `replaces` and `sources` are those of `check_replaceable`. What killed processes left next to `folder` is removed.
    """
    check_replaceable(folder, replaces, sources)
    with unfinished_folder(folder) as unfinished:
        yield unfinished
        check_replaceable(folder, replaces, sources)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.replace(folder)
        fsync_directory(folder.parent)


def check_replaceable(folder: Path, replaces: Sequence[str] | None = None, sources: Sequence[Path] = ()) -> None:
    """Raise BertlineError unless a command may write `folder`, of which nothing else must get lost.

    Args:
        folder: the output, which need not exist.
        replaces: names, or patterns, of all files that an existing folder may contain; None for any.
        sources: files and folders that the command reads, which cannot be `folder` or in it.
    """
    if folder.name in ("", ".."):
        raise BertlineError(f"{folder}: the output has no name of its own; name a folder to be made")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        what = "a link" if folder.is_symlink() else "a file"
        raise BertlineError(f"{folder} is {what}, and would be replaced by a folder; name another output")
    for source in sources:
        if source.resolve() == folder.resolve():
            raise BertlineError(f"{folder}: the output is the source; name another folder")
        if source.resolve().is_relative_to(folder.resolve()):
            raise BertlineError(f"{folder}: the output contains the source {source}; name another folder")
    if replaces is None or not folder.exists():
        return
    for path in sorted(folder.iterdir()):
        known = any(fnmatchcase(path.name, name) for name in (*replaces, SNAKEMAKES))
        if not known or (path.is_dir() and not path.is_symlink()):
            raise BertlineError(
                f"{folder} contains {path.name}, which would be deleted; name another output, or move it away"
            )


def write_link(link: Path, target: Path) -> None:
    """Make `link` a relative symbolic link to `target`, replacing another link but never a real file."""
    relative = Path(os.path.relpath(target, link.parent))
    if link.is_symlink() and link.readlink() == relative:
        return
    if link.exists() and not link.is_symlink():
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.{secrets.token_hex(4)}.part")  # other processes may write the same link
    try:
        temporary.symlink_to(relative)
        temporary.replace(link)
    except OSError as error:  # it names the target, or the temporary link
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(link)) from error


def remove(path: Path) -> None:
    """Remove a file, a folder with all that is in it, or a link without what it leads to, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path | str, text: str, *, mode: int = 0o666) -> None:
    """Write UTF-8 `text` atomically."""
    with write_atomically(path, mode=mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` atomically as readable JSON with sorted keys: the same value gives the same bytes."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def open_existing(path: Path | str) -> BinaryIO:
    """Open a file to read its bytes. Raises BertlineError if it is missing."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; check the path, or make it first") from None


def read_text(path: Path | str) -> str:
    """Read a UTF-8 file. Raises BertlineError if it is missing, not readable or not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; check the path, or make it first") from None
    except OSError as error:
        raise BertlineError(f"{path} cannot be read ({error.strerror}); give another file, or allow it") from None
    except UnicodeDecodeError as error:
        raise BertlineError(f"{path}: byte {error.start} is not UTF-8; give another file, or make it again") from None


def parse_json(text: str) -> Any:
    """Parse JSON. Raises ValueError also for a repeated key, half of a surrogate pair, too many levels or digits."""
    try:
        value = json.loads(text, object_pairs_hook=_object_of)
    except RecursionError:
        raise ValueError("too many levels") from None
    if HALF_OF_A_PAIR.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _object_of(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key '{next(key for key in keys if keys.count(key) > 1)}' appears twice")
    return found


def read_json(path: Path | str) -> Any:
    """Read a JSON file. Raises BertlineError if it is missing, not readable, or refused by `parse_json`."""
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise BertlineError(f"{path} is not JSON ({error}); give another file, or make this one again") from None


@contextmanager
def one_line_damage(
    path: Path | str, remedy: str = "restore it from a copy, or delete it so that the graph makes the result again"
) -> Iterator[None]:
    """Turn the errors of unexpected content of the file `path` into one line that names it, and ends with `remedy`."""
    try:
        yield
    except KeyError as error:
        raise BertlineError(f"{path} lacks the key {error}; {remedy}") from error
    except OSError as error:
        raise BertlineError(f"{error.filename or path} cannot be read ({error.strerror}); allow it") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise BertlineError(f"{path} is damaged ({error}); {remedy}".replace("\n", " ")) from error


def read_object(path: Path | str, *keys: str) -> Json:
    """Read a JSON object that has at least these keys. Raises BertlineError."""
    content = read_json(path)
    with one_line_damage(path):
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        for key in keys:
            content[key]
    return content


def sha256_of_file(path: Path | str) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file, which is read again only if its size or its time of modification has changed."""
    status = path.stat()
    return _digest(path.absolute(), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=10_000)
def _digest(path: Path, size: int, modified: int) -> str:
    return sha256_of_file(path)


def check_is_utf8(path: str) -> None:
    """Raise BertlineError for a file whose name is not UTF-8: no JSON, YAML or command line can hold it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise BertlineError(f"{path}: its name is not UTF-8; rename it, as the program convmv does") from None


def digest_of_files(paths: Iterable[Path], remembered: Path) -> dict[str, str]:
    """Return the SHA-256 of each file, keyed by its path as given.

    Digests are cached in the JSON file `remembered` by path, size and modification time, because the graph needs them
    at every start and a folder of books takes seconds to read. Files are read by several threads. More than a gigabyte
    shows its progress, and what is known is saved every half minute and when it is interrupted.
    """
    cache = _remembered_digests(remembered)
    states = {path: path.stat() for path in paths}
    states_known = {path: [state.st_size, state.st_mtime_ns] for path, state in states.items()}
    unknown = [path for path, state in states_known.items() if cache.get(str(path), [])[:2] != state]
    if unknown:
        saved = time.monotonic()
        try:
            with closing(_read_digests(unknown, sum(states[path].st_size for path in unknown))) as found:
                for path, digest in found:
                    cache[str(path)] = [*states_known[path], digest]
                    if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
                        _remember(remembered, cache)
                        saved = time.monotonic()
        finally:
            _remember(remembered, cache)
    return {str(path): cache[str(path)][2] for path in states}


def changed_files(digests: Mapping[str, str], remembered: Path) -> Iterator[str]:
    """Yield the files whose SHA-256 is not the one in `digests`, by path; what is missing or no file is none of them.

    The cache of `digest_of_files` is asked first, unless it is itself larger than these files, as that of a million is.
    """
    present = {name: path for name in digests if (path := Path(name)).is_file()}
    size = sum(path.stat().st_size for path in present.values())
    cache = _remembered_digests(remembered) if remembered.exists() and size > remembered.stat().st_size else {}
    for name, path in present.items():
        with suppress(FileNotFoundError):
            state = path.stat()
            *known_state, known = cache.get(str(path), [""])
            if known_state != [state.st_size, state.st_mtime_ns]:
                known = digest_of_file(path)
            if known != digests[name]:
                yield name


def _remember(path: Path, cache: Json) -> None:
    """Save the cache; ignore a folder that cannot be written.

    Whoever reads another user's results computes the digests again.
    """
    try:
        write_json(path, cache)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise


def _remembered_digests(path: Path) -> dict[str, list[Any]]:
    """Return the entries of the cache that have its form: size, modification time and digest.

    None if it cannot be read, as of another user.
    """
    try:
        cache = json.loads(path.read_text())
    except (FileNotFoundError, PermissionError, ValueError, RecursionError):
        return {}
    entries = cache.items() if isinstance(cache, dict) else ()
    return {
        name: entry for name, entry in entries if isinstance(entry, list) and [*map(type, entry)] == [int, int, str]
    }


def _read_digests(paths: list[Path], size: int) -> Generator[tuple[Path, str], None, None]:
    """Yield each file with its SHA-256 as soon as it is read."""
    if size > BYTES_WORTH_A_HINT:
        logger.warning(
            "reading %.0f GB of inputs once, for their checksums; `make digests` does it in a job", size / 1e9
        )
    stop = threading.Event()
    with (
        progress_of_bytes(description="checksums of inputs", total=size, shown=size > BYTES_WORTH_A_BAR) as bar,
        ThreadPoolExecutor(DIGEST_THREADS) as pool,
    ):

        def read(path: Path) -> str:
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while not stop.is_set() and (content := file.read(DIGEST_CHUNK)):
                    digest.update(content)
                    bar.update(len(content))
            return digest.hexdigest()

        try:
            waiting = {pool.submit(read, path): path for path in paths}
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
