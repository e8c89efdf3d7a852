"""The encoding of a user's files: it is never guessed, but an error names the one to give."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from bertline.console import BertlineError
from bertline.corpus.encodings import (
    CHUNK_BYTES,
    HAS_NUL,
    MAX_NULS,
    Encodings,
    WrongEncoding,
    check_encoding,
    decoded,
    decodes_anything,
    first_that_decodes,
    mark_of,
    one_byte_encoding,
    utf_16_of,
)
from bertline.corpus.tables import is_delimited, is_table
from bertline.corpus.unpacking import (
    UNPACK_RATIO,
    Allowance,
    as_damage_error,
    is_archive,
    is_web_page,
    open_unpacked,
)

FILES_TO_CHECK, BYTES_TO_CHECK = 400, 1 << 28  # as they are packed; another file may be the reason to check
NAMED = 3
BEGINNING = 1 << 16
CONTEXT = 12  # bytes on both sides of a wrong one
# Encodings of Chinese, Japanese, Korean and Thai: most bytes of a text are 0x80 or more.
ASIAN, SHARE_OF_ASIAN = ("gb18030", "big5", "shift_jis", "euc-jp", "euc-kr", "cp874"), 0.5
SHOWN = 8  # characters


def parse_encodings(given: str) -> str | list[str]:
    """Read one encoding, or several with commas between. Raises BertlineError for what is none."""
    several = [part.strip() for part in given.split(",") if part.strip()]
    encodings = several if len(several) > 1 else (several or [given])[0]
    check_encoding(encodings)
    return encodings


def is_in_one_encoding(file: Path) -> bool:
    """Return whether all of a file is decoded by the corpus's encoding: plain text and CSV, by its name.

    The members of an archive have an encoding each. Web pages may declare theirs, and other tables are in UTF-8.
    """
    is_in_utf8 = is_table(file) and not is_delimited(file)
    return not (is_archive(file.name) or is_web_page(file.name) or is_in_utf8)


def encoding_of(file: Path, encodings: Sequence[str]) -> str:
    """Return the first of the encodings that decodes all of a file. Raises WrongEncoding if none does."""
    with opened(file) as stream, first_that_decodes(stream, str(file), encodings) as (_, encoding):
        return encoding


@contextmanager
def advice_on_encoding(files: Sequence[Path], encodings: Encodings) -> Iterator[None]:
    """Say how many of the files are not in the encodings, and what to give, where there is no configuration yet."""
    try:
        yield
    except WrongEncoding as error:
        several = [encodings] if isinstance(encodings, str) else list(encodings)
        texts = [file for file in files if is_in_one_encoding(file)]
        found = {file: error for file in texts if str(file) == error.name}
        if not found:  # a member of an archive
            given = ", ".join(several)
            such = f", as ENCODING={','.join(_with([error.advised], several))}" if error.advised else ""
            raise BertlineError(
                f"{error.name} is not {given}: {error.reason}; convert the file or give its encoding{such}"
            ) from None
        checked = _checked(texts, several, found)
        wrong = {file: problem for file, problem in checked.items() if problem is not None}
        raise BertlineError(_advice(wrong, len(checked), len(texts), several)) from None


def _checked(
    texts: Sequence[Path], encodings: Sequence[str], found: dict[Path, WrongEncoding]
) -> dict[Path, WrongEncoding | None]:
    """Return the files that were checked, in their order, with what is wrong with each: those `found`, and others."""
    checked: dict[Path, WrongEncoding | None] = {**found}
    left = BYTES_TO_CHECK
    for file in texts[:: max(1, len(texts) // FILES_TO_CHECK)]:
        if file in found:
            continue
        left -= file.stat().st_size
        if left >= 0:
            checked[file] = _problem_of(file, encodings)
    return {file: checked[file] for file in texts if file in checked}


def _problem_of(file: Path, encodings: Sequence[str]) -> WrongEncoding | None:
    try:
        encoding_of(file, encodings)
    except WrongEncoding as error:
        return error
    return None


def _advice(wrong: dict[Path, WrongEncoding], checked: int, number: int, encodings: Sequence[str]) -> str:
    names = ", ".join(file.name for file in list(wrong)[:NAMED]) + (", ..." if len(wrong) > NAMED else "")
    first, problem = next(iter(wrong.items()))
    begins = _beginning(first)
    mark = mark_of(begins)
    given = encodings[0] if len(encodings) == 1 else f"any of {', '.join(encodings)}"
    of = f"{checked} files" if checked == number else f"the {checked} files that were checked"
    what = f"{first} is not {given}, as {len(wrong)} of {of} ({names})"

    def to_give(others: Sequence[str]) -> str:
        return f"ENCODING={','.join(others if len(wrong) == number else _with(others, encodings))}"

    if mark is not None:
        advice = "replace it, it cannot be read" if mark in encodings else f"give {to_give([mark])}"
        return f"{what}: it begins with the mark of {mark}; {advice}"
    if begins.count(0) > MAX_NULS:
        return f"{what}: it has NUL bytes; {_advice_for_nul(begins)}"
    if problem.offset is None:
        advice = _advice_for_nul(begins) if problem.reason == HAS_NUL else "give another ENCODING, or convert the files"
        return f"{what}: {problem.reason}; {advice}"
    around, at = _around(first, problem.offset)
    needed = {file: _likely_encoding(file) for file, one in wrong.items() if file == first or _is_one_byte(file, one)}
    reading = needed[first]
    if reading != "utf-8" and (candidates := _asian(begins, encodings)):
        shown = " or ".join(f"{name} ('{text}')" for name, text in candidates.items())
        first_name = next(iter(candidates))
        name = first_name if len(candidates) == 1 else "NAME"  # the user chooses: a wrong one gives no error
        return (
            f"{what}: byte {problem.offset} is 0x{around[at]:02x}; if {shown} reads it well, give "
            f"{'its name as ' if name == 'NAME' else ''}{to_give([first_name]).replace(first_name, name)}, otherwise "
            f"another encoding, or convert the files (iconv -f {name} -t utf-8)"
        )
    before, after = (part.decode(reading, "replace") for part in (around[:at], around[at:]))
    word = re.split(r"\s", before)[-1] + re.split(r"\s", after)[0]
    others = [one for one in ("utf-8", "cp1252", "latin-1") if one in needed.values()]
    if reading == "utf-8":
        return f"{what}: byte {problem.offset} is 0x{around[at]:02x}; it is valid UTF-8, give {to_give(others)}"
    return (
        f"{what}: byte {problem.offset} is 0x{around[at]:02x}; if {reading} reads it well ('{word}'), give "
        f"{to_give(others)}, otherwise another encoding, or convert the files "
        f"(iconv -f {reading.replace('-', '')} -t utf-8)"
    )


def _asian(beginning: bytes, tried: Sequence[str]) -> dict[str, str]:
    """Return the Asian encodings that may be a text's, with some characters of it: all that decode it."""
    found: dict[str, str] = {}
    if sum(byte >= 0x80 for byte in beginning) <= SHARE_OF_ASIAN * len(beginning):
        return found
    for name in (name for name in ASIAN if name not in tried):
        with suppress(UnicodeError):
            text = codecs.getincrementaldecoder(name)().decode(beginning, final=len(beginning) < BEGINNING)
            found[name] = "".join(one for one in text if not one.isascii() and unicodedata.category(one)[0] in "LMN")
    return {name: text[:SHOWN] for name, text in found.items() if text}


def _is_one_byte(file: Path, problem: WrongEncoding) -> bool:
    return problem.offset is not None and mark_of(_beginning(file)) is None


def _likely_encoding(file: Path) -> str:
    """Return the encoding of a file: UTF-8 if it is valid there, or else one with a byte for each character."""
    with suppress(WrongEncoding), opened(file) as stream:
        for _ in decoded(stream, str(file), "utf-8"):
            pass
        return "utf-8"
    with opened(file) as stream:
        blocks = iter(partial(stream.read, CHUNK_BYTES), b"")
        return one_byte_encoding(islice(blocks, 1 + BYTES_TO_CHECK // CHUNK_BYTES))


def _with(others: Sequence[str], encodings: Sequence[str]) -> list[str]:
    """Return the encodings with others, in an order in which each can be tried: few texts in others are UTF-8."""
    rest = [one for one in encodings if one not in others]
    last = [one for one in (*others, *rest) if decodes_anything(one)][:1]
    tried = [one for one in (*rest, *others) if not decodes_anything(one)]
    return sorted(tried, key=lambda one: one != "utf-8") + last


def _around(file: Path, offset: int) -> tuple[bytes, int]:
    """Return the bytes around one of a file, and its place among them."""
    start = max(0, offset - CONTEXT)
    with opened(file) as stream:
        left = start
        if stream.seekable():
            left -= stream.seek(start)
        while left and (skipped := stream.read(min(left, CHUNK_BYTES))):
            left -= len(skipped)
        return stream.read(2 * CONTEXT), offset - start


def _advice_for_nul(begins: bytes) -> str:
    mark = mark_of(begins)
    if mark is not None:
        return f"it begins with the mark of {mark}; give ENCODING={mark}, or with others ENCODING=utf-8,{mark}"
    wide = utf_16_of(begins) or "utf-16-le"
    return f"leave it out if it is no text; text in UTF-16 without a mark has to be converted, or ENCODING={wide} given"


def _beginning(file: Path) -> bytes:
    with opened(file) as stream:
        return stream.read(BEGINNING)


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """Yield a stream of a file's content, unpacked. Raises BertlineError for a damaged file."""
    with as_damage_error(str(file)), open_unpacked(file, Allowance(file, UNPACK_RATIO)) as stream:
        yield stream
