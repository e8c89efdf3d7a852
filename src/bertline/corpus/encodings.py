"""The encoding of a text: the one that is given, or the first of several that decodes all of it.

Nothing is guessed: of several, the choice is a function of the text's bytes alone.
"""

from __future__ import annotations

import codecs
import io
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast

from bertline.console import BertlineError

Encodings = str | Sequence[str]

CHUNK_BYTES = 1 << 20
SPOOLED_BYTES = 1 << 26  # in memory, of a compressed text that is read twice
HAS_NUL = "it has NUL characters"
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
    """

    def __init__(self, name: str, encodings: Sequence[str], reason: str, offset: int | None = None) -> None:
        several = len(encodings) > 1
        what = f"none of {', '.join(encodings)}: as {encodings[0]}" if several else f"not {encodings[0]}:"
        super().__init__(f"{name} is {what} {reason}; convert the file or set the corpus's encoding")
        self.name, self.reason, self.offset = name, reason, offset


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
            raise BertlineError(f"the encoding '{encoding}' is unknown; give one such as utf-8 or latin-1") from None
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


@contextmanager
def first_that_decodes(stream: BinaryIO, name: str, encodings: Sequence[str]) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the whole text again and the first of `encodings` that decodes all of it, without NUL characters.

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
                    if "\0" in text:
                        raise WrongEncoding(name, [encoding], HAS_NUL)
            except WrongEncoding as error:
                first = first or error
                continue
            stream.seek(0)
            yield stream, encoding
            return
    reason, offset = (first.reason, first.offset) if first else ("", None)
    raise WrongEncoding(name, encodings, reason, offset)


def decoded(stream: BinaryIO, name: str, encoding: str) -> Iterator[str]:
    """Yield a text in pieces, with a newline for each CR, LF or CRLF.

    Raises WrongEncoding for bytes that are not in the encoding.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=True)
    offset, is_start = 0, True
    while True:
        chunk = stream.read(CHUNK_BYTES)
        undecoded = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            where = offset - undecoded + error.start
            reason = f"byte {where} is 0x{error.object[error.start]:02x} ({error.reason})"
            raise WrongEncoding(name, [encoding], reason, where) from None
        except UnicodeError as error:  # of a text without the mark that its encoding requires, as utf-16
            raise WrongEncoding(name, [encoding], str(error)) from None
        # A byte order mark; the codec utf-8-sig skips it, too, but takes the first byte of one for an empty file.
        yield text.removeprefix("\ufeff") if is_start else text
        is_start = is_start and not text
        offset += len(chunk)
        if not chunk:
            return
