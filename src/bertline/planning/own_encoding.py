"""The encoding of a person's own files: it is never guessed, but an error names the one to give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.encodings import Encodings, WrongEncoding, check_encoding, first_that_decodes, mark_of
from bertline.corpus.tables import is_table
from bertline.corpus.unpacking import (
    ARCHIVES,
    UNPACK_RATIO,
    Allowance,
    as_damage_error,
    is_web_page,
    name_without_compression,
    open_unpacked,
)

FILES_TO_CHECK = 400
NAMED = 3
BEGINNING = 1 << 16
CONTEXT = 12  # bytes on both sides of a wrong one


def parse_encodings(given: str) -> str | list[str]:
    """Read one encoding, or several with commas between. Raises BertlineError for what is none."""
    several = [part.strip() for part in given.split(",") if part.strip()]
    encodings = several if len(several) > 1 else (several or [given])[0]
    check_encoding(encodings)
    return encodings


def refuse_nul(file: Path, lines: Sequence[str], encodings: Encodings) -> None:
    """Raise BertlineError, with what to give, if the first lines of a file have NUL characters: it is no such text."""
    if any("\0" in line for line in lines):
        given = encodings if isinstance(encodings, str) else ",".join(encodings)
        raise BertlineError(f"{file} is not {given}: it has NUL characters; {_advice_for_nul(_beginning(file))}")


def is_in_one_encoding(file: Path) -> bool:
    """Return whether all of a file is decoded by the corpus's encoding: plain text and CSV, by its name.

    The members of an archive have an encoding each. Web pages may declare theirs, and other tables are in UTF-8.
    """
    name = name_without_compression(file.name)
    is_other = file.name.endswith(ARCHIVES) or is_web_page(file.name) or (is_table(file) and not name.endswith(".csv"))
    return not is_other


def encoding_of(file: Path, encodings: Sequence[str]) -> str:
    """Return the first of the encodings that decodes all of a file. Raises WrongEncoding if none does."""
    with (
        as_damage_error(str(file)),
        open_unpacked(file, Allowance(file, UNPACK_RATIO)) as stream,
        first_that_decodes(stream, str(file), encodings) as (_, encoding),
    ):
        return encoding


@contextmanager
def advice_on_encoding(files: Sequence[Path], encodings: Encodings) -> Iterator[None]:
    """Say how many of the files are not in the encodings, and what to give, where there is no configuration yet."""
    try:
        yield
    except WrongEncoding as error:
        several = [encodings] if isinstance(encodings, str) else list(encodings)
        step = max(1, len(files) // FILES_TO_CHECK)
        checked = [file for file in files[::step] if not file.name.endswith(ARCHIVES)]
        wrong = {file: offset for file in checked if (offset := _wrong_at(file, several)) is not None}
        if not wrong:  # a member of an archive
            raise BertlineError(
                str(error).replace("set the corpus's encoding", "give its encoding, as ENCODING=latin-1")
            ) from None
        raise BertlineError(_advice(wrong, len(checked), several)) from None


def _wrong_at(file: Path, encodings: Sequence[str]) -> int | None:
    """Return the offset of the first wrong byte, -1 for another reason, or None for a file in one of the encodings."""
    try:
        encoding_of(file, encodings)
    except WrongEncoding as error:
        return -1 if error.offset is None else error.offset
    return None


def _advice(wrong: dict[Path, int], checked: int, encodings: Sequence[str]) -> str:
    names = ", ".join(file.name for file in list(wrong)[:NAMED]) + (", ..." if len(wrong) > NAMED else "")
    first, offset = next(iter(wrong.items()))
    begins = _beginning(first)
    mark = mark_of(begins)
    given = encodings[0] if len(encodings) == 1 else f"any of {', '.join(encodings)}"
    what = f"{first} is not {given}, as {len(wrong)} of {checked} files ({names})"
    other = mark or "latin-1"
    more = other if len(wrong) == checked else ",".join([*(one for one in encodings if one != other), other])
    if mark is not None:
        return f"{what}: it begins with the mark of {mark}; give ENCODING={more}"
    if b"\0" in begins:
        return f"{what}: it has NUL bytes; {_advice_for_nul(begins)}"
    with as_damage_error(str(first)), open_unpacked(first, Allowance(first, UNPACK_RATIO)) as stream:
        stream.read(max(0, offset - CONTEXT))
        around = stream.read(2 * CONTEXT)
    at = min(max(0, offset), CONTEXT)
    word = re.split(r"\s", around[:at].decode("latin-1"))[-1] + re.split(r"\s", around[at:].decode("latin-1"))[0]
    return (
        f"{what}: byte {offset} is 0x{around[at]:02x}; if latin-1 reads it well ('{word}'), give ENCODING={more}, "
        "otherwise another encoding, or convert the files (iconv -f latin1 -t utf-8)"
    )


def _advice_for_nul(begins: bytes) -> str:
    mark = mark_of(begins)
    if mark is not None:
        return f"it begins with the mark of {mark}; give ENCODING={mark}, or with others ENCODING=utf-8,{mark}"
    return (
        "leave it out if it is no text; text in UTF-16 without a mark has to be converted, or ENCODING=utf-16-le given"
    )


def _beginning(file: Path) -> bytes:
    with as_damage_error(str(file)), open_unpacked(file, Allowance(file, UNPACK_RATIO)) as stream:
        return stream.read(BEGINNING)
