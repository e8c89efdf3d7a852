"""What a validator finds: a line for each rule that a file breaks, with its first record and how many more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Violation:
    """A rule of a layout that a file breaks.

    Attributes
    ----------
    path, what: `{path}: {what}` is the message where no record is to blame.
    sample: the first sample that breaks the rule, counted from 0 in its file; None where the whole file does.
    more: how many samples after it break it too.
    """

    path: Path
    what: str
    sample: int | None = None
    more: int = 0

    def __str__(self) -> str:
        record = "" if self.sample is None else f"sample {self.sample} "
        others = f" (and {self.more} more samples)" if self.more else ""
        return f"{self.path}: {record}{self.what}{others}"


class Violations:
    """Counts the faulty samples of a file, rule by rule, while its blocks pass by."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, tuple[int, int]] = {}

    def note(self, is_faulty: Mapping[str, np.ndarray], start: int) -> None:
        """`is_faulty`: what is wrong -> bool [samples of the block], whose first is sample `start` of the file."""
        for what, faulty in is_faulty.items():
            count = int(np.count_nonzero(faulty))
            if count:
                first, before = self._found.get(what, (start + int(np.argmax(faulty)), 0))
                self._found[what] = first, before + count

    def __iter__(self) -> Iterator[Violation]:
        for what, (first, count) in self._found.items():
            yield Violation(self._path, what, first, count - 1)
