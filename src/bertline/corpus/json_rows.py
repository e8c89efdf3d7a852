"""Objects of a JSON file, one at a time: of JSON Lines, or of one array, as many programs export a table."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from bertline.console import BertlineError
from bertline.corpus.encodings import decoded

MAX_ROW_LENGTH = 1 << 25  # bytes, or characters; a row is read as a whole

_SPACES = b" \t\r\n"
_SPACE = re.compile(r"[ \t\n]*")
_NEXT = {"[": "{]", "}": ",]", ",": "{", "]": ""}  # what may follow each mark of an array of objects
_DECODER = json.JSONDecoder()

Row = dict[str, Any]


def json_objects(stream: BinaryIO, path: Path) -> Iterator[tuple[str, Row]]:
    """Yield where each object is, for errors, and the object.

    A file that begins with [ is one array of objects, in any layout; every other file has one object per line.

    Args:
        stream: a buffered one, at its start.
        path: for errors.

    Raises BertlineError naming a line or an element that is something else, or longer than MAX_ROW_LENGTH.
    """
    peek = cast(io.BufferedReader, stream).peek  # as much as is in its buffer, and at least a byte
    passed, ahead = 0, peek(1).removeprefix(codecs.BOM_UTF8)
    while ahead and not ahead.strip(_SPACES):
        passed += stream.read(len(peek(1))).count(b"\n")
        ahead = peek(1)
    of_kind = _elements if ahead.lstrip(_SPACES).startswith(b"[") else _lines
    return of_kind(stream, path, passed)


def _lines(stream: BinaryIO, path: Path, passed: int) -> Iterator[tuple[str, Row]]:
    """Yield the objects of lines like `json_objects`, the first of them after so many that are `passed`."""
    number = passed
    while line := stream.readline(MAX_ROW_LENGTH + 1):
        number += 1
        where = f"{path}, line {number}"
        if len(line) > MAX_ROW_LENGTH:
            raise BertlineError(f"{where} has more than {MAX_ROW_LENGTH} bytes; divide its document")
        line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
        except UnicodeDecodeError as error:
            wrong = f"its byte {error.start} is 0x{line[error.start]:02x} ({error.reason})"
            raise BertlineError(f"{where} is not utf-8: {wrong}; convert the file") from None
        except (ValueError, RecursionError) as error:
            advice = "every line has to be one object, or the whole file one array of objects"
            raise BertlineError(f"{where} is not JSON ({error}); {advice}") from None
        if not isinstance(row, dict):
            raise BertlineError(f"{where} is not a JSON object; every line has to be one object")
        yield where, row


def _elements(stream: BinaryIO, path: Path, passed: int) -> Iterator[tuple[str, Row]]:
    """Yield the objects of an array like `json_objects`, after so many lines that are `passed`."""
    text, at, enough, wanted, number, line = "", 0, 0, "[", 0, 1 + passed
    for more in chain(decoded(stream, str(path), "utf-8"), [None]):
        text, at, is_end = text[at:] + (more or ""), 0, more is None
        while True:
            start, at = at, cast(re.Match[str], _SPACE.match(text, at)).end()
            line += text.count("\n", start, at)
            mark = text[at : at + 1]
            if not mark or (mark == "{" and len(text) - at < enough and not is_end):
                break
            if mark not in wanted:
                raise BertlineError(f"{path}, line {line}: {_problem(wanted, number)}; fix the file")
            if mark != "{":
                at, wanted = at + 1, _NEXT[mark]
                continue
            try:
                row, end = _DECODER.raw_decode(text, at)
            except json.JSONDecodeError as error:
                if not is_end and len(text) - at <= MAX_ROW_LENGTH:
                    enough = 2 * (len(text) - at)  # otherwise the time for a row would grow with its square
                    break
                where = f"line {line + text.count(chr(10), at, error.pos)}"
                raise BertlineError(
                    f"{path}, row {number + 1} is not JSON ({error.msg}, {where}), "
                    f"{'or cut short; fix the file' if is_end else f'or has more than {MAX_ROW_LENGTH} characters'}"
                ) from None
            except (RecursionError, ValueError) as error:  # too many levels, or digits
                raise BertlineError(f"{path}, row {number + 1} is not JSON ({error}); fix the file") from None
            number += 1
            yield f"{path}, row {number}", row
            line += text.count("\n", at, end)
            at, enough, wanted = end, 0, _NEXT["}"]
    if wanted:
        raise BertlineError(f"{path}: the file ends within its array, after row {number}; copy it again")


def _problem(wanted: str, number: int) -> str:
    if not wanted:
        return "there is text after the end of the array"
    if "{" in wanted:
        return f"row {number + 1} of the array is not a JSON object"
    return f"row {number} of the array is followed by neither a comma nor its end"
