"""Which tokens a sequence is asked for: dynamic masking by an integer hash of (seed, sample, epoch, position).

As published (Devlin et al. 2018, and Google's create_pretraining_data.py): max(1, round(probability x length))
positions a sequence, the length counting [CLS] and [SEP]; of these 80 percent become [MASK], 10 percent a random word
and 10 percent stay as they are. The hash is the same on every device, and stored data is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertline.console import BertlineError
from bertline.encoding.dataset import SampleReader
from bertline.training.hashing import as_signed, mix_integers, mix_tensor, uniform

# Evaluation masks 15 percent whatever a run trains with, so that runs compare; its positions never change.
HELD_OUT_PROBABILITY = 0.15
HELD_OUT_SEED = 20_181_011
# MLPerf's evaluation takes as many; more would cost time and tell nothing.
HELD_OUT_SAMPLES = 10_000
POSITION_BITS = 13  # sequences are at most 8,192 long
UNIFORM_RANGE = 1 << 31
MASK_BELOW = round(0.8 * UNIFORM_RANGE)
RANDOM_BELOW = round(0.9 * UNIFORM_RANGE)


@dataclass(frozen=True)
class Masking:
    """How much is masked. `max_predictions` limits the positions of a sequence; None does not."""

    probability: float
    max_predictions: int | None = None


HELD_OUT_MASKING = Masking(HELD_OUT_PROBABILITY)


@dataclass(frozen=True)
class Vocabulary:
    """What masking knows of the tokenizer, on one device."""

    mask_id: int
    is_special: Tensor  # bool [vocab_size]
    words: Tensor  # int64, the identifiers that are not special: what a random replacement is drawn from

    @classmethod
    def of_card(cls, card: Mapping[str, Any], device: torch.device | str = "cpu") -> Vocabulary:
        """From a dataset's card. Raises BertlineError when its vocabulary has no [MASK]."""
        special_tokens = card["tokenizer"]["special_tokens"]
        if "[MASK]" not in special_tokens:
            raise BertlineError("dataset.json: the tokenizer has no [MASK]; encode with a vocabulary that has one")
        is_special = torch.zeros(card["tokenizer"]["vocab_size"], dtype=torch.bool)
        is_special[list(special_tokens.values())] = True
        words = torch.nonzero(~is_special).flatten()
        return cls(special_tokens["[MASK]"], is_special.to(device), words.to(device))


def count_masked(lengths: np.ndarray, masking: Masking) -> np.ndarray:
    """Number of masked positions of sequences of these lengths: int64 [N]."""
    counts = np.maximum(1, np.rint(masking.probability * lengths.astype(np.float64))).astype(np.int64)
    return counts if masking.max_predictions is None else np.minimum(counts, masking.max_predictions)


def mask_tokens(
    input_ids: Tensor,
    counts: Tensor,
    samples: Tensor,
    epochs: Tensor,
    *,
    seed: int,
    vocabulary: Vocabulary,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask a batch.

    Parameters
    ----------
    input_ids: int64 [B, S]; padding must be a special token.
    counts: int64 [B], positions to mask in each row. A row with fewer ordinary tokens gets all of them masked.
    samples, epochs: int64 [B], what the positions are drawn by.
    seed: of the run.

    Returns the masked ids [B, S] (a new tensor), the flat indices of the masked positions [M] in ascending order, and
    the original ids there [M]. All int64.
    """
    batch, length = input_ids.shape
    hashes = mix_tensor(samples ^ as_signed(mix_integers(seed)))
    hashes = mix_tensor(hashes + epochs)
    positions = torch.arange(length, device=input_ids.device)
    hashes = mix_tensor(hashes[:, None] + positions)  # [B, S]

    # The lowest bits hold the position: no two scores are equal, so every device sorts alike.
    scores = (hashes & ~((1 << POSITION_BITS) - 1)) | positions
    special = vocabulary.is_special[input_ids]
    scores = scores.masked_fill(special, torch.iinfo(torch.int64).max)
    wanted = min(int(counts.max()), length) if batch else 0
    drawn = scores.topk(wanted, dim=1, largest=False, sorted=True).indices  # [B, wanted]
    chosen = torch.arange(wanted, device=input_ids.device) < counts[:, None]
    selected = torch.zeros_like(special).scatter_(1, drawn, chosen) & ~special

    flat = selected.flatten().nonzero().flatten()
    labels = input_ids.flatten()[flat]
    choice = mix_tensor(hashes.flatten()[flat])  # upper bits: what becomes of it; lower bits: the random word
    word = vocabulary.words[(choice & (UNIFORM_RANGE - 1)) % len(vocabulary.words)]
    share = uniform(choice)
    replaced = torch.where(share < MASK_BELOW, vocabulary.mask_id, torch.where(share < RANDOM_BELOW, word, labels))
    masked_ids = input_ids.flatten().clone()
    masked_ids[flat] = replaced
    return masked_ids.view(batch, length), flat, labels


def held_out_samples(count: int) -> np.ndarray:
    """The samples that evaluation reads, int64, ascending: all, or 10,000 evenly spread ones of a larger set."""
    if count <= HELD_OUT_SAMPLES:
        return np.arange(count, dtype=np.int64)
    return np.arange(HELD_OUT_SAMPLES, dtype=np.int64) * count // HELD_OUT_SAMPLES


def held_out_positions(reader: SampleReader) -> Iterator[tuple[int, np.ndarray]]:
    """The positions whose tokens every evaluation on held-out text asks for.

    Yields (sample, positions) for the samples of `held_out_samples`; positions are int64, ascending, within the
    sample. What predicts these tokens can be compared with a model's held_out/mlm_loss.
    """
    vocabulary = Vocabulary.of_card(reader.card)
    counts = count_masked(reader.lengths, HELD_OUT_MASKING)
    for sample in held_out_samples(len(reader)):
        tokens = torch.from_numpy(np.asarray(reader.tokens(int(sample)), dtype=np.int64))
        _, positions, _ = mask_tokens(
            tokens[None],
            torch.tensor([counts[sample]]),
            torch.tensor([sample]),
            torch.tensor([0]),
            seed=HELD_OUT_SEED,
            vocabulary=vocabulary,
        )
        yield int(sample), positions.numpy()
