"""The pages of a dump's file as a corpus asks for them: all of them, or what is left of a damaged one."""

from __future__ import annotations

import bz2
import logging
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.dump import (
    MAX_HEADER_BYTES,
    MAX_PAGE_BYTES,
    STREAM_START,
    STREAM_START_BYTES,
    has_last_stream,
    header_of,
    next_stream,
    read_dump,
    scan_pages,
    unpacked_dump,
)
from bertline.corpus.unpacking import DAMAGE, DUMP_FILES
from bertline.files import Json

logger = logging.getLogger(__name__)

DOWNLOAD_AGAIN = "delete it and download it again"
REPLACE = "replace it, or set salvage: true for the corpus, which reads what is left and counts what is not"
PIECE_BYTES = 1 << 13  # to which the end of a stream's last whole block is located
# A longer line is yielded in pieces; the last HELD_BACK_BYTES of each go into the next, so that no tag is split.
MAX_LINE_BYTES = 1 << 20
HELD_BACK_BYTES = 16
END = b"</mediawiki>\n"
# Before and after the start of a page, and after its end.
_TAGS_OF_PAGES = re.compile(rb"(?=<page>)|(?<=<page>)|(?<=</page>)")


def check_name(path: Path) -> None:
    """Raise BertlineError for a file whose name is not that of a dump."""
    if not DUMP_FILES.search(path.name):
        raise BertlineError(
            f"{path} does not have the name of a dump; name .xml, .xml.bz2, .xml.gz, .xml.xz, .xml.zst, .xml.7z files"
        )


def natural_order(name: object) -> list[tuple[int, str]]:
    """Return a key that sorts `...multistream2.xml-p9p10.bz2` before `...multistream10.xml-p11p12.bz2`."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"([0-9]+)", str(name))]


def is_multistream(path: Path) -> bool:
    """Return whether a file is a `.bz2` whose first stream is a dump's header alone, so that it has slices."""
    if not path.name.lower().endswith(".bz2"):
        return False
    with path.open("rb") as file:
        decompressor, content = bz2.BZ2Decompressor(), b""
        try:
            while not decompressor.eof and len(content) < MAX_HEADER_BYTES:
                packed = file.read(PIECE_BYTES) if decompressor.needs_input else b""
                if decompressor.needs_input and not packed:
                    return False
                content += decompressor.decompress(packed, MAX_HEADER_BYTES)
        except OSError:
            return False
    return decompressor.eof and b"</siteinfo>" in content and b"<page>" not in content


def read_pages(part: Path, number: int, of: int, settings: Json, counts: Json) -> Iterator[tuple[bytes, str | None]]:
    """Yield the pages of a dump or of one slice of it, see `dump.scan_pages`.

    Args:
        part, number, of: as for `dump.read_dump`.
        settings: of the corpus, as for `wikimedia` in config/config.schema.yaml.
        counts: receives those of `dump.scan_pages`; and, with `salvage`, what is `lost`, see `salvage_dump`.

    Raises BertlineError as those functions do.
    """
    ratio = settings["unpack_ratio"]
    if settings["salvage"]:
        counts["lost"] = {}
        chunks = salvage_dump(part, number, of, ratio, counts["lost"])
    else:
        chunks = read_dump(
            part, number, of, unpack_ratio=ratio, advice=REPLACE if "paths" in settings else DOWNLOAD_AGAIN
        )
    yield from scan_pages(chunks, counts, part)
    if settings["salvage"] and counts["lost"]["places"]:
        logger.warning(
            "%s is damaged in %d places: %d bytes could not be unpacked, %d pages are cut off; the others were read",
            part,
            *(counts["lost"][key] for key in ("places", "bytes", "pages")),
        )


def salvage_dump(part: Path, number: int, of: int, unpack_ratio: float, lost: Json) -> Iterator[bytes]:
    """Yield the lines of what can be read of a damaged dump: header, whole pages, end tag.

    In a `.bz2`, reading continues with the next stream: a hundred pages later in a multistream file. Any other file is
    read up to the first damage.

    Args:
        part, number, of, unpack_ratio: as for `dump.read_dump`.
        lost: receives the numbers of damaged `places`, of `bytes` of the file that could not be unpacked, and of
            `pages` that began and have no end. How many pages began in the unreadable bytes is not known.

    Raises BertlineError if the file is missing, or its header damaged.
    """
    lost.update(places=0, bytes=0, pages=0)
    try:
        size = part.stat().st_size
    except FileNotFoundError:
        raise BertlineError(f"{part} does not exist; check the path") from None
    try:
        if number > 0:
            yield header_of(part, size)
    except (OSError, EOFError) as error:
        raise _without_header(part, error) from None
    page: list[bytes] = []
    length, is_header, has_ended, is_gap = 0, number == 0, False, False
    for line in _pieces(_lines_between_gaps(part, number * size // of, (number + 1) * size // of, unpack_ratio, lost)):
        is_gap = line is None
        if line is None:
            if is_header:
                raise _without_header(part, "it is damaged before the first page")
            lost["pages"] += bool(page)
            page = []
        elif b"<page>" in line:
            if page:
                lost["places"] += 1
                lost["pages"] += 1
            line = line[line.index(b"<page>") :]  # before it may be the rest of a page that is cut off
            page, length, is_header = [line], len(line), False
        elif page:
            is_end = b"</page>" in line
            if length <= MAX_PAGE_BYTES or is_end:  # the rest of an oversized page is not needed
                page.append(line)
                length += len(line)
            if is_end:
                yield from page
                page = []
        elif b"</mediawiki>" in line:
            has_ended = True
        elif is_header:
            yield line
    if page:
        lost["pages"] += 1
    if not is_gap and (page or (not has_ended and has_last_stream(part, number, of))):
        lost["places"] += 1
    yield END


def _without_header(part: Path, reason: object) -> BertlineError:
    return BertlineError(
        f"{part} cannot be salvaged: its header, which names the wiki's namespaces, is lost ({reason}); replace it"
    )


def _pieces(lines: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """Yield lines with at most one tag of a page each; MediaWiki writes no more, other programs do."""
    for line in lines:
        if line is None or line.count(b"page>") < 2:
            yield line
        else:
            yield from filter(None, _TAGS_OF_PAGES.split(line))


def _lines_between_gaps(part: Path, start: int, end: int, unpack_ratio: float, lost: Json) -> Iterator[bytes | None]:
    """Yield the lines of the content, with None for each gap in it."""
    is_bz2 = part.name.lower().endswith(".bz2")
    chunks = _streams_between_gaps(part, start, end, lost) if is_bz2 else _before_gap(part, unpack_ratio, lost)
    for is_gap, run in groupby(chunks, lambda chunk: chunk is None):
        if is_gap:
            yield from run
        else:
            yield from _lines_of_chunks(filter(None, run))


def _lines_of_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
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


def _before_gap(part: Path, unpack_ratio: float, lost: Json) -> Iterator[bytes | None]:
    position = 0
    try:
        for chunk, position in unpacked_dump(part, unpack_ratio):  # noqa: B007 - the last one is needed
            yield chunk
    except (OSError, *DAMAGE) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        lost["places"] += 1
        lost["bytes"] += part.stat().st_size - position
        yield None


def _streams_between_gaps(part: Path, start: int, end: int, lost: Json) -> Iterator[bytes | None]:
    """Yield the content of the bz2 streams that begin in the bytes [start, end), and None for what is not readable."""
    with part.open("rb") as file:
        size = part.stat().st_size
        position = start and next_stream(file, start)
        while position < end:
            file.seek(position)
            decompressor, packed, readable = bz2.BZ2Decompressor(), b"", position
            # A damaged block has content, which is nonsense; its checksum is compared when it has come out.
            unverified: list[bytes] = []
            try:
                if not STREAM_START.match(file.read(STREAM_START_BYTES)):
                    raise EOFError
                file.seek(position)
                while not decompressor.eof:
                    if decompressor.needs_input and not (packed := file.read(PIECE_BYTES)):
                        raise EOFError
                    content = decompressor.decompress(packed, PIECE_BYTES)
                    packed = b""
                    if content:
                        unverified.append(content)
                    # Within a block nothing comes out, so what is read of it counts as readable only at its end.
                    if unverified and len(content) < PIECE_BYTES and (decompressor.needs_input or decompressor.eof):
                        yield b"".join(unverified)
                        unverified, readable = [], file.tell()
                position = file.tell() - len(decompressor.unused_data)
            except (OSError, EOFError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                position = next_stream(file, max(position + 1, readable - PIECE_BYTES))
                lost["places"] += 1
                lost["bytes"] += max(0, position - readable)
                yield None
        # The next slice begins with a stream: if none begins here, nothing else counts the bytes before it.
        file.seek(position)
        if position < size and not STREAM_START.match(file.read(STREAM_START_BYTES)):
            lost["places"] += 1
            lost["bytes"] += next_stream(file, position) - position
            yield None
