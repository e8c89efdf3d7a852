"""Books and a person's own texts: plain text files to documents."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from bertline.console import BertlineError, progress
from bertline.corpus.documents import Document, Dropped, tidy, write_documents

CHUNK_BYTES = 1 << 20
# Hard-wrapped text has short lines; where one is longer than this, a line is a paragraph.
LONGEST_WRAPPED_LINE = 200

_GUTENBERG_START = re.compile(r"\*\*\* ?START OF TH(?:E|IS) PROJECT GUTENBERG|\*END\*? ?THE SMALL PRINT", re.IGNORECASE)
_GUTENBERG_END = re.compile(r"(?:\*\*\* ?)?END OF (?:TH(?:E|IS) )?PROJECT GUTENBERG", re.IGNORECASE)


def read_files(
    files: list[str],
    documents: Path | str,
    counts: Path | str,
    *,
    source: str,
    encoding: str = "utf-8",
    separator: str | None = None,
    minimum_characters: int = 1,
) -> None:
    """Turn text files, `.txt` or `.txt.gz`, into the documents of one part, in the order given.

    Parameters
    ----------
    files: paths; they become the documents' ids, so how they are written (relative, absolute) matters.
    documents, counts: the two files to write, see `documents.write_documents`. The counts also say how many `files`,
        and how many lines of Project Gutenberg's header and footer were cut off (`gutenberg_lines_removed`).
        Reasons to drop: `empty`, `short`.
    source: stands in every document.
    encoding: any that Python knows.
    separator: a line that stands between two documents of a file; without one a file is one document.
    minimum_characters: shorter texts are dropped.

    Raises BertlineError for a file that is missing, not in the encoding (with the offset of the first wrong byte), or
    not gzip.
    """
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise BertlineError(f"the encoding '{encoding}' is unknown; give one such as utf-8 or latin-1") from None
    more: dict[str, Any] = {"files": len(files), "gutenberg_lines_removed": 0}

    def records() -> Iterator[Document | Dropped]:
        for file in progress(files, description=source, unit="files", total=len(files)):
            for number, lines in enumerate(_divide(_lines(Path(file), encoding), separator)):
                content = _without_gutenberg(lines)
                more["gutenberg_lines_removed"] += len(lines) - len(content)
                text = "\n".join(paragraphs(content))
                if len(text) < max(1, minimum_characters):
                    yield Dropped("short" if text else "empty")
                    continue
                identity = file if separator is None else f"{file}#{number}"
                title = tidy(Path(file).name.removesuffix(".gz").removesuffix(".txt"))
                yield Document(id=identity, title=title, text=text, source=source, url="")

    write_documents(records(), documents, counts, more)


def paragraphs(lines: list[str]) -> Iterator[str]:
    """The tidy paragraphs of a text, each with a letter or digit.

    Blank lines part them; what stands between is joined, as books are wrapped by hand. Where a line is so long that
    nobody wrapped it, every line is a paragraph.
    """
    tidied = [tidy(line) for line in lines]
    is_wrapped = all(len(line) <= LONGEST_WRAPPED_LINE for line in tidied)
    paragraph: list[str] = []
    for line in [*tidied, ""]:
        if line:
            paragraph.append(line)
        if paragraph and (not line or not is_wrapped):
            joined = tidy(" ".join(paragraph))
            if any(character.isalnum() for character in joined):  # not one of the rows of stars between scenes
                yield joined
            paragraph = []


def _divide(lines: Iterable[str], separator: str | None) -> Iterator[list[str]]:
    """Cut lines into documents at every line that is the separator (white space at the ends aside)."""
    document: list[str] = []
    for line in lines:
        if separator is not None and line.strip() == separator.strip():
            yield document
            document = []
        else:
            document.append(line)
    yield document


def _without_gutenberg(lines: list[str]) -> list[str]:
    """Cut off Project Gutenberg's licence: from the first end marker on, and up to the last start marker before it.

    Some files have the licence's own "small print" marker after the end of the book.
    """
    end = next((number for number, line in enumerate(lines) if _GUTENBERG_END.match(line.strip())), len(lines))
    starts = [number for number, line in enumerate(lines[:end]) if _GUTENBERG_START.match(line.strip())]
    return lines[starts[-1] + 1 if starts else 0 : end]


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a file, without their ends, whichever of the three kinds these are."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            unfinished = ""
            for text in _decoded(file, path, encoding):
                pieces = (unfinished + text).replace("\r\n", "\n")
                # A carriage return at the end may be half of a line end.
                held_back = "\r" if pieces.endswith("\r") else ""
                whole = pieces.removesuffix("\r").replace("\r", "\n").split("\n")
                unfinished = whole.pop() + held_back
                yield from whole
            if unfinished:
                yield unfinished.removesuffix("\r")
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BertlineError(f"{path} is not a sound gzip file ({error}); replace it") from None


def _decoded(file: BufferedIOBase, path: Path, encoding: str) -> Iterator[str]:
    # A byte order mark is no text; utf-8-sig reads files without one as well.
    name = codecs.lookup(encoding).name
    decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else encoding)()
    offset = 0
    while True:
        chunk = file.read(CHUNK_BYTES)
        undecoded = len(decoder.getstate()[0])
        try:
            yield decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            where = offset - undecoded + error.start
            raise BertlineError(
                f"{path} is not {encoding}: byte {where} is 0x{error.object[error.start]:02x} ({error.reason}); "
                "convert the file or set the corpus's encoding"
            ) from None
        offset += len(chunk)
        if not chunk:
            return
