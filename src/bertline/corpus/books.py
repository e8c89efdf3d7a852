"""Books of Project Gutenberg, by their numbers, from its mirrors.

https://www.gutenberg.org/policy/robot_access.html: the project's own site is for people and blocks programs. Programs
use a mirror, with two seconds between requests; a mirror has a book at one of several paths.
"""

from __future__ import annotations

import re
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.download import download
from bertline.corpus.expected_file import Expected
from bertline.files import read_text, sha256_of_file, write_text

WAIT_SECONDS = 2.0
MAX_BOOK_BYTES = 1 << 28
_CHECKSUM = re.compile(r"([0-9a-f]{64}) [ *](?:.*/)?([^/]+)")


def download_book(
    book: int, output: Path, *, mirrors: list[str], sha256: str | None = None, contact: str | None = None
) -> None:
    """Download the plain text of a book in UTF-8, and wait after each address that is asked for it.

    The first download records its checksum in the file `{output}.sha256`, in the format of `sha256sum`. This file is
    never deleted automatically; later downloads are compared with it.

    Args:
        book: its number.
        output: the file to write.
        mirrors: URLs, or folders with a copy; tried in order.
        sha256: of the file; without it, the recorded one.
        contact: an e-mail address or a URL, for the User-Agent.

    Raises BertlineError if no mirror has it, or only one with another checksum.
    """
    record = Path(f"{output}.sha256")
    recorded = read_checksums(record).get(output.name) if record.exists() else None
    expected = Expected(sha256=sha256 or recorded, max_size=MAX_BOOK_BYTES)
    sources = [f"{mirror.rstrip('/')}/{path}" for mirror in mirrors for path in paths_of_book(book)]
    try:
        download(sources, output, expected, contact=contact, pause=WAIT_SECONDS)
    except BertlineError as error:
        if "wrong checksum" in str(error) and not sha256:
            raise BertlineError(
                f"{error}; if Project Gutenberg has corrected the book and you want the new text, delete {record} "
                "and the results of its corpus"
            ) from None
        raise
    if recorded is None:
        write_text(record, f"{sha256_of_file(output)}  {output.name}\n")


def paths_of_book(book: int) -> list[str]:
    """Return where a mirror may have the text of a book, in UTF-8 or ASCII, in the order of preference."""
    digits = str(book)
    folder = "/".join(digits[:-1]) or "0"
    return [
        f"cache/epub/{book}/pg{book}.txt",
        f"{folder}/{book}/{book}-0.txt",
        f"{folder}/{book}/{book}.txt",
    ]


def read_checksums(path: Path) -> dict[str, str]:
    """Read the checksums by file name from what `sha256sum` writes. Raises BertlineError naming another line."""
    found = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        match = _CHECKSUM.fullmatch(line)
        if match is None:
            raise BertlineError(f"{path}, line {number} is not a checksum as sha256sum writes it; make the file again")
        found[match[2]] = match[1]
    return found
