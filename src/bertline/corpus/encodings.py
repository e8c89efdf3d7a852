"""The encoding of a text: the one that is given, or the first of several that decodes all of it.

Nothing is guessed: of several, the choice is a function of the text's bytes alone.
"""

from __future__ import annotations

import codecs
import io
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast

from bertline.console import BertlineError

Encodings = str | Sequence[str]

CHUNK_BYTES = 1 << 20
SPOOLED_BYTES = 1 << 26  # in memory, of a compressed text that is read twice
HAS_NUL = "it has NUL characters"
HAS_NO_MARK = "it has no byte order mark"
# A few NULs, or a small share of a text's first block, are damage; Latin text in UTF-16, read as UTF-8, has a half. Of
# Cyrillic and Arabic text only the spaces have NULs: a twelfth.
MAX_NULS, MAX_NUL_SHARE = 3, 0.01
# Windows' punctuation, which latin-1 reads as control characters; five of these bytes are not defined in cp1252.
_WINDOWS_BYTES = frozenset(range(0x80, 0xA0))
_NOT_IN_CP1252 = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))
_OTHER_BYTES = bytes(set(range(256)) - _WINDOWS_BYTES)
# They need no mark, and decode nearly everything that has an even length.
ALMOST_ANYTHING = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
# They rewrite escapes, or are for names of hosts.
NOT_OF_FILES = ("unicode-escape", "raw-unicode-escape", "idna", "punycode")
# Byte order marks; that of UTF-32-LE begins with that of UTF-16-LE.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class WrongEncoding(BertlineError):
    """A text is not in its encoding, or in none of several.

    Attributes:
        name: of the text.
        reason: why it is not in the first encoding.
        offset: of the first byte that is wrong there, if one is.
        advised: an encoding to try, by the bytes around, if one is known that was not tried.
    """

    def __init__(
        self,
        name: str,
        encodings: Sequence[str],
        reason: str,
        offset: int | None = None,
        advised: str | None = None,
    ) -> None:
        several = len(encodings) > 1
        what = f"none of {', '.join(encodings)}: as {encodings[0]}" if several else f"not {encodings[0]}:"
        self.name, self.reason, self.offset = name, reason, offset
        self.advised = advised if advised not in encodings else None
        such = f", such as {self.advised}" if self.advised else ""
        super().__init__(f"{name} is {what} {reason}; convert the file or set the corpus's encoding{such}")


def check_encoding(encodings: Encodings) -> None:
    """Raise BertlineError for an encoding that Python does not support, or that is none of text, such as base64.

    Of several, one that decodes anything must be the last: none after it would ever be tried.
    """
    several = [encodings] if isinstance(encodings, str) else list(encodings)
    for encoding in several:
        try:
            "x".encode(encoding)
            if codecs.lookup(encoding).name in NOT_OF_FILES:
                raise ValueError
        except (LookupError, ValueError):
            raise BertlineError(f"the encoding '{encoding}' is unknown; give one such as utf-8 or cp1252") from None
    for encoding in several[:-1]:
        if decodes_anything(encoding):
            raise BertlineError(f"the encoding '{encoding}' decodes anything, so none after it is tried; put it last")


def decodes_anything(encoding: str) -> bool:
    """Return whether no bytes, or nearly none of an even length, are wrong in an encoding."""
    if codecs.lookup(encoding).name in ALMOST_ANYTHING:
        return True
    try:
        bytes(range(256)).decode(encoding)
    except UnicodeError:
        return False
    return True


def mark_of(beginning: bytes) -> str | None:
    """Return the encoding of the byte order mark that bytes begin with, other than UTF-8's."""
    return next((encoding for mark, encoding in MARKS if beginning.startswith(mark)), None)


def one_byte_encoding(blocks: Iterable[bytes]) -> str:
    """Return cp1252 for text with bytes 0x80 to 0x9F that all are characters there, otherwise latin-1."""
    found: set[int] = set()
    for block in blocks:
        found.update(block.translate(None, _OTHER_BYTES))
    return "cp1252" if found and not found & _NOT_IN_CP1252 else "latin-1"


def encoding_to_try(block: bytes) -> str | None:
    """Return an encoding for bytes that are not in the given one: it has to be judged by reading the text."""
    if mark_of(block) or _are_many(block.count(0), len(block)):
        return utf_16_of(block)
    return one_byte_encoding([block])


def _are_many(nuls: int, length: int) -> bool:
    """Return whether a text with so many NULs in `length` characters is none, or in UTF-16."""
    return nuls > max(MAX_NULS, MAX_NUL_SHARE * length)


def utf_16_of(beginning: bytes) -> str | None:
    """Return the kind of UTF-16 or UTF-32 that bytes with NULs are in, by their mark or the places of the NULs."""
    first, second = beginning[::2].count(0), beginning[1::2].count(0)
    unmarked = "utf-16-le" if second > 4 * first else "utf-16-be" if first > 4 * second else None
    return mark_of(beginning) or unmarked


@contextmanager
def first_that_decodes(stream: BinaryIO, name: str, encodings: Sequence[str]) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the whole text again and the first of `encodings` that decodes all of it; of several, without any NUL.

    Args:
        stream: at its start. One that cannot go back there, such as a compressed file, is kept meanwhile: in memory, or
            in a temporary file if it is large.
        name: for the error.

    Raises WrongEncoding, with the offset of the first wrong byte in the first encoding, if none does.
    """
    with tempfile.SpooledTemporaryFile(SPOOLED_BYTES) as spooled:
        if not stream.seekable():
            shutil.copyfileobj(stream, spooled, CHUNK_BYTES)
            stream = cast(BinaryIO, spooled)
        first: WrongEncoding | None = None
        for encoding in encodings:
            stream.seek(0)
            try:
                for text in decoded(stream, name, encoding):
                    if "\0" in text and len(encodings) > 1:
                        stream.seek(0)
                        raise WrongEncoding(name, [encoding], HAS_NUL, advised=utf_16_of(stream.read(CHUNK_BYTES)))
            except WrongEncoding as error:
                first = first or error
                continue
            stream.seek(0)
            yield stream, encoding
            return
    reason, offset, advised = (first.reason, first.offset, first.advised) if first else ("", None, None)
    raise WrongEncoding(name, encodings, reason, offset, advised)


def decoded(stream: BinaryIO, name: str, encoding: str) -> Iterator[str]:
    """Yield a text in pieces, with a newline for each CR, LF or CRLF.

    Raises WrongEncoding for bytes that are not in the encoding, and for a first block with many NUL characters.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=True)
    offset, is_start = 0, True
    while True:
        chunk = stream.read(CHUNK_BYTES)
        undecoded = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:
            # Of utf-16 without its mark, with a position since Python 3.13.
            if not isinstance(error, UnicodeDecodeError) or "BOM" in error.reason:
                raise WrongEncoding(name, [encoding], HAS_NO_MARK, advised=utf_16_of(chunk)) from None
            where = offset - undecoded + error.start
            reason = f"byte {where} is 0x{error.object[error.start]:02x} ({error.reason})"
            raise WrongEncoding(name, [encoding], reason, where, encoding_to_try(error.object)) from None
        if is_start and _are_many(text.count("\0"), len(text)):
            raise WrongEncoding(name, [encoding], HAS_NUL, advised=utf_16_of(chunk))
        # A byte order mark; the codec utf-8-sig skips it, too, but takes the first byte of one for an empty file.
        yield text.removeprefix("\ufeff") if is_start else text
        is_start = is_start and not text
        offset += len(chunk)
        if not chunk:
            return
