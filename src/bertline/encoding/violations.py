"""Violations found by a validator: one line per violated rule, with its first sample and the number of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Violation:
    """A file's violation of one rule of its layout.

    Attributes:
        path, what: `{path}: {what}` is the message if it concerns the whole file.
        sample: the first sample that violates the rule, counted from 0 in its file; None for the whole file.
        more: how many later samples violate it, too.
    """

    path: Path
    what: str
    sample: int | None = None
    more: int = 0

    def __str__(self) -> str:
        record = "" if self.sample is None else f"sample {self.sample} "
        others = f" (and {self.more} more samples)" if self.more else ""
        return f"{self.path}: {record}{self.what}{others}"


def faulty_segments(
    ids: np.ndarray, lengths: np.ndarray, second: np.ndarray, *, cls_id: int, sep_id: int
) -> dict[str, np.ndarray]:
    """Return for each rule of [CLS], [SEP] and the segments which samples violate it: bool [N].

    Args:
        ids: of the concatenated samples, `lengths` [N] each.
        second: [N], where the second segment begins; 0 for none.
    """
    begins = np.cumsum(lengths) - lengths
    ends = begins + lengths - 1
    has_second = second > 0
    middles = begins + np.clip(second - 1, 0, lengths - 1)
    inside = np.ones(len(ids), dtype=bool)
    inside[begins] = inside[ends] = inside[middles[has_second]] = False
    return {
        "does not begin with [CLS]": ids[begins] != cls_id,
        "does not end with [SEP]": ids[ends] != sep_id,
        "has no [SEP] before its second segment": has_second & (ids[middles] != sep_id),
        "has an empty segment": np.where(has_second, (second < 3) | (second > lengths - 2), lengths < 3),
        "has [CLS] or [SEP] inside its text": np.add.reduceat(np.isin(ids, [cls_id, sep_id]) & inside, begins) > 0,
    }


class Violations:
    """The counts of a file's invalid samples, by rule, collected block by block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, tuple[int, int]] = {}

    def note(self, is_faulty: Mapping[str, np.ndarray], start: int) -> None:
        """Add a block. `is_faulty`: problem -> bool [samples of the block], the first being sample `start`."""
        for what, faulty in is_faulty.items():
            count = int(np.count_nonzero(faulty))
            if count:
                first, before = self._found.get(what, (start + int(np.argmax(faulty)), 0))
                self._found[what] = first, before + count

    def __iter__(self) -> Iterator[Violation]:
        for what, (first, count) in self._found.items():
            yield Violation(self._path, what, first, count - 1)
