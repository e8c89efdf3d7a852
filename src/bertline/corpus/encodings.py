"""The encoding of a text: the one that is given, or the first of several that decodes all of it.

Nothing is guessed: of several, the choice is a function of the text's bytes alone.
"""

from __future__ import annotations

import codecs
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast

from bertline.console import BertlineError

Encodings = str | Sequence[str]

CHUNK_BYTES = 1 << 20
SPOOLED_BYTES = 1 << 26  # in memory, of a compressed text that is read twice
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
    """A text is not in its encoding; `offset` is that of the first wrong byte, if one is."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


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
        if _decodes_anything(encoding):
            raise BertlineError(f"the encoding '{encoding}' decodes anything, so none after it is tried; put it last")


def _decodes_anything(encoding: str) -> bool:
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
        first_problem: tuple[str, int | None] | None = None
        for encoding in encodings:
            stream.seek(0)
            problem = _problem(stream, encoding)
            if problem is None:
                stream.seek(0)
                yield stream, encoding
                return
            first_problem = first_problem or problem
    reason, offset = first_problem or ("", None)
    raise WrongEncoding(
        f"{name} is none of {', '.join(encodings)}: {reason}; convert the file or set the corpus's encoding", offset
    )


def _problem(stream: BinaryIO, encoding: str) -> tuple[str, int | None] | None:
    """Return why the rest of a stream is not in an encoding, and the offset of the first wrong byte if one is."""
    decoder, offset = codecs.getincrementaldecoder(encoding)(), 0
    while True:
        chunk = stream.read(CHUNK_BYTES)
        undecoded = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            where = offset - undecoded + error.start
            return f"as {encoding} byte {where} is 0x{error.object[error.start]:02x} ({error.reason})", where
        except UnicodeError as error:  # without the mark that the encoding requires
            return f"as {encoding}: {error}", None
        if "\0" in text:
            return f"as {encoding} it has NUL characters", None
        offset += len(chunk)
        if not chunk:
            return None
