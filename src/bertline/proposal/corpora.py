"""Corpora of the user's files: how each file is read, by its name and its beginning."""

from __future__ import annotations

import glob
import hashlib
import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bertline.console import BertlineError
from bertline.corpus import text_files
from bertline.corpus.dump import BEGIN_TAG, BEGINNING_BYTES
from bertline.corpus.dump_files import natural_order
from bertline.corpus.encodings import Encodings
from bertline.corpus.plain_text import decoded_lines, looks_split
from bertline.corpus.tables import (
    TABLES,
)
from bertline.corpus.text_files import LINES_TO_JUDGE
from bertline.corpus.unpacking import (
    ARCHIVES,
    DUMP_FILES,
    UNPACK_RATIO,
    UNPACKED_DUMP_FILES,
    WEB_PAGES,
    Allowance,
    as_damage_error,
    check_is_text,
    is_archive,
    is_sentences,
    is_text,
    is_web_page,
    members,
    name_without_compression,
    without_lists,
)
from bertline.files import Json, check_is_utf8
from bertline.planning.corpora import BYTES_PER_PART, LOCAL_FILES_PER_PART
from bertline.planning.patterns import check_can_be_named, check_for_snakemake, find_files
from bertline.proposal.columns import column_of, columns_of
from bertline.proposal.encodings import opened

TEXT_SUFFIXES = (".txt", ".text", ".md")
TABLES_TO_JUDGE = 9
MANY_PARTS = 10


class _Kind(NamedTuple):
    """A kind of files: the corpus's name and source."""

    name: str
    source: str


# Suffixes of kinds whose compression is a part of the suffix.
WHOLE_SUFFIXES = {
    _Kind("web", "warc"): (".warc.wet", ".warc.wet.gz"),
    _Kind("archives", "files"): ARCHIVES,
}


@dataclass
class Corpus:
    """A corpus of the configuration, and what was read of its files."""

    name: str
    settings: Json
    files: list[Path]
    reasons: dict[str, str] = field(default_factory=dict)  # why a setting is as it is
    bytes: int = 0  # sizes on disk
    bytes_read: int = 0
    documents_read: float = 0  # a part of one that was read in part
    characters_read: int = 0
    bytes_of_text_read: int = 0  # in UTF-8

    @property
    def is_extrapolated(self) -> bool:
        """Whether `of_all` is an estimate, as not all files were read."""
        return self.bytes_read < self.bytes

    @property
    def parts(self) -> int:
        """About the number of parts in which it is read: of a dump, each file is one at least."""
        files_of_part = 1 if self.settings["source"] == "wikimedia" else LOCAL_FILES_PER_PART
        return max(math.ceil(self.bytes / BYTES_PER_PART), math.ceil(len(self.files) / files_of_part))

    @property
    def is_of_tiny_files(self) -> bool:
        """Whether its files are so small and many that it has many more parts than their sizes alone would give."""
        return self.settings["source"] != "wikimedia" and self.parts > MANY_PARTS + self.bytes / BYTES_PER_PART

    def of_all(self, number_read: float) -> int:
        """Extrapolate from what was read to all files."""
        return round(number_read * self.bytes / max(1, self.bytes_read))


class FoundFiles(NamedTuple):
    """The user's files.

    Attributes:
        corpora: the files that are read, grouped by how.
        not_read: suffixes of files that are not text by their names, or XML but no wiki's dump, with their numbers;
            also special files, and those with a dot before their names or those of their folders.
        left_out: files that are not read because they are tables to fine-tune on.
    """

    corpora: list[Corpus]
    not_read: Mapping[str, int]
    left_out: Sequence[Path]


def corpora_of(given: Sequence[str], tables: Collection[str] = (), divided: Collection[str] = ()) -> FoundFiles:
    """Group files by how they are read; each file counts once, in however many of the paths it is.

    Args:
        given: paths of files and folders.
        tables: files to fine-tune on, which are left out.
        divided: the files that a table is divided into, also left out; they need not exist yet.

    Raises BertlineError if a path is absent, there is no text, or a table, or other XML, is in a folder with texts of
    its suffix: a pattern finds all of them.
    """
    by_kind: dict[_Kind, Corpus] = {}
    not_read: dict[str, tuple[str, str]] = {}  # suffixes, and patterns for their like
    left_out: dict[Path, str] = {}  # with the patterns that find them
    seen: set[str] = set()
    to_leave_out = set(map(os.path.realpath, (*tables, *divided)))
    for path in _folders_first(given):
        check_can_be_named(str(path))
        for file in _files_in(path):
            check_is_utf8(str(file))
            check_for_snakemake(str(file))
            if (place := os.path.abspath(file)) in seen:
                continue
            kind, suffix = _kind_of(file, alone=path.is_file())
            if kind is None:
                not_read.setdefault(place, (suffix or "without a suffix", _pattern_in(path, suffix)))
                continue
            not_read.pop(place, None)  # in a folder, but given alone
            seen.add(place)
            pattern = _pattern_in(path, suffix) if path.is_dir() else glob.escape(file.as_posix())
            if os.path.realpath(file) in to_leave_out:
                left_out[file] = pattern
                continue
            corpus = by_kind.setdefault(kind, Corpus(kind.name, {"source": kind.source, "paths": []}, []))
            if pattern not in corpus.settings["paths"]:
                corpus.settings["paths"].append(pattern)
            corpus.files.append(file)
            corpus.bytes += file.stat().st_size
    used = {pattern for corpus in by_kind.values() for pattern in corpus.settings["paths"]}
    for table, pattern in (*left_out.items(), *_going_to_be_found(divided, given)):
        if pattern in used:
            is_part = os.path.realpath(table) in set(map(os.path.realpath, divided))
            what = f"{table}, a part of TABLE," if is_part else f"TABLE={table}"
            raise BertlineError(
                f"{what} is among the texts, as {pattern} finds it, too: training would see the rows that are "
                f"kept for the scores; move {'the texts' if is_part else 'it'} to another folder"
            )
    for place, (_, pattern) in not_read.items():
        if pattern in used:
            raise BertlineError(f"{place} is no dump of a wiki, but {pattern} finds it, too; move it to another folder")
    others = Counter(suffix for suffix, _ in not_read.values())
    hidden = {place: counted for path in filter(Path.is_dir, map(Path, given)) for place, counted in _hidden_in(path)}
    read = seen.union(map(os.path.abspath, given))
    for counted in (counted for place, counted in hidden.items() if place not in read):
        others.update(counted)
    if left_out and not by_kind:
        raise BertlineError(f"{', '.join(given)}: no text besides TABLE={','.join(map(str, left_out))}; give others")
    if not by_kind:
        what = ", ".join(f"{number} {suffix}" for suffix, number in others.most_common(5)) or "it is empty"
        raise BertlineError(
            f"{', '.join(given)}: no readable text ({what}); give .txt, .jsonl, .csv, .tsv, .parquet, .html, "
            ".warc.wet.gz, a wiki's .xml.bz2, or a .tar or .zip of texts, as TEXT=folder"
        )
    for corpus in by_kind.values():
        corpus.files.sort(key=natural_order)
    return FoundFiles(list(by_kind.values()), dict(others), sorted(left_out))


def _pattern_in(folder: Path, suffix: str) -> str:
    return f"{glob.escape(folder.as_posix())}/**/*{suffix}"


def _going_to_be_found(files: Collection[str], given: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files that are going to be in the given folders, with the patterns for their like there."""
    for file in map(Path, files):
        for folder in filter(Path.is_dir, map(Path, given)):
            if Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
                yield file, _pattern_in(folder, file.suffix)


def _folders_first(given: Sequence[str]) -> list[Path]:
    """Return the paths, a folder before what is in it. Raises BertlineError for an absent one."""
    found = [Path(path) for path in given]
    if absent := next((path for path in found if not path.exists()), None):
        raise BertlineError(f"{absent} does not exist; give a folder of texts or a file, as TEXT=folder")
    return sorted(found, key=lambda path: (path.is_file(), len(path.absolute().parts)))


def _files_in(path: Path) -> Iterator[Path]:
    """Yield a file, or those of a folder, found as the graph does: in linked folders, too, but in none with a dot."""
    if path.is_file():
        yield path
        return
    files, lost = find_files(f"{glob.escape(path.as_posix())}/**/*")
    if lost:
        more = f" (and {len(lost) - 1} more)" if lost[1:] else ""
        raise BertlineError(f"{lost[0]} is a link that leads nowhere{more}; remove it, or put its file there")
    yield from map(Path, files)


def _hidden_in(path: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield what no pattern finds, and what to count: files with a dot before their names or a folder's, and pipes."""
    for folder, folders, files in os.walk(path):
        for name in [name for name in folders if name.startswith(".")]:
            folders.remove(name)
            below = Path(folder, name)
            if number := sum(len(files) for _, _, files in os.walk(below)):
                yield os.path.abspath(below), {f"in {below.as_posix()}": number}
        for file in (os.path.join(folder, name) for name in files):
            if not os.path.isfile(file):
                yield os.path.abspath(file), {"special (a pipe, a socket or a device)": 1}
            elif os.path.basename(file).startswith("."):
                yield os.path.abspath(file), {"with a dot before the name": 1}


def _kind_of(file: Path, *, alone: bool) -> tuple[_Kind | None, str]:
    """Return the kind of a file, and the suffix by which a pattern finds its like; None for a file that is not text."""
    name = file.name
    if of_dump := DUMP_FILES.search(name):
        like = re.sub(r"-p\d+p\d+", "-p[0-9]*p[0-9]*", of_dump[0])
        if not UNPACKED_DUMP_FILES.search(name) or _begins_as_dump(file):
            return _Kind("wiki", "wikimedia"), like
        if not alone:
            return None, like
    for kind, suffixes in WHOLE_SUFFIXES.items():
        if suffix := next(filter(name.lower().endswith, suffixes), None):
            return kind, name[-len(suffix) :]  # as it is spelled: a pattern distinguishes .ZIP and .zip
    inner = name_without_compression(name)
    for corpus, suffixes in (("texts", TEXT_SUFFIXES), ("pages", WEB_PAGES), ("tables", TABLES)):
        if suffix := next(filter(inner.lower().endswith, suffixes), None):
            return _Kind(corpus, "files"), name[len(inner) - len(suffix) :]
    if alone:
        check_is_text(file)
        with opened(file) as stream:
            if b"\0" not in stream.read(4096):
                return _Kind("texts", "files"), ""
    return None, Path(inner).suffix


def _begins_as_dump(file: Path) -> bool:
    with opened(file) as stream:
        return BEGIN_TAG in stream.read(BEGINNING_BYTES)


def find_shape(corpus: Corpus, encoding: Encodings, column: str | None) -> None:
    """Set what the files need to be read: sentences that are divided already, the column of a table."""
    if corpus.name == "tables":
        tables = {file: columns_of(file, encoding, column) for file in spread(corpus.files, TABLES_TO_JUDGE)}
        with_rows = {file: (columns, lengths) for file, (columns, lengths) in tables.items() if columns}
        if not with_rows:
            raise BertlineError(f"{next(iter(tables))} has no rows; give a table with texts")
        found = {file: column_of(file, *columns, column) for file, columns in with_rows.items()}
        chosen = {file: column for file, column in found.items() if column is not None}
        if not chosen:
            raise BertlineError(f"{next(iter(with_rows))} has no column of text; give its name, as COLUMN=text")
        name, reason = Counter(chosen.values()).most_common(1)[0][0]
        for file, (other, _) in chosen.items():
            if other != name:
                raise BertlineError(
                    f"{file} has its text in the column '{other}', other tables in '{name}'; give COLUMN= if all have "
                    "one of the same name, otherwise write a corpus for each into the configuration by hand"
                )
        if name != "text":
            corpus.settings["text"] = name
            corpus.reasons["text"] = reason
        return
    if corpus.name not in ("texts", "archives"):
        return
    split = leipzig = judged = 0
    files = [Path(name) for name in without_lists(map(str, corpus.files))]
    for one in spread(files, 9):
        lines = _first_lines(one, encoding)
        if lines:
            judged += 1
            leipzig += all(text_files.LEIPZIG_LINE.fullmatch(line) for line in lines)
            split += looks_split(lines)
    if leipzig == judged > 0:
        corpus.settings |= {"format": "leipzig", "sentences": "lines"}
        corpus.reasons["format"] = "a number, a tab and a sentence on each line"
        corpus.reasons["sentences"] = "one sentence per line"
        corpus.files, corpus.bytes = files, sum(file.stat().st_size for file in files)
    elif 2 * split > judged:
        corpus.settings["sentences"] = "lines"
        corpus.reasons["sentences"] = "one sentence per line, an empty line between documents"


def _first_lines(file: Path, encoding: Encodings) -> list[str]:
    """Return the first lines of a text, or of an archive's first text."""
    if not is_archive(file.name):
        with opened(file) as stream:
            return list(islice(decoded_lines(stream, str(file), encoding), LINES_TO_JUDGE))
    with as_damage_error(str(file)):
        allowance, skipped = Allowance(file, UNPACK_RATIO), Counter[str]()
        for is_wanted in (is_sentences, is_text):
            for name, stream in members(file, allowance, skipped, is_wanted):
                if is_web_page(name):
                    return []
                return list(islice(decoded_lines(stream, f"{file}, member '{name}',", encoding), LINES_TO_JUDGE))
    return []


def spread(files: Sequence[Path], at_most: int) -> list[Path]:
    """Return files at equal distances, in an order in which also the first few are spread."""
    count = min(len(files), at_most)
    chosen = [files[number * len(files) // count] for number in range(count)]
    return sorted(chosen, key=lambda file: hashlib.sha256(file.name.encode()).digest())
