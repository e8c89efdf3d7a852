"""The paths of a configuration: the files that a pattern matches, one spelling of each, the links of its runs."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import Json
from bertline.results import paths

# Snakemake's wildcards, and its variables (pathvars), for which it puts in another path or fails.
_OF_SNAKEMAKE = re.compile(r"(?P<brace>[{}])|<[a-z][a-z0-9_]*>")
NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # a link to itself leads nowhere


def check_for_snakemake(path: str) -> None:
    """Raise BertlineError for a path that Snakemake would not take as it is."""
    if found := _OF_SNAKEMAKE.search(path):
        what = "braces for wildcards" if found["brace"] else f"{found[0]} for a variable"
        raise BertlineError(f"{path}: Snakemake takes {what}; rename it")


def check_can_be_named(path: str) -> None:
    """Raise BertlineError for a path that a configuration cannot name."""
    check_for_snakemake(path)
    if any(character < " " for character in path):
        raise BertlineError(f"{path}: a configuration cannot name a path with a line break or a tab; rename it")


def find_files(pattern: str) -> tuple[list[str], list[str]]:
    """Return the files that match `pattern`, and the links that do and lead nowhere; both are sorted.

    Links to folders are followed, but not back to a folder above. Raises BertlineError for a folder that cannot be
    read: its files would be left out silently.
    """
    if os.path.basename(pattern) in ("", "."):  # only folders match
        return [], []
    start = fixed_part(pattern)
    parts = Path(pattern).parts[len(start.parts) :]
    once = [part for number, part in enumerate(parts) if parts[number : number + 2] != ("**", "**")]
    found = sorted(set(map(str, _matches(start, once, (os.path.realpath(start),)))))
    files = [path for path in found if stat.S_ISREG(_mode_of(path))]
    others = sorted(set(found).difference(files))
    return files, [path for path in others if os.path.islink(path) and not os.path.exists(path)]


def _matches(folder: Path, parts: Sequence[str], above: tuple[str, ...]) -> Iterator[Path]:
    """Yield what matches the parts of a pattern in a folder.

    They mean what they mean for Python's glob; but that follows links to the folders `above` 40 times, and two of them
    in 2 ** 40 orders.
    """
    part, *rest = parts
    if part == "**" and rest:
        yield from _matches(folder, rest, above)
    deeper = parts if part == "**" else rest
    for name in _names(folder, part, folders=bool(rest)):
        path = folder / name
        if not rest:
            yield path
        real = os.path.realpath(path)
        if deeper and stat.S_ISDIR(_mode_of(path)) and (part == ".." or real not in above):
            yield from _matches(path, deeper, (*above, real))


def _names(folder: Path, part: str, *, folders: bool) -> list[str]:
    """Return the names in a folder that match a part of a pattern; those with a dot before them only if it has one.

    With `folders`, most names of files are left out.
    """
    if not glob.has_magic(part):
        return [part]
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not (folders and entry.is_file(follow_symlinks=False))]
    except OSError as error:
        if error.errno in NOTHING_THERE:
            return []
        raise _unreadable(folder, error) from None
    return [name for name in fnmatch.filter(names, part) if part.startswith(".") or not name.startswith(".")]


def _mode_of(path: Path | str) -> int:
    """Return the type and the permissions of what a path leads to, 0 if that is nothing."""
    try:
        return os.stat(path).st_mode
    except ValueError:
        return 0
    except OSError as error:
        if error.errno in NOTHING_THERE:
            return 0
        raise _unreadable(path, error) from None


def _unreadable(path: Path | str, error: OSError) -> BertlineError:
    advice = "shorten it" if error.errno == errno.ENAMETOOLONG else "make it readable"
    return BertlineError(f"{path} cannot be read: {error.strerror}; {advice}, or name only folders without it")


def fixed_part(pattern: str) -> Path:
    """Return the folder in which a pattern is looked for: its part before the first wildcard."""
    return Path(*takewhile(lambda part: not glob.has_magic(part), Path(pattern).parent.parts))


def normal_path(path: str) -> str:
    """Return one of the ways to write a path: relative to this folder, or absolute if it is elsewhere."""
    relative = os.path.relpath(path)
    return os.path.abspath(path) if relative.startswith("..") else relative


def run_of_link(config: Json, path: str) -> str | None:
    """Return the run of a configuration in whose folder of links a path is; None if it is elsewhere.

    Such a link leads to another folder after a change of the run.
    """
    links = Path(paths.RUN).parent
    place = Path(normal_path(path))
    run = place.relative_to(links).parts[:1] if place.is_relative_to(links) else ()
    return run[0] if run and run[0] in config["runs"] else None
