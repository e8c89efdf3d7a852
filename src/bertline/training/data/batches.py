"""Global batches and their assignment to the ranks.

A global batch is a run of consecutive positions in the order of samples. Sorted by length, its samples are assigned to
the ranks in proportion to the rank weights, so that every rank gets the same mixture of lengths. The result is a pure
function of the step and the rank weights.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertline.encoding.masking import Masking, count_masked
from bertline.training.data.mixture import Mixture
from bertline.training.data.order import samples_at


@dataclass(frozen=True)
class GlobalBatch:
    """Samples of one optimizer step in ascending length; int64 [G] each."""

    samples: np.ndarray
    epochs: np.ndarray
    lengths: np.ndarray
    masked_counts: np.ndarray

    def take(self, rows: np.ndarray) -> GlobalBatch:
        """Return the batch restricted to these rows."""
        return GlobalBatch(self.samples[rows], self.epochs[rows], self.lengths[rows], self.masked_counts[rows])


def global_batch(
    lengths: np.ndarray,
    *,
    start: int,
    size: int,
    seed: int,
    masking: Masking,
    mask_counts: np.ndarray | None = None,
    mixture: Mixture | None = None,
) -> GlobalBatch:
    """Make the global batch of `size` samples starting at position `start`.

    `lengths` are those of all samples, `mask_counts` the sizes of their static masks, if any.
    """
    positions = np.arange(start, start + size, dtype=np.int64)
    if mixture is None:
        samples, epochs = samples_at(positions, seed=seed, count=len(lengths))
    else:
        samples, epochs = mixture.samples_at(positions, seed=seed)
    return _sorted_by_length(samples, epochs, lengths, masking, mask_counts)


def evaluation_batch(
    samples: np.ndarray, lengths: np.ndarray, masking: Masking, mask_counts: np.ndarray | None = None
) -> GlobalBatch:
    """Make one batch of all `samples` (int64), to be assigned to the ranks like a global batch."""
    return _sorted_by_length(samples, np.zeros_like(samples), lengths, masking, mask_counts)


def _sorted_by_length(
    samples: np.ndarray, epochs: np.ndarray, lengths: np.ndarray, masking: Masking, mask_counts: np.ndarray | None
) -> GlobalBatch:
    by_length = np.argsort(lengths[samples], kind="stable")
    samples, epochs = samples[by_length], epochs[by_length]
    lengths = lengths[samples].astype(np.int64)
    counts = count_masked(lengths, masking) if mask_counts is None else mask_counts[samples].astype(np.int64)
    return GlobalBatch(samples, epochs, lengths, counts)


@functools.lru_cache(maxsize=8)
def assign_to_ranks(size: int, rank_weights: tuple[float, ...]) -> np.ndarray:
    """Return the rank of each of `size` samples in ascending length: int64 [size].

    A rank takes its n-th sample at time n / weight, so that ranks alternate, faster ones more often. With equal
    weights, sample i goes to rank i % world_size. A rank with weight 0 gets nothing.
    """
    total = sum(rank_weights)
    times, ranks = [], []
    for rank, weight in enumerate(rank_weights):
        turns = int(np.ceil(size * weight / total)) + 1 if weight > 0 else 0
        times.append((np.arange(turns) + 0.5) / weight if turns else np.zeros(0))
        ranks.append(np.full(turns, rank))
    order = np.argsort(np.concatenate(times), kind="stable")[:size]
    return np.concatenate(ranks)[order]


def of_rank(batch: GlobalBatch, rank: int, rank_weights: Sequence[float]) -> GlobalBatch:
    """Return a rank's part of a global batch."""
    return batch.take(np.flatnonzero(assign_to_ranks(len(batch.samples), tuple(rank_weights)) == rank))
