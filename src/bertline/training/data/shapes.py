"""Shapes of micro-batches: how many tokens, in rows or packed, and the few shapes that compiled programs are made for.

Samples are of all lengths, and a compiled program is of one shape. A phase gets as many programs as pay: the widths of
rows, and the number of rows at each width, are chosen by the lengths of its samples, so that there is little padding.
The choice is a pure function of the data, the recipe, the number of ranks and the size of a micro-batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from bertline.encoding.dataset import SampleReader
from bertline.encoding.masking import Masking, count_masked
from bertline.training.data.batches import GlobalBatch

Number = TypeVar("Number", int, np.ndarray)

LENGTH_MULTIPLE = 8
MAX_WIDTHS = 16
# The fewest widths are used whose computed tokens per real token are at most GOOD_ENOUGH, or at most AS_GOOD above the
# minimum.
GOOD_ENOUGH = 1.045
AS_GOOD = 0.004
# A micro-batch of narrow rows has at most SHARE_OF_WIDTH of the samples expected of its width, so that the last one,
# which may get only a few, has few empty rows. It has at least MIN_SHARE of the tokens of full rows, and MIN_TOKENS.
SHARE_OF_WIDTH = 1 / 4
MIN_SHARE = 1 / 16
MIN_TOKENS = 1024
# What is left after full packed micro-batches goes into smaller ones, of SMALL_SHARE of the tokens, if these have
# room for SEQUENCES_OF_SMALL of the longest sequences.
SMALL_SHARE = 1 / 8
SEQUENCES_OF_SMALL = 4


class Shape(NamedTuple):
    """Shape of the micro-batches of one compiled program.

    Attributes:
        length: of a row; packed, of the longest sequence.
        tokens: including padding.
        sequences: number of rows; packed, the most sequences, without those made of padding.
        predictions: most masked positions.
    """

    length: int
    tokens: int
    sequences: int
    predictions: int

    def __str__(self) -> str:
        """Return rows x width, or the tokens of a packed one."""
        in_rows = self.tokens == self.sequences * self.length
        return f"{self.sequences} x {self.length}" if in_rows else f"1 x {self.tokens}"


@dataclass(frozen=True)
class Batching:
    """How the samples of a phase become micro-batches.

    Attributes:
        sequence_length: maximum length of a sample.
        rows: full-length rows in a micro-batch, which determine its tokens; narrower rows are more.
        packed: concatenate sequences instead of padding them to rows.
        shapes: of compiled programs, in ascending order; empty if shapes may follow the samples.
        mask_free: omit the attention mask of micro-batches of the largest fixed shape that have no padding. This makes
            one more program, which may be much faster.
    """

    sequence_length: int
    rows: int
    packed: bool = False
    shapes: tuple[Shape, ...] = ()
    mask_free: bool = False

    @property
    def tokens(self) -> int:
        """Maximum number of tokens in a micro-batch, including padding."""
        return self.rows * self.sequence_length

    @property
    def least_tokens(self) -> float:
        """Number of tokens below which no micro-batch of rows is made smaller to save padding."""
        return max(MIN_SHARE * self.tokens, min(MIN_TOKENS, self.tokens))


def fix_shapes(
    batching: Batching,
    reader: SampleReader,
    masking: Masking,
    typical: GlobalBatch,
    *,
    samples: int,
    most: int = MAX_WIDTHS,
) -> Batching:
    """Return `batching` with the fixed shapes for the samples of `reader`.

    Args:
        typical: a large global batch, whose lengths and masks are taken for those of all.
        samples: expected in a rank's part of a global batch.
        most: number of shapes.
    """
    if batching.packed:
        return replace(batching, shapes=_packed_shapes(batching, reader, masking, typical)[-most:])
    # The rank's part that has the quantiles of the typical lengths.
    indices = (np.arange(samples) + 0.5) * len(typical.lengths) / samples
    lengths = typical.lengths[indices.astype(np.int64)]
    choices = [_row_shapes(batching, reader, masking, lengths, count) for count in range(1, most + 1)]
    costs = [_computed(lengths, shapes) / int(lengths.sum()) for shapes in choices]
    limit = max(GOOD_ENOUGH, min(costs) + AS_GOOD)
    return replace(batching, shapes=next(shapes for shapes, cost in zip(choices, costs, strict=True) if cost <= limit))


def full_shape(batching: Batching, reader: SampleReader, masking: Masking, typical: GlobalBatch) -> Shape:
    """Return the largest shape: rows of full length, or packed."""
    if batching.packed:
        return _packed_shape(batching.tokens, reader, masking, typical)
    return row_shape(batching.rows, batching.sequence_length, reader, masking)


def row_shape(rows: int, width: int, reader: SampleReader, masking: Masking) -> Shape:
    """Return the shape of `rows` rows of `width` tokens, with room for the most masked positions of such samples."""
    if reader.mask_counts is None:
        a_row = int(count_masked(np.array([width]), masking)[0])
    else:
        a_row = int(reader.mask_counts[reader.lengths <= width].max(initial=1))
    return Shape(width, rows * width, rows, rows * a_row)


def smallest_for(length: int, shapes: tuple[Shape, ...]) -> Shape:
    """Return the first shape for sequences of `length`."""
    return next(shape for shape in shapes if shape.length >= length)


def round_up(length: Number) -> Number:
    """Round up to a multiple of `LENGTH_MULTIPLE`."""
    return -(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE


def _row_shapes(
    batching: Batching, reader: SampleReader, masking: Masking, lengths: np.ndarray, count: int
) -> tuple[Shape, ...]:
    """Return shapes of rows with at most `count` widths; `lengths`, ascending, are those expected in a rank's part."""
    longest = round_up(int(reader.lengths.max(initial=1)))
    widths = _best_widths(lengths, min(longest, batching.sequence_length), count)
    shapes, before = [], 0
    for width in widths:
        expected = int(np.searchsorted(lengths, width, side="right"))
        share = (expected - before) * SHARE_OF_WIDTH
        before = expected
        rows = max(1, int(min(batching.tokens // width, max(share, batching.least_tokens // width))))
        shapes.append(row_shape(rows, width, reader, masking))
    return tuple(shapes)


def _best_widths(lengths: np.ndarray, longest: int, count: int) -> list[int]:
    """Return at most `count` widths, the last `longest`, that pad rows of these lengths least: dynamic programming."""
    steps = -(-longest // LENGTH_MULTIPLE)
    widths = np.minimum(np.arange(steps + 1) * LENGTH_MULTIPLE, longest)
    below = np.searchsorted(lengths, widths, side="right").astype(np.float64)
    # costs[i, j]: tokens of the rows longer than widths[i] and at most as long as widths[j].
    costs = (below[None, :] - below[:, None]) * widths[None, :]
    costs[np.tril_indices(steps + 1, -1)] = np.inf
    least, choices = costs[0], []
    for _ in range(count - 1):
        through = least[:, None] + costs
        choices.append(through.argmin(0))
        least = through.min(0)
    found = [steps]
    for choice in reversed(choices):
        found.append(int(choice[found[-1]]))
    return sorted({int(widths[index]) for index in found if index})


def _computed(lengths: np.ndarray, shapes: tuple[Shape, ...]) -> int:
    """Return the tokens computed for rows of these lengths, ascending, padding included."""
    tokens, left = 0, len(lengths)
    while left:
        shape = smallest_for(int(lengths[left - 1]), shapes)
        tokens += shape.tokens
        left -= min(left, shape.sequences)
    return tokens


def _packed_shapes(
    batching: Batching, reader: SampleReader, masking: Masking, typical: GlobalBatch
) -> tuple[Shape, ...]:
    small = round_up(int(SMALL_SHARE * batching.tokens))
    worth_it = small >= SEQUENCES_OF_SMALL * int(reader.lengths.max(initial=1))
    sizes = (small, batching.tokens) if worth_it else (batching.tokens,)
    return tuple(_packed_shape(tokens, reader, masking, typical) for tokens in sizes)


def _packed_shape(tokens: int, reader: SampleReader, masking: Masking, typical: GlobalBatch) -> Shape:
    # All micro-batches get the same mixture of lengths, so few sequences more than the expected number suffice.
    real = int(typical.lengths.sum())
    expected = tokens * len(typical.lengths) / real
    masked = tokens * int(typical.masked_counts.sum()) / real
    counts = count_masked(reader.lengths, masking) if reader.mask_counts is None else reader.mask_counts
    return Shape(
        length=int(reader.lengths.max(initial=1)),
        tokens=tokens,
        sequences=math.ceil(1.25 * expected + 4 * math.sqrt(expected)) + 4,
        predictions=math.ceil(1.02 * masked) + int(counts.max(initial=1)),
    )
