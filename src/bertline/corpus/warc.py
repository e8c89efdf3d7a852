"""Conversion of WET files into documents: the text that Common Crawl extracted from web pages.

A WET file is a WARC file (ISO 28500:2017) whose records of type `conversion` contain plain text in UTF-8;
https://commoncrawl.org/get-started describes both.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed

from bertline.console import BertlineError, progress
from bertline.corpus.documents import Document, Dropped, tidy
from bertline.corpus.plain_text import Converter, Origin, lines_of
from bertline.corpus.unpacking import BUFFER_BYTES, Allowance, as_damage_error, open_unpacked
from bertline.files import Json

MAX_RECORD_BYTES = 1 << 26  # read as a whole; Common Crawl truncates pages at 1 or 5 MiB
# Of a record that is not kept: read at once, and searched again, as a next record's headers may begin there.
BLOCK_BYTES, MARK_BYTES = 1 << 20, 1 << 16
DIGESTS = ("md5", "sha1", "sha256", "sha384", "sha512")
MAX_REASON = 60  # characters of what warcio says, which quotes whole lines
_LENGTH = re.compile("[0-9]{1,15}")
_NEXT_RECORD = re.compile(rb"\r\n\r\nWARC/1\.[0-9]\r\n(?:[^\r\n]+\r\n)*?(?i:WARC-Type):")


def read_part(corpus: Json, part: str, converter: Converter, counts: Json) -> Iterator[Document | Dropped]:
    """Yield the documents of the WET files of a part, in their order. Nothing is unpacked to disk.

    Reasons to drop besides the converter's: `language`, `not_utf_8`, `oversized`.

    Args:
        corpus: its recipe, see `sources`. A document's id is its record's, without `urn:uuid:`; it has no title. With
            the setting `language` only records whose first language, as identified by Common Crawl, equals it are kept.
        part: its name.
        counts: receives the number of `files`, and the records of other types, which are not read (`records_skipped`).

    Raises BertlineError for a file that is missing, damaged, truncated, too large when unpacked, or without extracted
    text, and for a record of another length than it states.
    """
    files, settings = corpus["parts"][part], corpus["settings"]
    skipped: Counter[str] = Counter()
    for file in progress(files, description=converter.source, unit="files", total=len(files)):
        any_text = False
        with (
            as_damage_error(file),
            open_unpacked(Path(file), Allowance(Path(file), settings["unpack_ratio"])) as stream,
        ):
            for headers, content in _records(file, stream, skipped):
                any_text = True
                language = headers.get("warc-identified-content-language", "").partition(",")[0]
                if settings.get("language", language) != language:
                    yield Dropped("language")
                elif content is None:
                    yield Dropped("oversized")
                else:
                    origin = Origin(_id_in(headers), title="", url=headers.get("warc-target-uri", ""))
                    try:  # each line is a block of the page, and no line of a menu continues in the next
                        text = content.decode().replace("\n", "\n\n")
                        yield from converter.documents(lines_of(text), origin)
                    except UnicodeDecodeError:
                        yield Dropped("not_utf_8")
        if not any_text:
            raise BertlineError(f"{file} has no records of type conversion, which contain text; name WET files")
    counts.update(files=len(files), records_skipped=dict(skipped))


def _records(file: str, stream: Any, skipped: Counter[str]) -> Iterator[tuple[dict[str, str], bytes | None]]:
    """Yield the headers and the content of each record of type conversion; the content is None if it is oversized."""
    number = 0
    try:
        archive = ArchiveIterator(stream, no_record_parse=True)
        archive.INC_RECORD = ""  # its lines on stderr about what it counts as errors
        for number, record in enumerate(archive, 1):
            headers = {name.lower(): value for name, value in record.rec_headers.headers}  # ISO 28500, 4
            length = headers.get("content-length", "")
            # Of a file that was cut in a header, warcio gives a record with what is left.
            if not _LENGTH.fullmatch(length) or not _id_in(headers) or not record.rec_type:
                raise BertlineError(f"{file}, record {number} has no type, length or id; download the file again")
            is_text = record.rec_type == "conversion"
            is_kept = is_text and int(length) <= MAX_RECORD_BYTES
            content, missing, has_further = _read_content(record.raw_stream, int(length), headers, is_kept=is_kept)
            archive.read_to_end()  # counts an error if no blank line follows
            if archive.err_count or has_further:
                raise BertlineError(f"{file}, record {number} has another length than it states; download it again")
            if missing:
                raise BertlineError(f"{file} is truncated in its record {number}; download it again")
            if is_text:
                yield headers, content
            else:
                skipped[record.rec_type] += 1
        while stream.read(BUFFER_BYTES):  # raises its EOFError again, which warcio takes for the end of the file
            pass
    except ArchiveLoadFailed as error:
        raise BertlineError(
            f"{file}, record {number + 1} is not a WARC record ({str(error)[:MAX_REASON]}); download the file again"
        ) from None


def _read_content(
    stream: Any, length: int, headers: dict[str, str], *, is_kept: bool
) -> tuple[bytes | None, int, bool]:
    """Read a record's content, which is returned if it is kept.

    Also return the number of bytes that are missing, and whether the content includes a next record: a page that quotes
    one has other line ends, or its digest.
    """
    algorithm, _, stated = headers.get("warc-block-digest", "").lower().partition(":")
    digest = hashlib.new(algorithm, usedforsecurity=False) if algorithm in DIGESTS else None
    content, missing, has_mark = b"", length, False
    while missing and (block := stream.read(missing if is_kept else BLOCK_BYTES)):
        missing -= len(block)
        content = (content if is_kept else content[-MARK_BYTES:]) + block
        has_mark = has_mark or _NEXT_RECORD.search(content) is not None
        if digest and (has_mark or not is_kept):  # of other pages it decides nothing
            digest.update(block)
    is_whole = digest is not None and stated.rstrip("=") in (
        digest.hexdigest(),
        base64.b32encode(digest.digest()).decode().lower().rstrip("="),
    )
    return content if is_kept else None, missing, has_mark and not is_whole


def _id_in(headers: dict[str, str]) -> str:
    return tidy(headers.get("warc-record-id", "").strip("<>").removeprefix("urn:uuid:"))
