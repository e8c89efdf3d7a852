"""Reading a part of a Wikimedia dump: its streams and pages.

A multistream `.xml.bz2` consists of many bz2 streams: the header, then a hundred whole pages in each, then the end tag.
So it can be split at any stream, and several jobs can read one part; see
https://meta.wikimedia.org/wiki/Data_dumps/Dump_format.
"""

from __future__ import annotations

import bz2
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from bertline.console import BertlineError
from bertline.corpus.entities import unescape
from bertline.corpus.seven_zip import unpack_seven_zip
from bertline.corpus.unpacking import DAMAGE, Allowance, unpacked

CHUNK_BYTES = 1 << 18
MAX_HEADER_BYTES = 1 << 20
# An extractor needs many times a page's size in memory. MediaWiki's own limit is 2 MiB of text, which is at most 12 MiB
# with every character escaped; a longer page is not an article.
MAX_PAGE_BYTES = 1 << 24
BEGIN_TAG, BEGINNING_BYTES = b"<mediawiki", 1 << 12  # in which it is expected
END_BYTES = 64  # in which the end tag is expected
PAGE_HEAD_BYTES = 1 << 16  # of a longer page, for its id and namespace

logger = logging.getLogger(__name__)

STREAM_START = re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)")  # a stream's first block, or its end
STREAM_START_BYTES = 10
# The tags that a dump is divided at. Text never contains a literal `<`.
_BOUNDARY = re.compile(rb"<(?:(/page|/siteinfo)>\n?|page>|/mediawiki>)")
_MAX_BOUNDARY_BYTES = 13
_PAGE_ID = re.compile(rb"<id>(\d+)</id>")
_MODEL = re.compile(rb"<model>([^<]*)</model>")  # of the page's content
_NAMESPACE = re.compile(rb"<ns>(-?\d+)</ns>")
_HEADING = re.compile(rb"(?:^|<text\b[^<>]*>)(==[^\n]*)", re.MULTILINE)


def read_dump(part: Path | str, number: int, of: int, *, unpack_ratio: float, advice: str) -> Iterator[bytes]:
    """Yield the chunks of a dump, or of one slice of it, which is a complete dump: header, pages, end tag.

    Args:
        part: the file, named as `unpacking.DUMP_FILES` are; only a multistream `.xml.bz2` can be read in slices.
        number, of: index of the slice, from 0, and number of slices. A stream belongs to the slice in whose byte range
            it begins, so a slice may be without pages.
        unpack_ratio: how many times its size a file other than a `.bz2` may unpack to.
        advice: for the errors of a damaged file.

    Raises BertlineError if the file is missing, damaged, no dump, ends before its last tag, or has a stream that does
    not begin with a page.
    """
    beginning = end = b""
    try:
        size = Path(part).stat().st_size
        if str(part).lower().endswith(".bz2"):
            content = _content(part, number * size // of, (number + 1) * size // of)
        else:
            content = (chunk for chunk, _ in unpacked_dump(Path(part), unpack_ratio))
        if number > 0:
            yield header_of(part, size)
            content = _checked(content)
        for chunk in content:
            yield chunk
            beginning += chunk[: BEGINNING_BYTES - len(beginning)]
            end = (end + chunk)[-END_BYTES:]
    except FileNotFoundError:
        raise BertlineError(f"{part} does not exist; check the path, or run `snakemake download`") from None
    except EOFError as error:
        reason = f"damaged or truncated ({error})" if str(error) else "truncated"
        raise BertlineError(f"{part} is {reason}; {advice}") from None
    except (OSError, *DAMAGE) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BertlineError(f"{part} is damaged ({error}); {advice}") from None
    if b"</mediawiki>" not in end:
        if number == 0 and beginning and BEGIN_TAG not in beginning:
            raise BertlineError(
                f"{part} is no dump of a wiki: it does not begin with <mediawiki; name a dump of pages-articles"
            )
        # A file may also be truncated between two streams.
        if has_last_stream(part, number, of):
            raise BertlineError(f"{part} is truncated: it ends before </mediawiki>; {advice}")
        yield b"</mediawiki>\n"


def scan_pages(
    chunks: Iterable[bytes], counts: dict[str, int], part: Path | str = "the dump"
) -> Iterator[tuple[bytes, str | None]]:
    """Yield the content of a dump from its chunks: the header, each page, and the rest after the last page.

    With each comes its id if it is an article, a page of wikitext in namespace 0 that is not a redirect, or None. A
    page of more than MAX_PAGE_BYTES or of another content, as Wikidata's JSON, is yielded as empty.

    `counts` is updated meanwhile: `pages` is the sum of `redirects` (in the main namespace), `other_namespaces` (with
    their redirects, and with pages that are not wikitext) and `articles`; `oversized` are the long ones. In the
    `not_utf_8` pages U+FFFD replaces the bytes that are not UTF-8: wikiextractor hangs at one of them.

    Raises BertlineError, which names the `part`, for an incomplete page, an article with several revisions, and pages
    without <ns>.
    """
    counts.update(pages=0, redirects=0, other_namespaces=0, articles=0, oversized=0, not_utf_8=0)
    for content, is_whole, is_page in _divided(chunks, counts, part):
        # Older formats name the model after the text.
        model = _MODEL.search(content) if is_page else None
        is_wikitext = model is None or model[1] == b"wikitext"
        page, article = content, _article(content, is_wikitext, counts, part) if is_page else None
        if not is_whole:
            page = b""
            counts["oversized"] += 1
            logger.info("a page of more than %d bytes is left out", MAX_PAGE_BYTES)
        elif not is_wikitext:
            page = b""
        try:
            page.decode()
        except UnicodeDecodeError:
            page = page.decode(errors="replace").encode()
            counts["not_utf_8"] += 1
        yield page, article


def headings_of(page: bytes) -> list[str]:
    """Return the headings of a page's sections, as wikitext."""
    text = page[max(0, page.find(b"<text")) :].partition(b"</text>")[0]
    return [unescape(heading.decode("utf-8", "replace")).rstrip() for heading in _HEADING.findall(text)]


def _article(page: bytes, is_wikitext: bool, counts: dict[str, int], part: Path | str) -> str | None:
    """Count a page, and return its id if it is an article."""
    head = page.partition(b"<text")[0]
    namespace = _NAMESPACE.search(head)
    counts["pages"] += 1
    if namespace is None and counts["pages"] == 1:
        raise BertlineError(
            f"{part}: page {_id(head)} has no <ns>; export formats of MediaWiki before 0.6 are not supported; "
            "name a newer dump"
        )
    if namespace is None or namespace[1] != b"0" or not is_wikitext:
        counts["other_namespaces"] += 1
    elif b"<redirect" in head:
        counts["redirects"] += 1
    else:
        if page.count(b"<revision>") > 1:
            raise BertlineError(
                f"{part} holds several revisions of page {_id(head)}, and a text of each; name a dump of the current "
                "ones: pages-articles or pages-meta-current"
            )
        counts["articles"] += 1
        return _id(head)
    return None


def _id(page: bytes) -> str:
    match = _PAGE_ID.search(page)
    return match[1].decode() if match else ""


def _divided(chunks: Iterable[bytes], counts: dict[str, int], part: Path | str) -> Iterator[tuple[bytes, bool, bool]]:
    """Yield the pieces of a dump as (content, whether it is complete, whether it is a page).

    Of a piece of more than MAX_PAGE_BYTES the content is only its beginning.
    """
    content, searched, head, opened = b"", 0, b"", -1  # `opened` is where the page begins, -1 outside pages
    for chunk in chunks:
        content += chunk
        start = 0
        for match in _BOUNDARY.finditer(content, searched):
            searched = match.end()
            if match[1] is None:
                if opened >= 0:
                    raise _incomplete(head or content[opened : match.start()], counts, part)
                opened = match.start() if match[0] == b"<page>" else -1
            else:
                is_whole = not head and match.end() - start <= MAX_PAGE_BYTES
                yield head or content[start : match.end()], is_whole, match[1] == b"/page"
                start, head, opened = match.end(), b"", -1
        if len(content) - start > MAX_PAGE_BYTES:
            head = head or content[start : start + PAGE_HEAD_BYTES]
            start = max(searched, len(content) - _MAX_BOUNDARY_BYTES)
        content, searched = content[start:], max(searched, len(content) - _MAX_BOUNDARY_BYTES) - start
        opened = max(0, opened - start) if opened >= 0 else -1
    if opened >= 0:
        raise _incomplete(head or content[opened:], counts, part)
    yield content, not head, False


def _incomplete(page: bytes, counts: dict[str, int], part: Path | str) -> BertlineError:
    return BertlineError(
        f"{part} ends within page {_id(page) or 'without an id'}, after {counts['pages']} whole pages; "
        "download it again, or name its file under paths and set salvage: true"
    )


def _checked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the chunks of streams. Raises OSError if the first does not begin with a page or the end tag."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first.lstrip()) >= END_BYTES:
            break
    if first and not first.lstrip().startswith((b"<page>", b"</mediawiki>")):
        raise OSError("a stream begins within a page; it cannot be read in slices")
    yield first
    yield from chunks


def header_of(part: Path | str, size: int) -> bytes:
    """Return what precedes the first page: it contains the names of the namespaces."""
    header = b""
    for chunk in _content(part, 0, size):
        header += chunk
        if match := _BOUNDARY.search(header):
            return header[: match.end() if match[1] == b"/siteinfo" else match.start()]
        if len(header) > MAX_HEADER_BYTES:
            raise OSError("it has no <siteinfo> at its beginning")
    return header


def has_last_stream(part: Path | str, number: int, of: int) -> bool:
    """Return whether the end of a file belongs to a slice, as its last stream does."""
    if of == 1:
        return True
    with open(part, "rb") as file:
        size = Path(part).stat().st_size
        start, end = number * size // of, (number + 1) * size // of
        return (number == 0 or next_stream(file, start) < end) and next_stream(file, end) == size


def unpacked_dump(part: Path, unpack_ratio: float) -> Iterator[tuple[bytes, int]]:
    """Yield the content of a dump in pieces, each with the number of the file's bytes that were read.

    Raises EOFError or one of `unpacking.DAMAGE` for a damaged file, and BertlineError if it unpacks to too much.
    """
    allowance = Allowance(part, unpack_ratio)
    if part.name.lower().endswith(".7z"):
        for chunk, position in unpack_seven_zip(part):
            allowance.take(len(chunk))
            yield chunk, position
        return
    with part.open("rb") as file:
        stream = unpacked(file, part.name, allowance)
        while chunk := stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
            yield chunk, file.tell()


def _content(part: Path | str, start: int, end: int) -> Iterator[bytes]:
    """Decompress the streams that begin in the bytes [start, end).

    Raises EOFError if the file is truncated, OSError without a number if it is damaged or something else follows a
    stream, which the standard library would treat as the end.
    """
    with open(part, "rb") as file:
        position = start and next_stream(file, start)
        if position >= end:
            return
        file.seek(position)
        packed = file.read(CHUNK_BYTES)
        while True:
            decompressor = bz2.BZ2Decompressor()
            while not decompressor.eof:
                if decompressor.needs_input and not packed and not (packed := file.read(CHUNK_BYTES)):
                    raise EOFError
                content = decompressor.decompress(packed, CHUNK_BYTES)
                packed = b""
                if content:
                    yield content
            packed = decompressor.unused_data
            if len(packed) < STREAM_START_BYTES:
                packed += file.read(CHUNK_BYTES)
            if not packed:
                return
            position = file.tell() - len(packed)
            if not STREAM_START.match(packed):
                raise OSError(f"no stream begins at byte {position}")
            if position >= end:
                return


def next_stream(file: BinaryIO, start: int) -> int:
    """Return the position of the first stream at or after the byte `start`, or the file's size."""
    file.seek(start)
    window = b""
    while chunk := file.read(CHUNK_BYTES):
        window = window[1 - STREAM_START_BYTES :] + chunk
        if match := STREAM_START.search(window):
            return file.tell() - len(window) + match.start()
    return file.tell()
