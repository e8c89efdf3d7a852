"""What is expected of a file that is downloaded, and its beginning on the disk, `{destination}.part`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertline.console import progress_of_bytes

MAX_BYTES = 1 << 36  # of a file whose size is not known beforehand; MS MARCO's triples have 2 ** 34.7


class SourceRefused(Exception):
    """Raised if a source does not provide the requested file, or no usable one; the text is its response or why.

    Of a response of HTTP that is an error, it has the headers.
    """

    def __init__(self, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.headers = headers or {}


@dataclass(frozen=True)
class Expected:
    """Expected size of a file in bytes, and its checksums in hexadecimal; without a size, at most `max_size` bytes."""

    size: int | None = None
    sha1: str | None = None
    sha256: str | None = None
    max_size: int = MAX_BYTES

    @property
    def has_checksum(self) -> bool:
        """Whether the file can be verified, so that it cannot be replaced in transit."""
        return self.sha1 is not None or self.sha256 is not None

    def problem_of(self, path: Path) -> str | None:
        """Return how the file at `path` differs from what is expected, which is at least one byte, or None."""
        size = path.stat().st_size
        if self.size is not None and size != self.size:
            return f"{size} bytes instead of {self.size}"
        if size == 0 and self.size is None and not self.has_checksum:
            return "the file is empty"
        for algorithm, wanted in (("sha1", self.sha1), ("sha256", self.sha256)):
            if wanted is not None:
                with path.open("rb") as file:
                    found = hashlib.file_digest(file, algorithm).hexdigest()
                if found != wanted.lower():
                    return f"wrong checksum, {algorithm} {found[:12]}... instead of {wanted[:12]}..."
        return None


def write_part(pieces: Iterator[bytes], part: Path, mode: str, size: int | None, most: int) -> None:
    """Write the pieces to `part`. Raises SourceRefused, and deletes it, when it would have more than `most` bytes."""
    with part.open(mode) as file, progress_of_bytes(description=part.stem, total=size) as bar:
        left = most - file.tell()
        for piece in pieces:
            left -= len(piece)
            if left < 0:
                break
            file.write(piece)
            bar.update(len(piece))
        else:
            return
    part.unlink()
    raise SourceRefused(f"sends more than {most:,} bytes; what came was deleted")


def size_of(path: Path) -> int:
    """Return the size of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0
