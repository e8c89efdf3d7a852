"""Reading a part of a Wikimedia dump: its streams, lines and pages.

A multistream `.xml.bz2` consists of many bz2 streams: the header, then a hundred whole pages in each, then the end tag.
So it can be split at any stream, and several jobs can read one part; see
https://meta.wikimedia.org/wiki/Data_dumps/Dump_format.
"""

from __future__ import annotations

import bz2
import html
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from bertline.console import BertlineError
from bertline.corpus.seven_zip import unpack_seven_zip
from bertline.corpus.unpacking import DAMAGE, UNPACK_RATIO, Allowance, unpacked

CHUNK_BYTES = 1 << 18
# A longer line is yielded in pieces; the last HELD_BACK_BYTES of each go into the next, so that no tag is split.
MAX_LINE_BYTES = 1 << 20
HELD_BACK_BYTES = 16
MAX_HEADER_BYTES = 1 << 20
# An extractor needs many times a page's size in memory. MediaWiki's own limit is 2 MiB of text, which is at most 12 MiB
# with every character escaped; a longer page is not an article.
MAX_PAGE_BYTES = 1 << 24
# Dumps as they lie; a downloaded one is a .xml.bz2.
DUMP_FILES = (".xml", ".xml.bz2", ".xml.gz", ".xml.xz", ".xml.zst", ".xml.7z", ".7z")
DOWNLOAD_AGAIN = "delete it and download it again"

logger = logging.getLogger(__name__)

STREAM_START = re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)")  # a stream's first block, or its end
STREAM_START_BYTES = 10
_PAGE_ID = re.compile(rb"<id>(\d+)</id>")
_NAMESPACE = re.compile(rb"<ns>(-?\d+)</ns>")


class Article(NamedTuple):
    """Metadata of an article, which is a page in namespace 0 that is not a redirect."""

    id: str
    headings: list[str]  # of its sections, as wikitext


def read_dump(
    part: Path | str,
    number: int = 0,
    of: int = 1,
    *,
    unpack_ratio: float = UNPACK_RATIO,
    advice: str = DOWNLOAD_AGAIN,
) -> Iterator[bytes]:
    """Yield the lines of a dump, or of one slice of it, which is a complete dump: header, pages, end tag.

    Args:
        part: the file, one of DUMP_FILES; only a multistream `.xml.bz2` can be read in slices.
        number, of: index of the slice, from 0, and number of slices. A stream belongs to the slice in whose byte range
            it begins, so a slice may be without pages.
        unpack_ratio: to how many times its size a file that is no `.bz2` may unpack.
        advice: for the errors of a damaged file.

    Lines of more than MAX_LINE_BYTES are yielded in pieces. Raises BertlineError if the file is missing, damaged, ends
    before its last tag, or has a stream that does not begin with a page.
    """
    line = b""
    try:
        size = Path(part).stat().st_size
        if number > 0:
            yield from header_of(part, size)
        is_bz2 = str(part).endswith(".bz2")
        chunks = (
            _content(part, number * size // of, (number + 1) * size // of)
            if is_bz2
            else (chunk for chunk, _ in unpacked_dump(Path(part), unpack_ratio))
        )
        for count, line in enumerate(lines_of_chunks(chunks)):
            if number > 0 and count == 0 and not line.strip().startswith((b"<page>", b"</mediawiki>")):
                raise OSError("a stream begins within a page; it cannot be read in slices")
            yield line
    except FileNotFoundError:
        raise BertlineError(f"{part} does not exist; check the path, or run `snakemake download`") from None
    except EOFError as error:
        reason = f"damaged or truncated ({error})" if str(error) else "truncated"
        raise BertlineError(f"{part} is {reason}; {advice}") from None
    except DAMAGE as error:
        raise BertlineError(f"{part} is damaged ({error}); {advice}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise BertlineError(f"{part} is damaged ({error}); {advice}") from None
    if number + 1 < of:
        if b"</mediawiki>" not in line:
            yield b"</mediawiki>\n"
    # A file may also be truncated between two streams.
    elif b"</mediawiki>" not in line:
        raise BertlineError(f"{part} is truncated: it ends before </mediawiki>; {advice}")


def scan_pages(
    lines: Iterable[bytes], counts: dict[str, int], part: Path | str = "the dump"
) -> Iterator[tuple[bytes, Article | None]]:
    """Yield the content of a dump from its lines: the header, each page, and the rest after the last page.

    With each comes the article that it is, or None. A page of more than MAX_PAGE_BYTES is yielded as empty. Dumps have
    one tag per line, and text never contains a literal `<`.

    `counts` is updated meanwhile: `pages` is the sum of `redirects` (in the main namespace), `other_namespaces` (with
    their redirects) and `articles`; `oversized` are the empty ones. In the `not_utf_8` pages U+FFFD replaces the bytes
    that are not UTF-8: wikiextractor hangs at one of them.

    Raises BertlineError, which names the `part`, for an incomplete page.
    """
    counts.update(pages=0, redirects=0, other_namespaces=0, articles=0, oversized=0, not_utf_8=0)
    page_id, namespace, is_redirect, in_page, in_text = b"", b"", False, False, False
    headings: list[str] = []
    content: list[bytes] = []
    size, article = 0, None
    for line in lines:
        size += len(line)
        if size <= MAX_PAGE_BYTES:
            content.append(line)
        elif content:
            content.clear()
            counts["oversized"] += 1
            logger.info("a page of more than %d bytes is left out", MAX_PAGE_BYTES)
        if b"<page>" in line or b"</mediawiki>" in line:
            if in_page:
                break
            page_id, namespace, is_redirect, headings = b"", b"", False, []
            in_page = b"<page>" in line
        elif in_text:
            if line.startswith(b"=="):
                headings.append(html.unescape(line.decode("utf-8", "replace")).rstrip())
            in_text = b"</text>" not in line
        elif b"<text" in line:
            text = line.partition(b">")[2]
            in_text = b"</text>" not in line and not line.rstrip().endswith(b"/>")
            if text.startswith(b"=="):
                headings.append(html.unescape(text.decode("utf-8", "replace")).rstrip())
        elif b"<redirect" in line:
            is_redirect = True
        elif not page_id and (match := _PAGE_ID.search(line)):
            page_id = match[1]
        elif not namespace and (match := _NAMESPACE.search(line)):
            namespace = match[1]
        elif b"</page>" in line:
            in_page = False
            counts["pages"] += 1
            if namespace != b"0":
                counts["other_namespaces"] += 1
            elif is_redirect:
                counts["redirects"] += 1
            else:
                counts["articles"] += 1
                article = Article(page_id.decode(), headings)
        if b"</page>" in line or b"</siteinfo>" in line:
            page = b"".join(content)
            try:
                page.decode()
            except UnicodeDecodeError:
                page = page.decode(errors="replace").encode()
                counts["not_utf_8"] += 1
            yield page, article
            content.clear()
            size, article = 0, None
    if in_page:
        raise BertlineError(
            f"{part} ends within page {page_id.decode() or 'without an id'}, after {counts['pages']} whole "
            "pages; download it again, or name its file under paths and set salvage: true"
        )
    yield b"".join(content), None


def header_of(part: Path | str, size: int) -> Iterator[bytes]:
    """Yield the lines of a `.xml.bz2` before the first page, which contain the names of the namespaces."""
    length = 0
    for line in lines_of_chunks(_content(part, 0, size)):
        if b"<page>" in line:
            return
        yield line
        length += len(line)
        if b"</siteinfo>" in line:
            return
        if length > MAX_HEADER_BYTES:
            raise OSError("it has no <siteinfo> at its beginning")


def lines_of_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a content in pieces; lines of more than MAX_LINE_BYTES in pieces, too."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(rest) > MAX_LINE_BYTES:
            yield rest[:-HELD_BACK_BYTES]
            rest = rest[-HELD_BACK_BYTES:]
    if rest:
        yield rest


def unpacked_dump(part: Path, unpack_ratio: float) -> Iterator[tuple[bytes, int]]:
    """Yield the content of a dump in pieces, each with the number of the file's bytes that were read.

    Raises EOFError or one of `unpacking.DAMAGE` for a damaged file, and BertlineError if it unpacks to too much.
    """
    allowance = Allowance(part, unpack_ratio)
    if part.name.endswith(".7z"):
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
