"""Reading of a bounded sample of a corpus's files, by the graph's own readers: of each file a share by its size."""

from __future__ import annotations

import codecs
import json
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import psutil

from bertline.console import BertlineError, progress
from bertline.corpus import plain_text
from bertline.corpus.clean import clean_part
from bertline.corpus.columnar import arrow_errors
from bertline.corpus.compressed import read_compressed
from bertline.corpus.documents import Document, Dropped
from bertline.corpus.dump_files import is_multistream, read_pages
from bertline.corpus.extract import extract_part
from bertline.corpus.plain_text import Converter, Origin
from bertline.corpus.sources import reader_of
from bertline.corpus.unpacking import name_without_compression
from bertline.files import Json, Recipe
from bertline.proposal.corpora import Corpus, spread
from bertline.proposal.encodings import encoding_of, is_in_one_encoding
from bertline.settings.configuration import definition, fill_defaults

SAMPLE_FILES, SAMPLE_DUMPS = 400, 3
# Of a file that is read in part, other than plain text: readers take a megabyte at a time, and what of it was used is
# known from the second on.
MIN_SHARE = 2_000_000
BEGINNING_BYTES = 1 << 16
CHECKED = 10_000  # characters after which the bytes are looked at again
ARTICLES, BYTES_OF_DUMP = 400, 10_000_000


def read_sample(corpus: Corpus, schema: Json, at_most: int) -> list[str]:
    """Read about `at_most` characters of a corpus's files, count them, and return the texts.

    A text that is longer than the share of its file is cut there.
    """
    settings = fill_defaults(corpus.settings, definition(schema, corpus.settings["source"]), schema)
    texts: list[str] = []
    corpus.bytes_read, corpus.documents_read = 0, 0.0
    if corpus.name == "wiki":
        for file in spread(corpus.files, SAMPLE_DUMPS):
            articles, consumed = _articles_of(file, settings)
            texts += articles
            corpus.bytes_read += consumed
            corpus.documents_read += len(articles)
    else:
        files = _files_to_read(corpus, at_most)
        left, expected = at_most, [_expected_characters(corpus, file, settings) for file in files]
        shown = len(files) > 1 and sys.stderr.isatty()  # seconds in all, of which no log needs a bar
        for number, file in enumerate(progress(files, description=corpus.name, unit="files", shown=shown)):
            share = left * expected[number] // max(1, sum(expected[number:]))
            reading = _Reading(corpus, file, settings, share if _is_plain(corpus, file) else max(MIN_SHARE, share))
            of_file = list(reading.texts())
            texts += of_file
            left -= sum(map(len, of_file))
            corpus.bytes_read += reading.bytes_read
            corpus.documents_read += reading.documents_read
            if left <= 0:
                break
    corpus.characters_read = sum(map(len, texts))
    corpus.bytes_of_text_read = sum(len(text.encode()) for text in texts)
    return texts


def _is_plain(corpus: Corpus, file: Path) -> bool:
    return corpus.name == "texts" and name_without_compression(file.name) == file.name


def _expected_characters(corpus: Corpus, file: Path, settings: Json) -> int:
    """Return about how many characters a file of plain text has, by its first ones; of any other the bytes."""
    size = file.stat().st_size
    if not _is_plain(corpus, file):
        return size
    encodings = settings.get("encoding", "utf-8")
    with file.open("rb") as stream:
        first = stream.read(BEGINNING_BYTES)
    decoded = first.decode(encodings if isinstance(encodings, str) else "utf-8", "ignore")
    return size * len(decoded) // max(1, len(first))


def _files_to_read(corpus: Corpus, at_most: int) -> list[Path]:
    """Return files at equal distances, in an order in which also the first few are spread.

    If they are more than is read, and have to be read by MIN_SHARE at least, they are those at places at equal
    distances in all the bytes: a large file is not missed among small ones.
    """
    files = spread(corpus.files, SAMPLE_FILES)
    ends = list(accumulate(file.stat().st_size for file in files))
    if ends[-1] <= at_most or all(_is_plain(corpus, file) for file in files):
        return files
    count = int(at_most / min(MIN_SHARE, ends[-1] / len(files))) or 1
    places = {bisect_right(ends, (2 * number + 1) * ends[-1] // (2 * count)) for number in range(count)}
    return [file for number, file in enumerate(files) if number in places]


class _Reading(Converter):
    """A reader's conversion of the beginning of a file.

    Attributes:
        bytes_read: of the file, by the characters that were used.
        documents_read: number of texts; of one that was cut only a part.
    """

    def __init__(self, corpus: Corpus, file: Path, settings: Json, share: int) -> None:
        self._file, self._share, self._size = file, share, file.stat().st_size
        encodings = settings.get("encoding", "utf-8")
        # Of several encodings the reader itself would choose, and read the file twice: all of it, and then up to where
        # the sample ends.
        if not isinstance(encodings, str) and is_in_one_encoding(file):
            settings = settings | {"encoding": encoding_of(file, encodings)}
        self._recipe = {"name": corpus.name, "settings": settings, "parts": {"part": [str(file)]}}
        super().__init__(self._recipe)
        self._is_plain = _is_plain(corpus, file)
        if self._is_plain:
            self._encoder = codecs.getincrementalencoder(settings.get("encoding", "utf-8"))("replace")
        self._used = self._used_bytes = self._checked = self._read = 0
        self._before = (0, 0)  # characters and bytes when more bytes were seen to have been read
        self.is_cut = False
        self.bytes_read = 0
        self.documents_read = 0.0

    def texts(self) -> Iterator[str]:
        """Yield the texts up to the file's share."""
        start, records, whole = _bytes_read(), 0, 0
        self._start = start
        is_whole, cut = True, 0
        for record in reader_of(self._recipe)(self._recipe, "part", self, {}):
            records += 1
            if not isinstance(record, Dropped):
                yield record["text"]
                whole += not self.is_cut
                cut += len(record["text"]) if self.is_cut else 0
            if self._used >= self._share:
                is_whole = False
                break
        self.bytes_read = self._size if is_whole and not self.is_cut else self._bytes_used(records)
        # Of a text that was cut as many parts count as make a whole one, or one of those into which it is divided.
        parts = max(self.bytes_read / max(1, self._size), cut / plain_text.MAX_DOCUMENT_LENGTH) if cut else 0
        self.documents_read = whole + parts

    def documents(self, lines: Iterable[str], origin: Origin) -> Iterator[Document | Dropped]:
        """Yield the document of the beginning of a text."""
        return super().documents(self._beginning(lines), origin)

    def _beginning(self, lines: Iterable[str]) -> Iterator[str]:
        taken = 0
        for line in lines:
            if taken >= self._share:
                self.is_cut = True
                return
            taken += len(line) + 1
            self._count(line)
            yield line

    def _count(self, line: str) -> None:
        self._used += len(line) + 1
        if self._is_plain:
            self._used_bytes += len(self._encoder.encode(f"{line}\n"))
        elif self._used - self._checked >= CHECKED:
            read = _bytes_read() - self._start
            if read > self._read:
                self._before, self._read = (self._checked, self._read), read
            self._checked = self._used

    def _bytes_used(self, records: int) -> int:
        """Return how many of the file's bytes have the characters that were used: more were read."""
        if self._is_plain:
            return min(self._size, self._used_bytes)
        if self._file.suffix.lower() == ".parquet":  # a column of a group of rows is read as a whole
            import pyarrow.parquet

            with arrow_errors(self._file):
                rows = pyarrow.parquet.read_metadata(self._file).num_rows
            return round(self._size * min(1.0, records / max(1, rows)))
        characters, bytes_before = self._before
        read = bytes_before * self._used / characters if characters else _bytes_read() - self._start
        return min(self._size, max(1, round(read)))


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
        try:
            extract_part(recipe, folder / "part.xml", folder / "extracted")
        except BertlineError as error:  # of the copy
            raise BertlineError(str(error).replace(str(folder / "part.xml"), str(file))) from None
        clean_part(recipe, folder / "extracted", folder / "documents.jsonl.zst", folder / "counts.json")
        with read_compressed(folder / "documents.jsonl.zst") as documents:
            return [json.loads(line)["text"] for line in documents], consumed
