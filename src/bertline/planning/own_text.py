"""A look at texts that a person has: what they are, how much, in which language. A bounded sample of them is read.

The graph's own readers read the sample, so what they refuse is refused here, in the same line.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet

from bertline.console import BertlineError
from bertline.corpus import text_files, warc
from bertline.corpus.clean import clean_part
from bertline.corpus.compressed import read_compressed
from bertline.corpus.documents import Dropped
from bertline.corpus.dump import DUMP_FILES
from bertline.corpus.dump_files import is_multistream, natural_order, read_pages
from bertline.corpus.extract import extract_part
from bertline.corpus.language import language_identifier
from bertline.corpus.plain_text import Converter, decoded_lines, looks_split
from bertline.corpus.tables import TABLES, arrow_errors, csv_cells, json_objects
from bertline.corpus.unpacking import (
    ARCHIVES,
    WEB_PAGES,
    Allowance,
    as_damage_error,
    is_text,
    is_web_page,
    members,
    name_without_compression,
    open_unpacked,
)
from bertline.files import Json, Recipe
from bertline.settings.configuration import definition, fill_defaults

# What is read at most, in all.
SAMPLE_CHARACTERS, SAMPLE_FILES = 12_000_000, 400
# A part of it, over all documents, for the language, the alphabet and the vocabulary.
KEPT_CHARACTERS = 4_000_000
ARTICLES, BYTES_OF_DUMP = 400, 10_000_000
MIN_DOCUMENTS = 5  # of fewer, the graph holds out none
LINES_TO_JUDGE = 2000
# A language counts if its documents have this share of the characters.
CLEAR_SHARE = 0.6
LANGUAGE_TEXTS = 300
TEXT_SUFFIXES = (".txt", ".text", ".md")
WET_SUFFIXES = (".warc.wet", ".warc.wet.gz")
# Columns that hold the text, in this order of preference; of a table without any, the longest one.
TEXT_COLUMNS = ("text", "content", "body", "document", "article", "sentence")
ROWS_TO_JUDGE = 50


class _Kind(NamedTuple):
    """A kind of files: the corpus's name and source, and the settings they need."""

    name: str
    source: str
    settings: tuple[tuple[str, str], ...] = ()


@dataclass
class Corpus:
    """A corpus of the configuration, and what was read of its files."""

    name: str
    settings: Json
    files: list[Path]
    reasons: dict[str, str] = field(default_factory=dict)  # why a setting is as it is
    bytes: int = 0  # of the files as they lie
    bytes_read: int = 0
    documents_read: int = 0
    characters_read: int = 0
    bytes_of_text_read: int = 0  # in UTF-8

    def of_all(self, number_read: int) -> int:
        """Extrapolate from what was read to all files."""
        return round(number_read * self.bytes / max(1, self.bytes_read))


@dataclass(frozen=True)
class OwnText:
    """What was found. All but the sample is of the whole text, extrapolated from what was read.

    Attributes:
        documents, characters, bytes, words: of the text as documents; words are those between spaces.
        language: ISO 639 code, and `share` of the sample's characters that are in it; 1 if it was given.
        others: other languages and their shares.
        script: the first word of the Unicode names of most of its letters, as LATIN.
        alphabet: number of different characters that make up 99.95 percent of the sample.
        sample: texts of documents, whole or their beginnings.
        not_read: suffixes of files that are no text, with their numbers.
    """

    corpora: list[Corpus]
    documents: int
    characters: int
    bytes: int
    words: int
    language: str
    share: float
    others: Mapping[str, float]
    script: str
    has_case: bool
    alphabet: int
    sample: list[str]
    not_read: Mapping[str, int]


def look_at(
    given: Sequence[str],
    schema: Json,
    *,
    encoding: str = "utf-8",
    language: str | None = None,
    column: str | None = None,
) -> OwnText:
    """Look at files and folders of texts.

    Args:
        given: paths of files and folders.
        schema: config/config.schema.yaml.
        encoding: of plain text and CSV.
        language: of the text; None to identify it.
        column: of tables, with the text; None for a usual name, or the longest.

    Raises BertlineError if a path is absent, nothing can be read, a sampled file is refused by its reader, there are too
    few documents to hold one out, or the language is not clear.
    """
    corpora, not_read = _corpora_of(given)
    texts: list[str] = []
    for corpus in corpora:
        corpus.settings |= (
            {"encoding": encoding} if encoding != "utf-8" and corpus.settings["source"] == "files" else {}
        )
        _find_shape(corpus, encoding, column)
        texts += _read(corpus, schema, SAMPLE_CHARACTERS // len(corpora))
    documents = sum(corpus.of_all(corpus.documents_read) for corpus in corpora)
    where = ", ".join(given)
    if documents < MIN_DOCUMENTS and (one := _divided_at_empty_lines(corpora)):
        texts = _read(one, schema, SAMPLE_CHARACTERS)
        documents = one.of_all(one.documents_read)
    if not any(texts):
        raise BertlineError(f"{where}: the files have no text; give a folder with some, as TEXT=folder")
    if documents < MIN_DOCUMENTS:
        raise BertlineError(
            f"{where}: {documents} documents are too few to hold one out ({MIN_DOCUMENTS} or more are needed); divide the "
            "text into files, or put empty lines between its parts"
        )
    characters = sum(corpus.of_all(corpus.characters_read) for corpus in corpora)
    text_bytes = sum(corpus.of_all(corpus.bytes_of_text_read) for corpus in corpora)
    sample = _kept(texts)
    joined = "\n".join(sample)
    script, has_case, alphabet = _characters_of(joined)
    shares = {language: 1.0} if language else _languages_of(sample)
    found, share = max(shares.items(), key=lambda pair: pair[1])
    if share < CLEAR_SHARE:
        seen = ", ".join(f"{name} {part:.0%}" for name, part in sorted(shares.items(), key=lambda pair: -pair[1])[:4])
        raise BertlineError(
            f"{where}: no language is clear ({seen}, by the characters of {min(len(sample), LANGUAGE_TEXTS)} documents); "
            "give its ISO 639 code, as LANGUAGE=en, or the largest of several"
        )
    return OwnText(
        corpora=corpora,
        documents=documents,
        characters=characters,
        bytes=text_bytes,
        words=round(len(joined.split()) / len(joined) * characters),
        language=found,
        share=share,
        others={name: part for name, part in shares.items() if name != found},
        script=script,
        has_case=has_case,
        alphabet=alphabet,
        sample=sample,
        not_read=not_read,
    )


def _corpora_of(given: Sequence[str]) -> tuple[list[Corpus], dict[str, int]]:
    """Group files by how they are read. Returns the corpora, and the numbers of other files by suffix."""
    by_kind: dict[_Kind, Corpus] = {}
    others: Counter[str] = Counter()
    for path in map(Path, given):
        if not path.exists():
            raise BertlineError(f"{path} does not exist; give a folder of texts or a file, as TEXT=folder")
        if "{" in str(path) or "}" in str(path):
            raise BertlineError(f"{path}: Snakemake takes braces for wildcards; rename it")
        for file in _files_in(path):
            kind, suffix = _kind_of(file, alone=path.is_file())
            if kind is None:
                others[suffix or "without a suffix"] += 1
                continue
            pattern = f"{glob.escape(path.as_posix())}/**/*{suffix}" if path.is_dir() else glob.escape(file.as_posix())
            corpus = by_kind.setdefault(
                kind, Corpus(kind.name, {"source": kind.source, "paths": [], **dict(kind.settings)}, [])
            )
            if pattern not in corpus.settings["paths"]:
                corpus.settings["paths"].append(pattern)
            corpus.files.append(file)
            corpus.bytes += file.stat().st_size
    if not by_kind:
        what = ", ".join(f"{number} {suffix}" for suffix, number in others.most_common(5)) or "it is empty"
        raise BertlineError(
            f"{', '.join(given)}: no text that can be read ({what}); give .txt, .jsonl, .csv, .parquet, .html, .warc.wet.gz, "
            "a wiki's .xml.bz2, or a .tar or .zip of texts, as TEXT=folder"
        )
    for corpus in by_kind.values():
        corpus.files.sort(key=natural_order)
    return list(by_kind.values()), dict(others)


def _files_in(path: Path) -> Iterator[Path]:
    """Yield a file, or the files that `folder/**/*` matches: none whose path has a part that begins with a dot."""
    if path.is_file():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if not name.startswith(".") and file.is_file():
                yield file


def _kind_of(file: Path, *, alone: bool) -> tuple[_Kind | None, str]:
    """Return the kind of a file, and the suffix by which a pattern finds its like; None for what is no text."""
    name = file.name
    if suffix := next((suffix for suffix in DUMP_FILES if name.endswith(suffix)), None):
        return _Kind("wiki", "wikimedia"), suffix
    if suffix := next((suffix for suffix in WET_SUFFIXES if name.endswith(suffix)), None):
        return _Kind("web", "warc"), suffix
    inner = name_without_compression(name)
    compression = name.removeprefix(inner)
    if suffix := next((suffix for suffix in ARCHIVES if name.endswith(suffix)), None):
        return _Kind("archives", "files"), suffix
    for kind, suffixes in (("pages", WEB_PAGES), ("tables", TABLES), ("texts", TEXT_SUFFIXES)):
        if suffix := next((suffix for suffix in suffixes if inner.endswith(suffix)), None):
            return _Kind(kind, "files"), suffix + compression
    if alone and b"\0" not in _beginning(file):
        return _Kind("texts", "files"), ""
    return None, Path(inner).suffix


def _beginning(file: Path) -> bytes:
    with as_damage_error(str(file)), open_unpacked(file, Allowance(file, 100.0)) as stream:
        return stream.read(4096)


def _find_shape(corpus: Corpus, encoding: str, column: str | None) -> None:
    """Set what the files need to be read: sentences that are divided already, the column of a table."""
    file = corpus.files[len(corpus.files) // 2]
    if corpus.name == "tables":
        columns, lengths = _columns_of(file, encoding)
        if column is not None and column not in columns:
            raise BertlineError(f"{file} has no column '{column}' but {', '.join(columns)}; give one, as COLUMN=text")
        usual = next((name for name in TEXT_COLUMNS if name in columns), None)
        longest = max(lengths, key=lambda name: lengths[name], default=None)
        chosen = column or usual or longest
        if chosen is None:
            raise BertlineError(f"{file} has no column of text; give its name, as COLUMN=text")
        if chosen != "text":
            corpus.settings["text"] = chosen
            corpus.reasons["text"] = (
                "the column with the longest texts" if chosen == longest else "the column of the text"
            )
        return
    if corpus.name not in ("texts", "archives"):
        return
    split = leipzig = judged = 0
    for one in _spread(corpus.files, 9):
        lines = _first_lines(one, encoding)
        if lines:
            judged += 1
            leipzig += all(text_files.LEIPZIG_LINE.fullmatch(line) for line in lines)
            split += looks_split(lines)
    if leipzig == judged > 0:
        corpus.settings |= {"format": "leipzig", "sentences": "lines"}
        corpus.reasons["format"] = "a number, a tab and a sentence on each line"
        corpus.reasons["sentences"] = "one sentence per line"
    elif 2 * split > judged:
        corpus.settings["sentences"] = "lines"
        corpus.reasons["sentences"] = "one sentence per line, an empty line between documents"


def _first_lines(file: Path, encoding: str) -> list[str]:
    """Return the first lines of a text, or of an archive's first text."""
    allowance = Allowance(file, text_files.UNPACK_RATIO)
    with as_damage_error(str(file)):
        if file.name.endswith(ARCHIVES):
            skipped: Counter[str] = Counter()
            wanted = text_files.is_sentences
            for is_wanted in (wanted, is_text):
                for name, stream in members(file, allowance, skipped, is_wanted):
                    if is_web_page(name):
                        return []
                    return list(islice(decoded_lines(stream, f"{file}, member '{name}',", encoding), LINES_TO_JUDGE))
            return []
        with open_unpacked(file, allowance) as stream:
            return list(islice(decoded_lines(stream, str(file), encoding), LINES_TO_JUDGE))


def _columns_of(file: Path, encoding: str) -> tuple[list[str], dict[str, float]]:
    """Return a table's columns, and the mean length of those that hold text."""
    name = name_without_compression(file.name)
    rows: list[Json] = []
    if name.endswith(".parquet"):
        with arrow_errors(file):
            batch = next(pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=ROWS_TO_JUDGE), None)
            rows = batch.to_pylist() if batch is not None else []
    elif name.endswith(".arrow"):
        with arrow_errors(file), file.open("rb") as opened:
            is_file = opened.read(6) == b"ARROW1"
            opened.seek(0)
            batches = pa.ipc.open_file(opened) if is_file else pa.ipc.open_stream(opened)
            first = batches.get_batch(0) if is_file else batches.read_next_batch()
            rows = first.slice(0, ROWS_TO_JUDGE).to_pylist()
    else:
        with as_damage_error(str(file)), open_unpacked(file, Allowance(file, text_files.UNPACK_RATIO)) as stream:
            if name.endswith(".csv"):
                cells = [row for _, row in islice(csv_cells(stream, file, encoding), ROWS_TO_JUDGE)]
                rows = [dict(zip(cells[0], row, strict=False)) for row in cells[1:]]
            else:
                rows = [row for _, row in islice(json_objects(stream, file), ROWS_TO_JUDGE)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lengths = {
        name: sum(len(row[name]) for row in rows if isinstance(row.get(name), str)) / len(rows)
        for name in columns
        if any(isinstance(row.get(name), str) for row in rows)
    }
    return columns, lengths


def _divided_at_empty_lines(corpora: Sequence[Corpus]) -> Corpus | None:
    """Return the corpus of texts, if there is no other, with its paragraphs as documents."""
    if len(corpora) != 1 or corpora[0].name != "texts" or "sentences" in corpora[0].settings:
        return None
    corpus = corpora[0]
    corpus.settings["sentences"] = "lines"
    corpus.reasons["sentences"] = (
        "the text is one: its parts between empty lines are the documents, so that some are held out"
    )
    return corpus


def _read(corpus: Corpus, schema: Json, at_most: int) -> list[str]:
    """Read a sample of a corpus's files, count it, and return its texts."""
    settings = fill_defaults(corpus.settings, definition(schema, corpus.settings["source"]), schema)
    files = _spread(corpus.files, 3 if corpus.name == "wiki" else SAMPLE_FILES)
    texts: list[str] = []
    if corpus.name == "wiki":
        for file in files:
            articles, consumed = _articles_of(file, settings)
            texts += articles
            corpus.bytes_read += consumed
    else:
        recipe = {"name": corpus.name, "settings": settings, "parts": {"part": [str(file) for file in files]}}
        reader = warc if settings["source"] == "warc" else text_files
        before, left = _bytes_read(), at_most
        for record in reader.read_part(recipe, "part", Converter(recipe), {}):
            if not isinstance(record, Dropped):
                texts.append(record["text"])
                left -= len(record["text"])
            if left <= 0:
                break
        size = sum(file.stat().st_size for file in files)
        corpus.bytes_read = size if left > 0 else min(size, _bytes_read() - before)
    corpus.documents_read = len(texts)
    corpus.characters_read = sum(map(len, texts))
    corpus.bytes_of_text_read = sum(len(text.encode()) for text in texts)
    return texts


def _bytes_read() -> int:
    """Return the number of bytes that this process has read, in whatever way: packed, in blocks, from a file's end."""
    return int(psutil.Process().io_counters().read_chars)


def _articles_of(file: Path, settings: Json) -> tuple[list[str], int]:
    """Return the texts of some articles from the middle of a dump, and the bytes read of it."""
    slices = -(-file.stat().st_size // BYTES_OF_DUMP) if is_multistream(file) else 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        before, articles = _bytes_read(), 0
        with (folder / "part.xml").open("wb") as written:
            for content, article in read_pages(file, slices // 2, slices, settings, {}):
                if b"</mediawiki>" not in content:
                    written.write(content)
                articles += article is not None
                if articles == ARTICLES:
                    break
            written.write(b"</mediawiki>\n")
        consumed = min(file.stat().st_size, _bytes_read() - before)
        if not articles:
            raise BertlineError(f"{file} holds no articles; name a dump of pages-articles")
        recipe = Recipe({"name": "wiki", "settings": settings})
        extract_part(recipe, folder / "part.xml", folder / "extracted")
        clean_part(recipe, folder / "extracted", folder / "documents.jsonl.zst", folder / "counts.json")
        with read_compressed(folder / "documents.jsonl.zst") as documents:
            return [json.loads(line)["text"] for line in documents], consumed


def _spread(files: Sequence[Path], at_most: int) -> list[Path]:
    """Return files at equal distances, in an order in which also the first few are spread."""
    count = min(len(files), at_most)
    chosen = [files[number * len(files) // count] for number in range(count)]
    return sorted(chosen, key=lambda file: hashlib.sha256(file.name.encode()).digest())


def _kept(texts: Sequence[str]) -> list[str]:
    """Return the texts' beginnings, which have at most about KEPT_CHARACTERS together."""
    share = min(1.0, KEPT_CHARACTERS / max(1, sum(map(len, texts))))
    return [text[: max(200, round(share * len(text)))] for text in texts if text]


def _languages_of(texts: Sequence[str]) -> dict[str, float]:
    """Return the languages of texts, and the share of the texts' characters in each."""
    identify = language_identifier()
    characters: Counter[str] = Counter()
    for text in texts[:: max(1, len(texts) // LANGUAGE_TEXTS)]:
        characters[identify(text)[0]] += min(len(text), 2000)
    return {language: count / characters.total() for language, count in characters.most_common()}


def _characters_of(text: str) -> tuple[str, bool, int]:
    """Return a text's script, whether that has capital letters, and the number of characters of 99.95 percent of it."""
    counts = Counter(text)
    letters = {character: count for character, count in counts.items() if character.isalpha()}
    scripts: Counter[str] = Counter()
    for character, count in letters.items():
        scripts[unicodedata.name(character, "?").partition(" ")[0].partition("-")[0]] += count
    cased = sum(count for character, count in letters.items() if character.upper() != character.lower())
    total, seen, alphabet = counts.total(), 0, 0
    for alphabet, (_, count) in enumerate(counts.most_common(), 1):
        seen += count
        if seen >= 0.9995 * total:
            break
    script = scripts.most_common(1)[0][0] if scripts else "?"
    return script, cased > sum(letters.values()) / 2, alphabet
