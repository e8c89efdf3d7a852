"""Collation of micro-batches: samples of one rank in padded rows, or packed without padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from bertline.encoding.dataset import MaskedTokens, SampleReader
from bertline.encoding.masking import IGNORED, MaskedPositions, Masking, TokenPositions, Vocabulary, mask_tokens
from bertline.modeling.attention import AttentionMask, Packed
from bertline.training.data.batches import GlobalBatch
from bertline.training.data.shapes import Batching, round_up
from bertline.training.data.splitting import Part, shortest_alone, split


@dataclass(frozen=True)
class MicroBatch:
    """Sequences, unmasked unless their masks are static: padded rows [B, S], or packed into one row [1, T]."""

    input_ids: Tensor  # int64 [B, S]
    token_type_ids: Tensor  # int64 [B, S]
    attention_mask: AttentionMask  # None when no row is padded and `Batching.mask_free` is set
    token_positions: TokenPositions
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
        batch.token_positions,
        batch.masked_counts,
        batch.samples,
        batch.epochs,
        predictions=batch.predictions,
        masking=masking,
        seed=seed,
        vocabulary=vocabulary,
    )


def micro_batches(batch: GlobalBatch, reader: SampleReader, batching: Batching) -> Iterator[MicroBatch]:
    """Yield the micro-batches of one rank's part of a global batch; none for an empty part."""
    for part in split(batch, batching):
        yield collate(part, reader, batching)


def collate(part: Part, reader: SampleReader, batching: Batching) -> MicroBatch:
    """Collate a part from `split` into a micro-batch."""
    predictions = part.shape.predictions if part.shape else int(part.batch.masked_counts.sum())
    return (_pack if batching.packed else _pad)(part, reader, batching, predictions)


def idle_micro_batch(batch: GlobalBatch, reader: SampleReader, batching: Batching) -> MicroBatch:
    """Collate the shortest sample of a global batch without labels, for a rank with fewer micro-batches than others.

    Its losses, their gradients and all other statistics are 0.
    """
    made = collate(shortest_alone(batch, batching), reader, batching)
    masked = made.masked
    return replace(
        made,
        masked_counts=torch.zeros_like(made.masked_counts),
        pair_labels=torch.full_like(made.pair_labels, IGNORED),
        masked=None if masked is None else masked._replace(labels=torch.full_like(masked.labels, IGNORED)),
        tokens=0,
    )


def _pad(part: Part, reader: SampleReader, batching: Batching, predictions: int) -> MicroBatch:
    batch, shape = part
    content = reader.gather(batch.samples)
    count = len(batch.samples)
    # Not beyond the sequence length, which may be all that the network has positions for.
    longest = min(round_up(int(batch.lengths.max())), batching.sequence_length)
    rows, width = (shape.sequences, shape.length) if shape else (count, longest)
    columns = np.arange(width)
    inside = columns < _filled(batch.lengths, rows, 0)[:, None]
    input_ids = np.full((rows, width), _padding_id(reader), dtype=np.int64)
    input_ids[inside] = content.tokens
    starts = _filled(content.second_segment_start, rows, 0)[:, None]
    second = (columns >= starts) & (starts > 0) & inside
    inside[count:, 0] = True  # attention over nothing would be NaN
    masked = _put_masks(input_ids.reshape(-1), np.arange(count) * width, batch, content.masks, predictions)
    may_omit = shape is None or (batching.mask_free and shape == batching.shapes[-1])
    return MicroBatch(
        input_ids=torch.from_numpy(input_ids),
        token_type_ids=torch.from_numpy(second.astype(np.int64)),
        attention_mask=torch.from_numpy(inside) if not (may_omit and inside.all()) else None,
        token_positions=TokenPositions(
            torch.arange(rows).repeat_interleave(width), torch.arange(width).repeat(rows), torch.arange(rows) * width
        ),
        predictions=predictions,
        tokens=len(content.tokens),
        masked=masked,
        **_of_sequences(batch, content.next_sentence_labels, rows),
    )


def _pack(part: Part, reader: SampleReader, batching: Batching, predictions: int) -> MicroBatch:
    batch, shape = part
    content = reader.gather(batch.samples)
    lengths, sequences, longest = batch.lengths, len(batch.lengths), int(batch.lengths.max())
    if shape is not None:
        # The rest becomes sequences of padding, none longer than the longest of the others.
        longest, left = shape.length, shape.tokens - int(lengths.sum())
        padding = [min(left - done, longest) for done in range(0, left, longest)]
        lengths = np.concatenate([lengths, np.array(padding, dtype=np.int64)])
        sequences = shape.sequences - (-shape.tokens // longest)
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
        attention_mask=Packed(torch.from_numpy(starts.astype(np.int32)), positions, longest),
        token_positions=TokenPositions(torch.from_numpy(sequence), positions, torch.from_numpy(starts[:-1])),
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
