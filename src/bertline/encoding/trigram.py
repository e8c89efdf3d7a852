"""Baseline for masked language models: a trigram model of the same tokens.

Interpolated Kneser-Ney smoothing with three discounts per order (Chen and Goodman 1999, "An empirical study of
smoothing techniques for language modeling"), the strongest of the simple n-gram models. It uses the two tokens to the
left, while a masked language model uses both sides but not the other masked tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cyclopts.types import PositiveInt

from bertline.console import BertlineError
from bertline.encoding.dataset import SampleReader, open_dataset
from bertline.encoding.ranges import offsets_of
from bertline.files import write_json
from bertline.results.paths import HELD_OUT

MAX_TOKENS = 20_000_000
BITS = 21  # of an id in a packed trigram: vocabularies up to two million
MASK = np.uint64((1 << BITS) - 1)
SHIFT = np.uint64(BITS)


@dataclass(frozen=True)
class Order:
    """One order of the model: n-grams packed into uint64, the word in the lowest bits, its context above.

    Attributes:
        ngrams: uint64 [n], ascending; scores: float64 [n], (count - discount) / count of the context.
        contexts: uint64 [m], ascending; spare: float64 [m], the probability mass that the context leaves to lower
            orders.
        discounts: float64 [3], of n-grams seen once, twice, more often.
    """

    ngrams: np.ndarray
    scores: np.ndarray
    contexts: np.ndarray
    spare: np.ndarray
    discounts: np.ndarray


def write_trigram_baseline(
    dataset: Path, sequence_length: int, output: Path, *, max_tokens: PositiveInt = MAX_TOKENS
) -> None:
    """Evaluate the model on the held-out tokens that a masked language model is evaluated on.

    Args:
        dataset: the dataset's dataset.json.
        sequence_length: of the phase, in tokens.
        output: file for cross_entropy in nats per token.
        max_tokens: to train on.
    """
    from bertline.encoding.masking import held_out_positions  # imports torch, which only this function needs

    train = open_dataset(dataset, sequence_length, "train")
    held_out = open_dataset(dataset, sequence_length, HELD_OUT)
    # An imported dataset may have no held-out samples: then there is no loss to compare with.
    baseline: dict[str, Any] = {"cross_entropy": None, "tokens": 0}
    if len(held_out):
        baseline = trigram_cross_entropy(train, held_out, held_out_positions(held_out), max_tokens=max_tokens)
    write_json(output, baseline)


def trigram_cross_entropy(
    train: SampleReader,
    held_out: SampleReader,
    positions: Iterable[tuple[int, np.ndarray]],
    *,
    max_tokens: int = MAX_TOKENS,
) -> dict[str, Any]:
    """Train on training samples, then predict the given tokens of held-out samples.

    Args:
        train: samples with about `max_tokens` tokens, evenly spaced over the split, are used.
        held_out: the samples that `positions` refer to.
        positions: (sample, positions within it).

    Returns:
        `cross_entropy` in nats per token, the predicted `tokens`, `training_tokens`, and the three `discounts` of each
        order.

    Raises BertlineError if one of the splits is empty.
    """
    tokenizer = train.card["tokenizer"]
    special = np.array(sorted(tokenizer["special_tokens"].values()), dtype=np.uint64)
    wanted = _asked_trigrams(held_out, list(positions))
    never = np.setdiff1d(special, wanted & MASK)  # masks of an import may be at [UNK], which is then a word
    trigrams = _trigrams(train, _spread(train, max_tokens))
    trigrams = trigrams[~np.isin(trigrams & MASK, never)]
    if not len(trigrams) or not len(wanted):
        raise BertlineError("there are no training or no held-out tokens to compare; give the dataset more text")
    orders = fit(trigrams)
    probabilities = predict(orders, wanted, tokenizer["vocab_size"] - len(never))
    return {
        "cross_entropy": float(-np.log(probabilities).mean()),
        "tokens": len(probabilities),
        "training_tokens": len(trigrams),
        "discounts": [order.discounts.tolist() for order in orders],
    }


def fit(trigrams: np.ndarray) -> list[Order]:
    """Return orders 1, 2 and 3, fitted to packed trigrams, uint64 [tokens]."""
    ngrams, counts = np.unique(trigrams, return_counts=True)
    orders = [_smooth(ngrams, counts)]
    for order in (2, 1):
        # Below the highest order an n-gram counts once for each word that precedes it.
        kept = np.uint64((1 << BITS * order) - 1)
        ngrams, counts = np.unique(ngrams & kept, return_counts=True)
        orders.insert(0, _smooth(ngrams, counts))
    return orders


def _smooth(ngrams: np.ndarray, counts: np.ndarray) -> Order:
    discounts = _discounts(counts)
    taken = discounts[np.minimum(counts, 3) - 1]
    begins = np.flatnonzero(np.diff(ngrams >> SHIFT, prepend=np.uint64(1 << 63)))
    totals = np.add.reduceat(counts, begins)
    scores = (counts - taken) / np.repeat(totals, np.diff(begins, append=len(ngrams)))
    return Order(ngrams, scores, (ngrams >> SHIFT)[begins], np.add.reduceat(taken, begins) / totals, discounts)


def _discounts(counts: np.ndarray) -> np.ndarray:
    """Return Chen and Goodman's estimates from the numbers of n-grams seen one to four times, clipped.

    Small or artificial texts lack n-grams of some count; there the estimate is a half.
    """
    once, twice, thrice, four = (float((counts == count).sum()) for count in (1, 2, 3, 4))
    base = once / (once + 2 * twice) if once else 0.5
    pairs = ((1, twice, once), (2, thrice, twice), (3, four, thrice))
    estimates = [count - (count + 1) * base * more / fewer if fewer and more else 0.5 for count, more, fewer in pairs]
    return np.clip(estimates, 0.05, [0.95, 1.9, 2.85])


def predict(orders: list[Order], trigrams: np.ndarray, words: int) -> np.ndarray:
    """Return the probability of each packed trigram's last word among `words` words: float64 [n]."""
    probabilities = np.full(len(trigrams), 1.0 / words)
    for number, order in enumerate(orders, start=1):
        ngrams = trigrams & np.uint64((1 << BITS * number) - 1)
        seen, at = _find(order.contexts, ngrams >> SHIFT)
        spare = np.where(seen, order.spare[at], 1.0)
        known, at = _find(order.ngrams, ngrams)
        probabilities = spare * probabilities + np.where(known, order.scores[at], 0.0)
    return probabilities


def _find(ascending: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each value is in `ascending`, and its index (arbitrary if it is not)."""
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return ascending[at] == values, at


def _spread(reader: SampleReader, max_tokens: int) -> np.ndarray:
    """Return evenly spaced samples with about `max_tokens` tokens: int64, ascending."""
    total = int(reader.lengths.sum(dtype=np.int64))
    count = len(reader) if total <= max_tokens else max(1, len(reader) * max_tokens // total)
    return np.arange(count, dtype=np.int64) * len(reader) // count  # also without any sample


def _trigrams(reader: SampleReader, samples: np.ndarray) -> np.ndarray:
    """Return every token of the samples packed with the two before it: uint64 [tokens].

    Each sample ends with [SEP] and begins with [CLS], so these two precede the first word of every sample.
    """
    tokens = reader.gather(samples).tokens.astype(np.uint64)
    return np.roll(tokens, 2) << (SHIFT + SHIFT) | np.roll(tokens, 1) << SHIFT | tokens


def _asked_trigrams(reader: SampleReader, asked: list[tuple[int, np.ndarray]]) -> np.ndarray:
    samples = np.array([sample for sample, _ in asked], dtype=np.int64)
    trigrams = _trigrams(reader, samples)
    offsets = offsets_of(reader.lengths[samples])
    inside = [positions.astype(np.int64) + offset for (_, positions), offset in zip(asked, offsets, strict=False)]
    return trigrams[np.concatenate([np.zeros(0, dtype=np.int64), *inside])]
