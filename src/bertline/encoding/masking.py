"""Dynamic masking by an integer hash of (seed, sample, epoch, position).

As published (Devlin et al. 2018, and Google's create_pretraining_data.py): max(1, round(probability x length))
positions of a sequence are chosen, the length including [CLS] and [SEP]; 80 percent of these become [MASK], 10 percent
a random word and 10 percent are unchanged. The hash is the same on every device, and stored data is not modified.

Samples that another program masked keep their masks in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertline.console import BertlineError
from bertline.encoding.card_format import continuation_bitmap
from bertline.encoding.dataset import SampleReader
from bertline.encoding.hashing import as_signed, mix_integers, mix_tensor, uniform

# Evaluation masks 15 percent whatever a run trains with, so that runs are comparable; its positions never change.
HELD_OUT_PROBABILITY = 0.15
HELD_OUT_SEED = 20_181_011
# As in MLPerf's evaluation; more would take time and change nothing.
HELD_OUT_SAMPLES = 10_000
POSITION_BITS = 13  # sequences have at most 8,192 tokens
UNIFORM_BITS = 31
UNIFORM_RANGE = 1 << UNIFORM_BITS
MASK_BELOW = round(0.8 * UNIFORM_RANGE)
RANDOM_BELOW = round(0.9 * UNIFORM_RANGE)
IGNORED = -100  # a label that losses ignore


@dataclass(frozen=True)
class Masking:
    """The masking of a phase.

    Attributes:
        probability: share of a sequence's positions.
        max_predictions: maximum number of positions in a sequence; None for no limit.
        whole_word: choose words and mask all their pieces; of the last word only as many as the number of positions
            allows.
        mask_only: every chosen position becomes [MASK].
    """

    probability: float
    max_predictions: int | None = None
    whole_word: bool = False
    mask_only: bool = False


HELD_OUT_MASKING = Masking(HELD_OUT_PROBABILITY)


@dataclass(frozen=True)
class Vocabulary:
    """The properties of the tokenizer's ids that masking needs, on one device."""

    mask_id: int
    is_special: Tensor  # bool [vocab_size]
    continues: Tensor  # bool [vocab_size], whether an id continues a word
    words: Tensor  # int64, the ids that are not special, from which random replacements are drawn

    @classmethod
    def of_card(cls, card: Mapping[str, Any], device: torch.device | str = "cpu") -> Vocabulary:
        """Create it from a dataset's card. Raises BertlineError if its vocabulary has no [MASK]."""
        special_tokens = card["tokenizer"]["special_tokens"]
        if "[MASK]" not in special_tokens:
            raise BertlineError("dataset.json: the tokenizer has no [MASK]; encode with a vocabulary that has one")
        is_special = torch.zeros(card["tokenizer"]["vocab_size"], dtype=torch.bool)
        is_special[list(special_tokens.values())] = True
        words = torch.nonzero(~is_special).flatten()
        continues = torch.from_numpy(continuation_bitmap(dict(card)))
        return cls(special_tokens["[MASK]"], is_special.to(device), continues.to(device), words.to(device))


def count_masked(lengths: np.ndarray, masking: Masking) -> np.ndarray:
    """Return the number of masked positions of sequences of these lengths: int64 [N]."""
    counts = np.maximum(1, np.rint(masking.probability * lengths.astype(np.float64))).astype(np.int64)
    return counts if masking.max_predictions is None else np.minimum(counts, masking.max_predictions)


class TokenPositions(NamedTuple):
    """The sequence and position of each token in a batch of T tokens and N sequences, padding included."""

    sequence: Tensor  # int64 [T], ascending from 0
    position: Tensor  # int64 [T], within its sequence
    starts: Tensor  # int64 [N], the first token of each sequence


class MaskedPositions(NamedTuple):
    """The labels of a masked batch. Both int64 [predictions]; the masks are followed by others with the label -100."""

    positions: Tensor  # flat indices into the batch
    labels: Tensor  # the original ids there


def mask_tokens(
    input_ids: Tensor,
    token_positions: TokenPositions,
    counts: Tensor,
    samples: Tensor,
    epochs: Tensor,
    *,
    predictions: int,
    masking: Masking,
    seed: int,
    vocabulary: Vocabulary,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask a batch.

    Args:
        input_ids: int64, T elements, each row of whole sequences; padding must be a special token.
        counts: int64 [N], positions to mask in each sequence. One with fewer ordinary tokens gets all of them masked.
        samples, epochs: int64 [N], hashed to choose the positions.
        predictions: size of the result, at least the sum of `counts`.
        seed: of the run.

    Returns the masked ids (a new tensor), the flat indices of the masked positions [predictions] in ascending order,
    and the original ids there [predictions]. Masked positions are followed by others with the label -100. All int64.
    """
    ids = input_ids.flatten()
    by_sequence = mix_tensor(mix_tensor(samples ^ as_signed(mix_integers(seed))) + epochs)
    hashes = mix_tensor(by_sequence[token_positions.sequence] + token_positions.position)  # [T]
    special = vocabulary.is_special[ids]
    drawn = hashes
    if masking.whole_word:
        begins = ~vocabulary.continues[ids] | special | (token_positions.position == 0)
        here = torch.arange(len(ids), device=ids.device)
        drawn = hashes[torch.where(begins, here, 0).cummax(0).values]
    scores = uniform(drawn).masked_fill(special, UNIFORM_RANGE)
    # One key sorts by sequence, then by score; the position makes it unique, so every device sorts alike.
    by_score = (scores << POSITION_BITS) | token_positions.position
    keys = (token_positions.sequence << (UNIFORM_BITS + 1 + POSITION_BITS)) | by_score
    ascending = _sort_rows(keys.view(input_ids.shape)).flatten()
    greatest = torch.where(counts > 0, ascending[(token_positions.starts + counts - 1).clamp(min=0)], -1)
    chosen = (keys <= greatest[token_positions.sequence]) & ~special

    # Avoid reading the number of chosen tokens, which synchronises with the GPU.
    flat = (~chosen).to(torch.uint8).argsort(stable=True)[:predictions]
    originals = ids[flat]
    choice = mix_tensor(hashes[flat])  # upper bits: the kind of replacement; lower bits: the random word
    word = vocabulary.words[(choice & (UNIFORM_RANGE - 1)) % len(vocabulary.words)]
    share = uniform(choice)
    replaced = torch.where(share < MASK_BELOW, vocabulary.mask_id, torch.where(share < RANDOM_BELOW, word, originals))
    if masking.mask_only:
        replaced = torch.full_like(originals, vocabulary.mask_id)
    masked_ids = ids.clone()
    masked_ids[flat] = torch.where(chosen[flat], replaced, originals)
    return masked_ids.view_as(input_ids), flat, originals.masked_fill(~chosen[flat], IGNORED)


def _sort_rows(values: Tensor) -> Tensor:
    """Sort along the last dimension; of int64 on a CPU, NumPy sorts short rows ten times faster than PyTorch."""
    return torch.from_numpy(np.sort(values.numpy())) if values.is_cpu else values.sort().values


def held_out_samples(count: int) -> np.ndarray:
    """Return the samples that evaluation uses, int64, ascending: all, or 10,000 evenly spaced ones of a larger set."""
    if count <= HELD_OUT_SAMPLES:
        return np.arange(count, dtype=np.int64)
    return np.arange(HELD_OUT_SAMPLES, dtype=np.int64) * count // HELD_OUT_SAMPLES


def held_out_positions(reader: SampleReader) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the positions that every evaluation on held-out text masks.

    Yields (sample, positions) for the samples of `held_out_samples`; positions are int64, ascending, within the
    sample. The cross-entropy of any model on these tokens is comparable with held_out/mlm_loss.
    """
    vocabulary = Vocabulary.of_card(reader.card)
    counts = count_masked(reader.lengths, HELD_OUT_MASKING)
    for sample in held_out_samples(len(reader)):
        batch = reader.gather(np.array([sample]))
        if batch.masks is not None:
            yield int(sample), batch.masks.positions.astype(np.int64)
            continue
        tokens = torch.from_numpy(batch.tokens.astype(np.int64))
        count = counts[sample : sample + 1]
        _, positions, labels = mask_tokens(
            tokens,
            TokenPositions(torch.zeros_like(tokens), torch.arange(len(tokens)), torch.tensor([0])),
            torch.from_numpy(count),
            torch.tensor([sample]),
            torch.tensor([0]),
            predictions=int(count[0]),
            masking=HELD_OUT_MASKING,
            seed=HELD_OUT_SEED,
            vocabulary=vocabulary,
        )
        yield int(sample), positions[labels != IGNORED].numpy()
