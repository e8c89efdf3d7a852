"""Weighted mixture of corpora: how often an epoch visits the samples of each, as a pure function of (seed, position).

Each document is stored once. A corpus of N samples and weight w has round(w x N) slots in an epoch. They cycle through
its samples in a fixed shuffled order, and each epoch continues where the one before stopped: in every epoch, and in any
number of epochs together, the visits to a sample are its share rounded down or up, and none is left out. The slots of
all corpora are then permuted anew in every epoch. The sample at any position can be computed independently.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.hashing import mix_integers
from bertline.training.data.order import permute, samples_at

logger = logging.getLogger(__name__)

Weights = Mapping[str, float | Mapping[str, float]]


@dataclass(frozen=True)
class Mixture:
    """Locations of each corpus's samples, and the number of their slots in an epoch.

    Attributes:
        run_starts: int64 [runs], first sample of each run of consecutive samples of one corpus, ordered by corpus.
        run_ends: int64 [runs], number of samples of its corpus in the runs up to its end.
        first_run: int64 [corpora + 1], index of each corpus's first run.
        sizes: int64 [corpora], number of samples.
        slots: int64 [corpora], number of slots in an epoch.
    """

    run_starts: np.ndarray
    run_ends: np.ndarray
    first_run: np.ndarray
    sizes: np.ndarray
    slots: np.ndarray

    def samples_at(self, positions: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples at `positions` (int64 [N], not negative) of the infinite stream of epochs.

        Returns the samples, int64 [N], and the number of earlier visits to each, int64 [N].
        """
        slots_at, epochs = samples_at(positions, seed=seed, count=int(self.slots.sum()))
        ends = np.cumsum(self.slots)
        corpora = np.searchsorted(ends, slots_at, side="right")
        samples, visits = np.empty_like(slots_at), np.empty_like(slots_at)
        for corpus in np.unique(corpora).tolist():
            chosen = corpora == corpus
            size, slots = int(self.sizes[corpus]), int(self.slots[corpus])
            turns = epochs[chosen] * slots + slots_at[chosen] - (ends[corpus] - slots)
            visits[chosen], of_corpus = np.divmod(turns, size)
            of_corpus = permute(of_corpus, key=mix_integers(seed, -1 - corpus), count=size)
            samples[chosen] = self._sample(corpus, of_corpus)
        return samples, visits

    def _sample(self, corpus: int, of_corpus: np.ndarray) -> np.ndarray:
        """Map indices within a corpus to indices within all samples."""
        first, last = int(self.first_run[corpus]), int(self.first_run[corpus + 1])
        ends = self.run_ends[first:last]
        run = np.searchsorted(ends, of_corpus, side="right")
        before = np.concatenate([[0], ends[:-1]])[run]
        return self.run_starts[first:last][run] + of_corpus - before


def make_mixture(
    corpora: Sequence[str], corpus_index: Iterable[np.ndarray], lengths: np.ndarray, weights: Weights
) -> Mixture:
    """Mix the samples of a split.

    Args:
        corpora: their names, in the order of `corpus_index`.
        corpus_index: uint8, in blocks [n] of any size, the corpus of each of the N samples.
        lengths: unsigned integers [N], number of tokens of each.
        weights: name -> how often an epoch visits each of the corpus's samples, or `{"tokens": t}`: how many of its
            tokens an epoch contains. The default weight is 1.

    A corpus of which less than half a sample is left is reported.

    Raises BertlineError for an unknown name, or if no sample is left.
    """
    if unknown := [name for name in weights if name not in corpora]:
        raise BertlineError(f"corpus_weights: given '{unknown[0]}', allowed are {', '.join(corpora)}")
    starts, run_corpora = _runs(corpus_index)
    run_lengths = np.diff(starts, append=len(lengths))
    order = np.argsort(run_corpora, kind="stable")
    first_run = np.searchsorted(run_corpora[order], np.arange(len(corpora) + 1))
    sizes, tokens = np.zeros((2, len(corpora)), dtype=np.int64)
    np.add.at(sizes, run_corpora, run_lengths)
    np.add.at(tokens, run_corpora, np.add.reduceat(lengths, starts, dtype=np.int64))
    ends = np.cumsum(run_lengths[order])
    before = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    run_ends = ends - before[run_corpora[order]]
    counts = zip(corpora, sizes.tolist(), tokens.tolist(), strict=True)
    slots = np.array([round(size * _weight(weights.get(name, 1.0), held)) for name, size, held in counts], np.int64)
    if not slots.sum():
        raise BertlineError("corpus_weights: leave no sample; raise one of them")
    for name, size, visited in zip(corpora, sizes.tolist(), slots.tolist(), strict=True):
        if size and not visited and weights[name] not in (0, {"tokens": 0}):
            given = f"corpus_weights: {name}: given {weights[name]}"
            logger.warning("%s leaves an epoch none of its %d samples; raise it, or set 0", given, size)
    return Mixture(starts[order], run_ends, first_run, sizes, slots)


def _runs(blocks: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the first sample of each run of consecutive samples of one corpus, int64 [runs], and the corpora."""
    starts, corpora = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)]
    done, last = 0, -1
    for block in blocks:
        begins = np.flatnonzero(np.diff(block.astype(np.int64), prepend=last))
        starts.append(done + begins)
        corpora.append(block[begins])
        done, last = done + len(block), int(block[-1]) if len(block) else last
    return np.concatenate(starts), np.concatenate(corpora)


def _weight(given: float | Mapping[str, float], tokens: float) -> float:
    """Return how often an epoch visits each sample of a corpus with `tokens` tokens."""
    if isinstance(given, Mapping):
        return given["tokens"] / tokens if tokens else 0.0
    return given
