"""Samples of a dataset's documents, chosen by a hash of their ids.

Neither the number nor the order of parts alters a sample, and a larger one contains every smaller one. It is taken from
the documents that are not removed, and is independent of the choice of held-out documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bertline.files import Json
from bertline.splitmix import mix

Orders = npt.NDArray[np.uint64]
Amounts = npt.NDArray[np.int64]

UNITS = ("documents", "sentences", "bytes")  # bytes of the sentences, UTF-8
SAMPLED_OUT = "sampled_out"
BINS, SHIFT = 1 << 16, np.uint64(48)


def groups_of(sample: Json, corpora: Sequence[str]) -> list[tuple[list[str], str, float]]:
    """Return the corpora that a dataset's `sample` reduces together, each with a unit and its amount.

    Args:
        sample: `{unit: amount}` for all corpora together, or `{corpus: {unit: amount}}`; corpora not named stay whole.
        corpora: the names of the dataset's corpora.
    """
    if any(isinstance(value, Mapping) for value in sample.values()):
        return [([corpus], *_of(amount)) for corpus, amount in sample.items()]
    return [(list(corpora), *_of(sample))] if sample else []


def _of(amount: Json) -> tuple[str, float]:
    ((unit, number),) = amount.items()
    return unit, number


def sampling_order(id_hash: Orders) -> Orders:
    """Return the place of documents in the order in which they enter a sample: a hash of the hash.

    Held-out documents are those of the lowest hashes, so the hash itself would take all of them first.
    """
    return mix(id_hash)


def last_of_sample(documents: Callable[[], Iterable[tuple[Orders, Amounts]]], amount: float) -> np.uint64 | None:
    """Return the highest place in the sampling order that is in the sample, or None if the sample has all documents.

    A sample consists of the documents of the first ids that together do not exceed `amount`, but of at least one id's.
    Documents are read twice; the memory holds at most a 65,536th of them.

    Args:
        documents: each call yields the places and amounts of all documents again, part by part.
    """
    totals = np.zeros(BINS, dtype=np.int64)
    for order, amounts in documents():
        # Sums of less than 2^53 are exact in its floating-point numbers.
        totals += np.bincount((order >> SHIFT).astype(np.int64), amounts, BINS).astype(np.int64)
    sums = np.cumsum(totals)
    if sums[-1] <= amount:
        return None
    border = int(np.searchsorted(sums, amount, side="right"))
    before = int(sums[border] - totals[border])
    there = ((order, amounts, (order >> SHIFT) == np.uint64(border)) for order, amounts in documents())
    of_border = [(order[chosen], amounts[chosen]) for order, amounts, chosen in there]
    places, sizes = (np.concatenate(column) for column in zip(*of_border, strict=True))
    places, id_of = np.unique(places, return_inverse=True)  # documents with one id have one place
    sizes_of_ids = np.bincount(id_of, sizes).astype(np.int64)
    taken = int(np.searchsorted(np.cumsum(sizes_of_ids) + before, amount, side="right"))
    if taken == 0 and before > 0:
        return (np.uint64(border) << SHIFT) - np.uint64(1)
    return np.uint64(places[max(taken - 1, 0)])
