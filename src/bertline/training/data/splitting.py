"""Split of a rank's part of a global batch into micro-batches, a pure function of the samples and the batching."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from bertline.training.data.batches import GlobalBatch
from bertline.training.data.shapes import Batching, Shape, round_up, smallest_for

# Tokens computed, over those of rows as long as each sample needs, above which a micro-batch of rows is made smaller.
MAX_PADDED_RATIO = 1.05


class Part(NamedTuple):
    """Samples of one micro-batch, and its shape if that is fixed."""

    batch: GlobalBatch
    shape: Shape | None


def split(batch: GlobalBatch, batching: Batching) -> list[Part]:
    """Split one rank's part of a global batch into micro-batches; none for an empty part."""
    pieces = _pack(batch, batching) if batching.packed else _split_rows(batch, batching)
    return [Part(batch.take(rows), shape) for rows, shape in pieces]


def shortest_alone(batch: GlobalBatch, batching: Batching) -> Part:
    """Return the shortest sample of a batch for a micro-batch of its own."""
    shape = smallest_for(int(batch.lengths[0]), batching.shapes) if batching.shapes else None
    return Part(batch.take(np.zeros(1, dtype=np.int64)), shape)


def _split_rows(batch: GlobalBatch, batching: Batching) -> list[tuple[np.ndarray, Shape | None]]:
    """Split the sorted samples into micro-batches of rows, longest first; the width is that of the longest left."""
    pieces: list[tuple[np.ndarray, Shape | None]] = []
    ends = np.concatenate([[0], np.cumsum(round_up(batch.lengths))])
    left = len(batch.samples)
    while left:
        longest = int(batch.lengths[left - 1])
        shape = smallest_for(longest, batching.shapes) if batching.shapes else None
        rows = shape.sequences if shape else _rows_of_width(round_up(longest), ends[: left + 1], batching)
        pieces.append((np.arange(max(0, left - rows), left), shape))
        left -= len(pieces[-1][0])
    return pieces


def _rows_of_width(width: int, ends: np.ndarray, batching: Batching) -> int:
    """Return how many of the last rows to take, which end at `ends`: fewer where they differ in length."""
    rows = max(1, batching.tokens // width)
    while rows * width >= 2 * batching.least_tokens:
        taken = min(rows, len(ends) - 1)
        if taken * width <= MAX_PADDED_RATIO * (ends[-1] - ends[-1 - taken]):
            break
        rows //= 2
    return rows


class _Bin:
    """A packed micro-batch that is being filled."""

    def __init__(self, number: int, tokens: int, shape: Shape | None) -> None:
        self.number, self.size, self.room, self.shape = number, tokens, tokens, shape
        self.sequences = shape.sequences if shape else tokens
        self.predictions = shape.predictions if shape else tokens
        self.rows: list[int] = []


def _pack(batch: GlobalBatch, batching: Batching) -> list[tuple[np.ndarray, Shape | None]]:
    """Fill micro-batches evenly with sequences, longest first: each goes where the largest share of room is left.

    This is the longest-processing-time rule (Graham 1969, Bounds on multiprocessing timing anomalies) over just as many
    micro-batches as the tokens need. Each gets the same mixture of lengths, so the number of sequences and of masked
    positions is about the same in all.
    """
    tokens = int(batch.lengths.sum())
    while True:
        bins = _make_bins(tokens, batching)
        missing = _fill(bins, batch)
        if not missing:
            return [(np.array(made.rows[::-1]), made.shape) for made in bins if made.rows]
        tokens = sum(made.size for made in bins) + missing


def _make_bins(tokens: int, batching: Batching) -> list[_Bin]:
    """Make the fewest tokens' worth of micro-batches that contain `tokens`: full ones, then small ones."""
    full = batching.shapes[-1] if batching.shapes else None
    small = batching.shapes[0] if len(batching.shapes) > 1 else None
    count, rest = divmod(tokens, batching.tokens)
    smalls = -(-rest // small.tokens) if small else 0
    if rest and (small is None or smalls * small.tokens >= batching.tokens):
        count, smalls = count + 1, 0
    shapes = [full] * count + [small] * smalls
    return [_Bin(number, shape.tokens if shape else batching.tokens, shape) for number, shape in enumerate(shapes)]


def _fill(bins: list[_Bin], batch: GlobalBatch) -> int:
    """Fill `bins`, whose first is one of the largest; return the number of tokens that found no room."""
    # Ordered by the share of room, which is negative to have the largest first.
    heap = [(-1.0, made.number, made) for made in bins]
    missing = 0
    lengths, counts = batch.lengths.tolist(), batch.masked_counts.tolist()
    for row in range(len(lengths) - 1, -1, -1):
        length, masked = lengths[row], counts[row]
        while heap:
            made = heap[0][2]
            if made.room < length and made.size == bins[0].size:
                missing += length  # no other has more
            elif made.room < length or not made.sequences or made.predictions < masked:
                heapq.heappop(heap)
                continue
            else:
                made.rows.append(row)
                made.room -= length
                made.sequences -= 1
                made.predictions -= masked
                heapq.heapreplace(heap, (-made.room / made.size, made.number, made))
            break
        else:
            missing += length
    return missing
