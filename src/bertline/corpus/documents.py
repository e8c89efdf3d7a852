"""The file format of documents: `*.jsonl.zst`, one JSON object per line, and the counts of how they were made.

A document has exactly the keys of `Document`. All texts are in Unicode's NFC. `text` consists of paragraphs separated
by single newlines; paragraphs and titles have no leading or trailing white space, no white space but single spaces
inside, and no control characters. Version 1.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from bertline.console import BertlineError
from bertline.corpus.compressed import read_compressed, write_compressed
from bertline.files import one_line_damage, read_object, write_json


class Document(TypedDict):
    """One article, book or text."""

    id: str  # of its source; documents of one id, such as versions of a text, are held out and sampled together
    title: str
    text: str
    source: str  # the dump or collection that it is from
    url: str  # may be empty


class Dropped(NamedTuple):
    """The reason why a document that was read is not kept."""

    reason: str


_CONTROL = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
# Soft hyphen, zero-width space, directions, word joiner, byte order mark, interlinear marks. The zero-width joiner and
# non-joiner stay: they are part of the spelling in Persian and in the languages of India.
_INVISIBLE = (0xAD, 0x200B, *range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
_REPLACEMENTS: dict[int, str | None] = {
    **dict.fromkeys(_CONTROL, " "),
    **dict.fromkeys((*_INVISIBLE, *range(0xFFF9, 0xFFFC))),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),  # half a surrogate pair cannot be written as UTF-8
}
# White space among them needs no replacement: `split` handles it.
_REPLACED = re.compile("[" + "".join(re.escape(chr(code)) for code in _REPLACEMENTS if not chr(code).isspace()) + "]")


def tidy(line: str) -> str:
    """Return a paragraph or title in the form used in documents: NFC, no control characters, single spaces."""
    # Translating is slow and rarely needed: no replaced character is printable. This check is 3 to 10 times faster.
    is_printable = line.isprintable()
    if not is_printable and _REPLACED.search(line):
        line = line.translate(_REPLACEMENTS)
    line = unicodedata.normalize("NFC", line)
    # The only white space that is printable is a space.
    is_tidy = is_printable and "  " not in line and line[:1] != " " != line[-1:]
    return line if is_tidy else " ".join(line.split())


def problem_of(document: Any) -> str | None:
    """Return how a document violates the format, or None."""
    if not isinstance(document, dict) or set(document) != set(Document.__annotations__):
        return f"its keys are not {', '.join(Document.__annotations__)}"
    for key, value in document.items():
        if not isinstance(value, str):
            return f"{key} is not text"
    lines = {f"paragraph {number}": line for number, line in enumerate(document["text"].split("\n"), 1)}
    for name, line in {"id": document["id"], "text": document["text"], **lines}.items():
        if not line:
            return f"its {name} is empty"
    for name, line in {"title": document["title"], **lines}.items():
        if line != tidy(line):
            return f"its {name} is not NFC, or has control characters or superfluous white space"
    return None


def encode_document(document: Document) -> bytes:
    """Return the line of a document, with its newline: equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def write_documents(
    records: Iterable[Document | Dropped], documents: Path | str, counts: Path | str, more: dict[str, Any] | None = None
) -> None:
    """Write one part of a corpus and its counts, each atomically.

    Args:
        records: everything that was read, in order; `Dropped` for what is not kept.
        documents: the `.jsonl.zst` to write.
        counts: the `.counts.json` to write: `read`, `kept`, `dropped` by reason (`read` is the sum of the other two),
            `characters` and `bytes` (UTF-8) of the kept texts, and the content of `more`.
        more: further counts; evaluated once `records` is exhausted.
    """
    kept = characters = size = 0
    dropped: Counter[str] = Counter()
    with write_compressed(documents) as file:
        for record in records:
            if isinstance(record, Dropped):
                dropped[record.reason] += 1
                continue
            file.write(encode_document(record))
            kept += 1
            characters += len(record["text"])
            size += len(record["text"].encode())
            del record  # before the next is made
    summary = {"read": kept + dropped.total(), "kept": kept, "dropped": dict(dropped)}
    write_json(counts, summary | {"characters": characters, "bytes": size} | (more or {}))


def read_documents(path: Path | str) -> Iterator[Document]:
    """Yield every document of a part, in order. Raises BertlineError naming a line that is not JSON."""
    with read_compressed(path) as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BertlineError(f"{path}, line {number} is not JSON ({error}); make the file again") from None


def validate_documents(path: Path | str, counts: Path | str | None = None) -> int:
    """Check a part against the format, and against its counts if given; return its number of documents.

    Raises BertlineError naming the first invalid record, and for counts that do not match or are damaged.
    """
    number = 0
    for number, document in enumerate(read_documents(path), 1):
        problem = problem_of(document)
        if problem:
            raise BertlineError(f"{path}, line {number}: {problem}; make the file again")
    if counts is not None:
        with one_line_damage(counts):
            stated = read_object(counts, "kept", "read", "dropped")
            read = number + sum(stated["dropped"].values())
        if stated["kept"] != number or stated["read"] != read:
            raise BertlineError(f"{counts} does not match the {number} documents of {path}; make both again")
    return number
