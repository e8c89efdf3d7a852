"""Conversion of books and other text files into documents: plain text, web pages, archives of both, and tables."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, islice
from pathlib import Path
from typing import BinaryIO

from bertline.console import BertlineError, progress
from bertline.corpus.documents import Document, Dropped, tidy
from bertline.corpus.encodings import check_encoding
from bertline.corpus.plain_text import (
    Converter,
    Origin,
    decoded_lines,
    divide,
    divide_at_empty_lines,
    lines_of,
    looks_split,
    without_licence,
)
from bertline.corpus.tables import columns_of, is_table, rows, text_and_origin
from bertline.corpus.unpacking import (
    Allowance,
    as_damage_error,
    check_is_text,
    check_is_unpacked,
    is_archive,
    is_sentences,
    is_text,
    is_web_page,
    members,
    name_without_compression,
    open_unpacked,
)
from bertline.corpus.web_pages import read_web_page
from bertline.files import Json

logger = logging.getLogger(__name__)

NAME_STARTS = "/./"
# The examined beginning of a text; lines may have a million characters.
LINES_TO_JUDGE, CHARACTERS_TO_JUDGE = 2000, 1 << 20
# The sentences of the Leipzig corpora are in no order. Some make a document, as a sample is no longer than that.
LEIPZIG_LINE = re.compile(r"\d+\t(.*)")
SENTENCES_OF_A_DOCUMENT = 100


def name_of(file: str) -> str:
    """Return a file's name in its documents' ids: the path after `/./` (rsync's mark), or else its last part.

    So ids do not depend on the location of a folder of texts.
    """
    return tidy(file.partition(NAME_STARTS)[2] or Path(file).name) or "?"


def read_part(corpus: Json, part: str, converter: Converter, counts: Json) -> Iterator[Document | Dropped]:
    """Yield the documents of the files of a part, in their order.

    A file's name determines its type, in capital letters too: a table (`.jsonl`, `.ndjson`, `.json`, `.csv`, `.tsv`,
    `.parquet`, `.arrow`) has one document per row, an archive (`.tar`, also compressed, or `.zip`) one text per member,
    `.html` and `.htm` are web pages, and any other file is a text, but those that `check_is_text` refuses. All but
    archives, Parquet and Arrow may be compressed (`.gz`, `.bz2`, `.xz`, `.zst`). Nothing is unpacked to disk, unless
    there are several encodings, see `first_that_decodes`. With the format `leipzig`, a document has
    SENTENCES_OF_A_DOCUMENT sentences.

    Args:
        corpus: its recipe, see `sources`. Ids of documents are made of the files' `name_of`, `!member` for a member of
            an archive, and `#number` for a document of a file with several. The settings are those of `files` in
            config/config.schema.yaml.
        part: its name.
        counts: receives the number of `files`, the members of archives that were not read (`members_skipped`), how many
            texts taken for one document look like sentences and documents (`look_split`), see `looks_split`, and, of
            several encodings, how many texts and tables are in each (`encodings`).

    Raises BertlineError for a file that is missing, damaged, truncated, not in the encoding (with the offset of the
    first wrong byte) or too large when unpacked, or that has a member or a row that cannot be read.
    """
    files, reader = corpus["parts"][part], _Reader(corpus["settings"], converter)
    check_encoding(reader.encoding)
    for file in progress(files, description=converter.source, unit="files", total=len(files), shown=len(files) > 1):
        with as_damage_error(file):
            yield from reader.documents(file)
    if reader.skipped:
        logger.info("members of archives that are not read: %s", dict(reader.skipped))
    counts.update(files=len(files), members_skipped=dict(reader.skipped), look_split=reader.look_split)
    if not isinstance(reader.encoding, str):
        counts["encodings"] = {one: reader.chosen[one] for one in reader.encoding}


class _Reader:
    """Reader of files by a corpus's settings; counts members of archives, encodings, and texts that look split."""

    def __init__(self, settings: Json, converter: Converter) -> None:
        self.encoding = settings.get("encoding", "utf-8")
        self.skipped: Counter[str] = Counter()
        self.chosen: Counter[str] = Counter()
        self.look_split = 0
        self._converter, self._separator, self._columns = converter, settings.get("separator"), columns_of(settings)
        self._is_leipzig = settings.get("format") == "leipzig"
        self._unpack_ratio = settings.get("unpack_ratio", 1.0)  # books of Gutenberg are not packed

    def documents(self, file: str) -> Iterator[Document | Dropped]:
        """Yield the documents of a table, an archive or a text."""
        check_is_text(file)
        allowance = Allowance(Path(file), self._unpack_ratio)
        if is_table(Path(file)):
            yield from self._of_table(file, allowance)
            return
        for where, origin, stream in self._texts_of(file, allowance):
            with as_damage_error(where):
                check_is_unpacked(stream, where)
                of_text = self._of_page if is_web_page(origin.id) else self._of_text
                yield from of_text(where, origin, stream)

    def _of_table(self, file: str, allowance: Allowance) -> Iterator[Document | Dropped]:
        found = rows(Path(file), self._columns, self.encoding, allowance, self.chosen)
        for number, (where, row) in enumerate(found):
            row_id = f"{name_of(file)}#{number}"
            text, origin = text_and_origin(row, self._columns, where=where, default_id=row_id)
            yield from self._converter.documents(lines_of(text), origin)

    def _texts_of(self, file: str, allowance: Allowance) -> Iterator[tuple[str, Origin, BinaryIO]]:
        """Yield each text of a file that is not a table: its name in errors, its origin, its bytes."""
        path, name = Path(file), name_of(file)
        if not is_archive(path.name):
            with open_unpacked(path, allowance) as stream:
                yield file, Origin(name, _title(name)), stream
            return
        any_text = False
        for member, stream in members(path, allowance, self.skipped, is_sentences if self._is_leipzig else is_text):
            any_text = True
            yield f"{file}, member '{member}',", Origin(f"{name}!{member}", _title(member)), stream
        if not any_text:
            wanted = "a -sentences.txt" if self._is_leipzig else "a .txt or .html, or one of them compressed"
            raise BertlineError(f"{file} has no member that is {wanted}; name another file")

    def _of_page(self, where: str, origin: Origin, stream: BinaryIO) -> Iterator[Document | Dropped]:
        page = read_web_page(stream, self.encoding)
        if isinstance(page, Dropped):
            yield page
            return
        lines = lines_of(page.text.replace("\n", "\n\n"))
        yield from self._converter.documents(lines, origin._replace(title=page.title or origin.title))

    def _of_text(self, where: str, origin: Origin, stream: BinaryIO) -> Iterator[Document | Dropped]:
        lines = decoded_lines(stream, where, self.encoding, chosen=self.chosen)
        if not (self._is_leipzig or self._separator is not None or self._converter.lines_are_sentences):
            first = _beginning(lines)
            self.look_split += looks_split(first)
            yield from self._converter.documents(chain(first, lines), origin)
            return
        for number, text in enumerate(self._divided(lines, where)):
            yield from self._converter.documents(text, origin._replace(id=f"{origin.id}#{number}"))

    def _divided(self, lines: Iterator[str], where: str) -> Iterator[Iterable[str]]:
        """Yield the lines of each document of a text with several."""
        if self._is_leipzig:
            numbered = enumerate(_leipzig_sentences(lines, where))
            for _, group in groupby(numbered, key=lambda pair: pair[0] // SENTENCES_OF_A_DOCUMENT):
                yield (sentence for _, sentence in group)
        elif self._separator is None or self._separator == "\n":
            yield from divide_at_empty_lines(without_licence(lines, self._converter))
        else:
            yield from divide(lines, self._separator)


def _beginning(lines: Iterator[str]) -> list[str]:
    """Take the lines by which a text is judged."""
    taken, characters = [], 0
    for line in islice(lines, LINES_TO_JUDGE):
        taken.append(line)
        characters += len(line)
        if characters >= CHARACTERS_TO_JUDGE:
            break
    return taken


def _leipzig_sentences(lines: Iterator[str], where: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():  # at the end, of an editor
            continue
        match = LEIPZIG_LINE.fullmatch(line)
        if match is None:
            raise BertlineError(
                f"{where} line {number} is not a number, a tab and a sentence, as in the Leipzig corpora; leave out "
                "format: leipzig"
            )
        yield match[1]


def _title(name: str) -> str:
    name = name_without_compression(Path(name).name)
    return re.sub(r"\.txt$", "", name, flags=re.IGNORECASE) if not is_web_page(name) else Path(name).stem
