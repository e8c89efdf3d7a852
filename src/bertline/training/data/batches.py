"""Construction of a rank's micro-batches from samples.

A global batch is a run of consecutive positions in the order of samples. Sorted by length, its samples are assigned to
the ranks in proportion to the rank weights, so that every rank gets the same mixture of lengths; a rank's samples are
then split into micro-batches of padded rows, or packed without padding. The result is a pure function of the step, the
rank weights and the layout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from bertline.encoding.dataset import MaskedTokens, SampleReader
from bertline.encoding.masking import (
    IGNORED,
    MaskedPositions,
    Masking,
    Places,
    Vocabulary,
    count_masked,
    mask_tokens,
)
from bertline.modeling.attention import AttentionMask, Packed
from bertline.training.data.mixture import Mixture
from bertline.training.data.order import samples_at

LENGTH_MULTIPLE = 8
# A packed micro-batch of fixed shape has slots for so many times the number of full-length sequences that fill it.
SHORTEST_OF_FULL = 4


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


@dataclass(frozen=True)
class Layout:
    """Layout of a phase's micro-batches.

    sequence_length: maximum length of a sample.
    rows: maximum number of full-length rows in a micro-batch; if packed, of as many tokens.
    packed: concatenate sequences instead of padding them to rows.
    fixed: give all micro-batches the same shapes, as compiled programs require.
    mask_free: omit the attention mask of micro-batches of fixed shape that have no padding. This makes two programs,
        one of which may be much faster.
    """

    sequence_length: int
    rows: int
    packed: bool = False
    fixed: bool = False
    mask_free: bool = False

    @property
    def tokens(self) -> int:
        """Number of tokens in a micro-batch of fixed shape, including padding."""
        return self.rows * self.sequence_length

    @property
    def sequences(self) -> int:
        """Number of sequences in a micro-batch of fixed shape."""
        return SHORTEST_OF_FULL * self.rows if self.packed else self.rows

    def predictions(self, masking: Masking, mask_counts: np.ndarray | None = None) -> int:
        """Return the number of masked positions in a micro-batch of fixed shape, with a margin for packed sequences.

        `mask_counts` are those of all samples, if masks are static.
        """
        if mask_counts is None:
            a_row = int(count_masked(np.array([self.sequence_length]), masking)[0])
        else:
            a_row = int(mask_counts.max(initial=1))
        return self.rows * a_row + (SHORTEST_OF_FULL + self.rows // 8 if self.packed else 0)


@dataclass(frozen=True)
class MicroBatch:
    """Sequences, unmasked unless their masks are static: padded rows [B, S], or packed into one row [1, T]."""

    input_ids: Tensor  # int64 [B, S]
    token_type_ids: Tensor  # int64 [B, S]
    attention_mask: AttentionMask  # None when no row is padded and the layout allows it
    places: Places
    pair_labels: Tensor  # int64 [N], 1 = random next, -100 for empty slots
    samples: Tensor  # int64 [N]
    epochs: Tensor  # int64 [N]
    masked_counts: Tensor  # int64 [N]
    predictions: int  # number of masked positions, or its upper bound for fixed shapes
    tokens: int  # without padding
    masked: MaskedPositions | None = None  # if masks are static; then `input_ids` are masked

    def to(self, device: torch.device) -> MicroBatch:
        """Return a copy on `device`; copying from pinned memory to a GPU is asynchronous."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> MicroBatch:
        """Return a copy in pinned memory."""
        return self._map(Tensor.pin_memory)

    def _map(self, move: Callable[[Tensor], Tensor]) -> MicroBatch:
        return MicroBatch(**{name: tree_map_only(Tensor, move, value) for name, value in vars(self).items()})


def mask_batch(
    batch: MicroBatch, *, seed: int, masking: Masking, vocabulary: Vocabulary
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask an unmasked micro-batch as in training: return the results of `masking.mask_tokens` on its device."""
    return mask_tokens(
        batch.input_ids,
        batch.places,
        batch.masked_counts,
        batch.samples,
        batch.epochs,
        predictions=batch.predictions,
        masking=masking,
        seed=seed,
        vocabulary=vocabulary,
    )


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


def micro_batches(
    batch: GlobalBatch, reader: SampleReader, layout: Layout, *, masking: Masking
) -> Iterator[MicroBatch]:
    """Yield the micro-batches of one rank's part of a global batch; none for an empty part."""
    for part in split(batch, reader, layout, masking=masking):
        yield collate(part, reader, layout, masking=masking)


def split(batch: GlobalBatch, reader: SampleReader, layout: Layout, *, masking: Masking) -> list[GlobalBatch]:
    """Split one rank's part of a global batch into pieces for `collate`, one per micro-batch."""
    if layout.packed:
        pieces = _bins(batch, layout, layout.predictions(masking, reader.mask_counts))
    else:
        # Runs of nearly equal size.
        count = len(batch.samples)
        pieces = np.array_split(np.arange(count), -(-count // layout.rows)) if count else []
    return [batch.take(rows) for rows in pieces]


def collate(part: GlobalBatch, reader: SampleReader, layout: Layout, *, masking: Masking) -> MicroBatch:
    """Collate a piece from `split` into a micro-batch."""
    limit = layout.predictions(masking, reader.mask_counts)
    predictions = limit if layout.fixed else int(part.masked_counts.sum())
    return (_pack if layout.packed else _pad)(part, reader, layout, predictions)


def idle_micro_batch(batch: GlobalBatch, reader: SampleReader, layout: Layout, *, masking: Masking) -> MicroBatch:
    """Collate the shortest sample of a global batch without labels, for a rank with fewer micro-batches than others.

    Its losses, their gradients and all other statistics are 0.
    """
    made = collate(batch.take(np.zeros(1, dtype=np.int64)), reader, layout, masking=masking)
    masked = made.masked
    return replace(
        made,
        masked_counts=torch.zeros_like(made.masked_counts),
        pair_labels=torch.full_like(made.pair_labels, IGNORED),
        masked=None if masked is None else masked._replace(labels=torch.full_like(masked.labels, IGNORED)),
        tokens=0,
    )


def _bins(batch: GlobalBatch, layout: Layout, most_predictions: int) -> list[np.ndarray]:
    """Fill micro-batches first-fit, longest samples first. Returns the rows of each, ascending."""
    free: list[tuple[int, int, int]] = []  # tokens, sequences, predictions
    bins: list[list[int]] = []
    first = 0  # the bins before it are full
    shortest = int(batch.lengths[0]) if len(batch.lengths) else 0
    for row in range(len(batch.lengths) - 1, -1, -1):
        length, masked = int(batch.lengths[row]), int(batch.masked_counts[row])
        for number in range(first, len(bins)):
            tokens, sequences, predictions = free[number]
            if tokens >= length and sequences and predictions >= masked:
                break
        else:
            number = len(bins)
            bins.append([])
            free.append((layout.tokens, layout.sequences, most_predictions))
        bins[number].append(row)
        tokens, sequences, predictions = free[number]
        free[number] = (tokens - length, sequences - 1, predictions - masked)
        while first < len(bins) and (free[first][0] < shortest or not free[first][1]):
            first += 1
    return [np.array(rows[::-1]) for rows in bins]


def _pad(batch: GlobalBatch, reader: SampleReader, layout: Layout, predictions: int) -> MicroBatch:
    content = reader.gather(batch.samples)
    count = len(batch.samples)
    rows, width = count, -(-int(batch.lengths.max()) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    if layout.fixed:
        rows, width = layout.rows, layout.sequence_length
    columns = np.arange(width)
    inside = columns < _filled(batch.lengths, rows, 0)[:, None]
    input_ids = np.full((rows, width), _padding_id(reader), dtype=np.int64)
    input_ids[inside] = content.tokens
    starts = _filled(content.second_segment_start, rows, 0)[:, None]
    second = (columns >= starts) & (starts > 0) & inside
    inside[count:, 0] = True  # attention over nothing would be NaN
    masked = _put_masks(input_ids.reshape(-1), np.arange(count) * width, batch, content.masks, predictions)
    needs_mask = not inside.all() or (layout.fixed and not layout.mask_free)
    return MicroBatch(
        input_ids=torch.from_numpy(input_ids),
        token_type_ids=torch.from_numpy(second.astype(np.int64)),
        attention_mask=torch.from_numpy(inside) if needs_mask else None,
        places=Places(
            torch.arange(rows).repeat_interleave(width), torch.arange(width).repeat(rows), torch.arange(rows) * width
        ),
        predictions=predictions,
        tokens=len(content.tokens),
        masked=masked,
        **_of_sequences(batch, content.next_sentence_labels, rows),
    )


def _pack(batch: GlobalBatch, reader: SampleReader, layout: Layout, predictions: int) -> MicroBatch:
    content = reader.gather(batch.samples)
    lengths = batch.lengths
    if layout.fixed:
        # The rest becomes sequences of padding, none longer than `sequence_length`.
        left = layout.tokens - int(lengths.sum())
        padding = [min(left - done, layout.sequence_length) for done in range(0, left, layout.sequence_length)]
        lengths = np.concatenate([lengths, np.array(padding, dtype=np.int64)])
    sequences = layout.sequences + layout.rows if layout.fixed else len(lengths)
    ends = np.full(sequences, lengths.sum(), dtype=np.int64)
    ends[: len(lengths)] = np.cumsum(lengths)
    starts = np.concatenate([[0], ends])
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    position = np.arange(len(sequence)) - starts[sequence]
    input_ids = np.full(len(sequence), _padding_id(reader), dtype=np.int64)
    input_ids[: len(content.tokens)] = content.tokens
    second_starts = _filled(content.second_segment_start, sequences, 0)[sequence]
    second = (position >= second_starts) & (second_starts > 0)
    positions = torch.from_numpy(position)
    masked = _put_masks(input_ids, starts[: len(content.offsets) - 1], batch, content.masks, predictions)
    return MicroBatch(
        input_ids=torch.from_numpy(input_ids)[None],
        token_type_ids=torch.from_numpy(second.astype(np.int64))[None],
        attention_mask=Packed(torch.from_numpy(starts.astype(np.int32)), positions, layout.sequence_length),
        places=Places(torch.from_numpy(sequence), positions, torch.from_numpy(starts[:-1])),
        predictions=predictions,
        tokens=len(content.tokens),
        masked=masked,
        **_of_sequences(batch, content.next_sentence_labels, sequences),
    )


def _padding_id(reader: SampleReader) -> int:
    return int(reader.card["tokenizer"]["special_tokens"]["[PAD]"])


def _put_masks(
    input_ids: np.ndarray, starts: np.ndarray, batch: GlobalBatch, masks: MaskedTokens | None, predictions: int
) -> MaskedPositions | None:
    """Write static masks into flat `input_ids` of sequences that start at `starts`; return positions and labels."""
    if masks is None:
        return None
    flat = np.repeat(starts, batch.masked_counts) + masks.positions
    labels = _filled(input_ids[flat], predictions, IGNORED)
    input_ids[flat] = masks.input_ids
    return MaskedPositions(torch.from_numpy(_filled(flat, predictions, 0)), torch.from_numpy(labels))


def _of_sequences(batch: GlobalBatch, pair_labels: np.ndarray, sequences: int) -> dict[str, Tensor]:
    values = {
        "pair_labels": _filled(pair_labels, sequences, IGNORED),
        "samples": _filled(batch.samples, sequences, 0),
        "epochs": _filled(batch.epochs, sequences, 0),
        "masked_counts": _filled(batch.masked_counts, sequences, 0),
    }
    return {name: torch.from_numpy(value) for name, value in values.items()}


def _filled(values: np.ndarray, size: int, filler: int) -> np.ndarray:
    """Return `values` as int64 [size], padded with `filler`."""
    filled = np.full(size, filler, dtype=np.int64)
    filled[: len(values)] = values
    return filled
