"""From samples to the micro-batches of a rank.

A global batch is a run of consecutive positions in the order of samples. Sorted by length, its samples are dealt to
the ranks in turn and cut into micro-batches of neighbours: every rank gets the same mixture of lengths, and a
micro-batch little padding. All of it is a pure function of the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bertline.encoding.dataset import SampleReader
from bertline.training.masking import Masking, count_masked
from bertline.training.order import samples_at

LENGTH_MULTIPLE = 8


@dataclass(frozen=True)
class GlobalBatch:
    """The samples of one optimizer step, in ascending length; int64 [G] each."""

    samples: np.ndarray
    epochs: np.ndarray
    lengths: np.ndarray
    masked_counts: np.ndarray


@dataclass(frozen=True)
class MicroBatch:
    """Unmasked rows, padded to a multiple of 8."""

    input_ids: Tensor  # int64 [B, S]
    token_type_ids: Tensor  # int64 [B, S]
    attention_mask: Tensor | None  # bool [B, S]; None when no row is padded
    pair_labels: Tensor  # int64 [B], 1 = random next
    samples: Tensor  # int64 [B]
    epochs: Tensor  # int64 [B]
    masked_counts: Tensor  # int64 [B]

    def to(self, device: torch.device) -> MicroBatch:
        """The same on `device`."""
        tensors = {name: value.to(device, non_blocking=True) for name, value in vars(self).items() if value is not None}
        return replace(self, **tensors)


def global_batch(lengths: np.ndarray, *, start: int, size: int, seed: int, masking: Masking) -> GlobalBatch:
    """The global batch of `size` samples from position `start` on. `lengths` are those of all samples."""
    positions = np.arange(start, start + size, dtype=np.int64)
    samples, epochs = samples_at(positions, seed=seed, count=len(lengths))
    return _sorted_by_length(samples, epochs, lengths[samples].astype(np.int64), masking)


def evaluation_batch(samples: np.ndarray, lengths: np.ndarray, masking: Masking) -> GlobalBatch:
    """All of `samples` (int64) as one batch, to be dealt to the ranks like a global batch."""
    return _sorted_by_length(samples, np.zeros_like(samples), lengths[samples].astype(np.int64), masking)


def _sorted_by_length(samples: np.ndarray, epochs: np.ndarray, lengths: np.ndarray, masking: Masking) -> GlobalBatch:
    by_length = np.argsort(lengths, kind="stable")
    lengths = lengths[by_length]
    return GlobalBatch(samples[by_length], epochs[by_length], lengths, count_masked(lengths, masking))


def micro_batches(
    batch: GlobalBatch,
    reader: SampleReader,
    *,
    rank: int,
    world_size: int,
    micro_batch_size: int,
    padding_id: int,
) -> Iterator[MicroBatch]:
    """The micro-batches of `rank`, as even in size as they can be, at most `micro_batch_size` rows each.

    With fewer samples than ranks the last ranks get none.
    """
    mine = np.arange(rank, len(batch.samples), world_size)
    pieces = -(-len(mine) // micro_batch_size)
    for rows in np.array_split(mine, pieces) if pieces else ():
        yield _assemble(batch, reader, rows, padding_id)


def _assemble(batch: GlobalBatch, reader: SampleReader, rows: np.ndarray, padding_id: int) -> MicroBatch:
    content = reader.gather(batch.samples[rows])
    lengths = batch.lengths[rows]
    width = -(-int(lengths.max()) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    columns = np.arange(width)
    inside = columns < lengths[:, None]
    input_ids = np.full((len(rows), width), padding_id, dtype=np.int64)
    input_ids[inside] = content.tokens
    starts = content.second_segment_start.astype(np.int64)[:, None]
    second = (columns >= starts) & (starts > 0) & inside
    return MicroBatch(
        input_ids=torch.from_numpy(input_ids),
        token_type_ids=torch.from_numpy(second.astype(np.int64)),
        attention_mask=None if inside.all() else torch.from_numpy(inside),
        pair_labels=torch.from_numpy(content.next_sentence_labels.astype(np.int64)),
        samples=torch.from_numpy(batch.samples[rows]),
        epochs=torch.from_numpy(batch.epochs[rows]),
        masked_counts=torch.from_numpy(batch.masked_counts[rows]),
    )
