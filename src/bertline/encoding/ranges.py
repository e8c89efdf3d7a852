"""Index arithmetic on ranges and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np


def concatenated_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the concatenated integers of `[start, start + length)` for every pair.

    Args:
        starts, lengths: integer [N]; lengths may be 0.

    Returns:
        int64 [sum of lengths]
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if ends.size else 0
    shifts = np.asarray(starts, dtype=np.int64) - (ends - lengths)
    return np.arange(total, dtype=np.int64) + np.repeat(shifts, lengths)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Return where each of N consecutive pieces begins, and the end of the last: int64 [N + 1], the first is 0."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def offsets_of_blocks(blocks: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield `offsets_of`, as uint64, for blocks of lengths: the 0, then for each block the ends of its pieces."""
    end = np.zeros(1, dtype=np.uint64)
    yield end
    for lengths in blocks:
        ends = end[-1] + np.cumsum(lengths, dtype=np.uint64)
        end = ends if len(ends) else end
        yield ends
