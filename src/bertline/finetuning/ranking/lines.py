"""Lines of files with ids or texts, also compressed ones, with a limit on their length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.unpacking import UNPACK_RATIO, Allowance, as_damage_error, open_unpacked
from bertline.finetuning.tables import check_exists

MAX_LINE_BYTES = 2**24


def read_fields(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each line of a file of ids, for messages, and its fields.

    They are separated by tabs, or in a line without a tab by white space. Raises BertlineError as `read_lines` does.
    """
    for where, line in read_lines(path):
        yield where, line.split("\t") if "\t" in line else line.split()


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place of each line, for messages, and the line.

    Raises BertlineError for a file that is absent or damaged, an empty line, or one that is not UTF-8 or very long.
    """
    check_exists(path)
    number = 0
    allowance = Allowance(path, UNPACK_RATIO, advice="if it is not meant to harm, unpack it")
    try:
        with as_damage_error(str(path)), open_unpacked(path, allowance) as file:
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                where = f"{path}: line {number}"
                if len(line) == MAX_LINE_BYTES:
                    raise BertlineError(
                        f"{where}: longer than {MAX_LINE_BYTES} bytes; name a file with a text per line"
                    )
                if number == 1 and not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):
                    raise BertlineError(
                        f"{path}: lines end with CR, as on an old Mac; convert the file (tr '\\r' '\\n')"
                    )
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not text.strip():
                    raise BertlineError(f"{where}: empty; remove the line")
                yield where, text
    except UnicodeDecodeError as error:
        raise BertlineError(f"{path}: line {number}: not UTF-8 ({error.reason}); convert the file") from None
