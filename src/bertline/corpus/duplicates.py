"""Exact and near duplicates of earlier documents, over all parts of all corpora of a dataset.

Candidates are found by locality-sensitive hashing: the 128 minima of a signature are split into 16 bands, and documents
that agree in a whole band are compared. The recall is 1 - (1 - s^8)^16 at a similarity s: 95 percent of the pairs that
share 80 percent of their sequences of five words, 99 at 85 percent, 99.99 at 90 percent. Candidates are compared by all
minima, so that only those at the threshold or above are removed (standard error of that estimate: 3.5 points at 80
percent).

Bands are processed one at a time, about `DOCUMENTS_AT_ONCE` documents at once. This takes some 40 bytes of memory for
each of these, and 12 for every document, whatever its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertline.console import progress
from bertline.corpus.signatures import PERMUTATIONS, SIGNATURE_TYPE, Signatures, open_signatures

BANDS = 16
ROWS_OF_BAND = PERMUTATIONS // BANDS
SIMILARITY = 0.8
# Thousands of different documents may agree in a band (articles made from one template): comparing all of them would
# take quadratic time.
MAX_LEADERS = 64
COMPARED_AT_ONCE = 1 << 16
# More than in any Wikipedia. A dataset of n times as many reads its signatures n times for each band.
DOCUMENTS_AT_ONCE = 1 << 23

EXACT, NEAR = "exact_duplicate", "near_duplicate"
KEPT = -1

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]


class _Documents(NamedTuple):
    """The documents of several signature files, numbered through all of them."""

    parts: Sequence[Path | str]
    firsts: Numbers  # [parts + 1], the number of each part's first document, and that of all documents


def find_duplicates(parts: Sequence[Path | str], ignored: Flags, *, near: bool) -> tuple[Numbers, Flags]:
    """Find the documents that duplicate an earlier one; the first one is kept.

    Args:
        parts: signature files; documents are numbered through all of them, in this order.
        ignored: bool [documents], those that are neither compared nor a duplicate's original.
        near: whether to find near-duplicates in addition to exact ones.

    Returns:
        duplicate_of: int64 [documents], the number of the document that is kept instead, or KEPT. is_exact: bool
        [documents], whether it equals the document that it was compared with.

    A document is removed if it is similar to an earlier one in some band. If that one is itself a duplicate of an even
    earlier one, both are duplicates of the latter. The result depends only on the documents and their order.
    """
    documents = _Documents(parts, np.cumsum([0, *(len(open_signatures(part)) for part in parts)]))
    duplicate_of = np.full(documents.firsts[-1], KEPT, dtype=np.int64)
    _link(documents, duplicate_of, ignored, band=None)
    is_exact = duplicate_of != KEPT
    if near:
        for band in progress(range(BANDS), description="near-duplicates", unit="bands", total=BANDS):
            _link(documents, duplicate_of, ignored, band=band)
    removed = np.flatnonzero(duplicate_of != KEPT)
    while (again := removed[duplicate_of[duplicate_of[removed]] != KEPT]).size:
        duplicate_of[again] = duplicate_of[duplicate_of[again]]
    return duplicate_of, is_exact


def _link(documents: _Documents, duplicate_of: Numbers, ignored: Flags, band: int | None) -> None:
    """Link documents that agree in a band (None: in the text) to the first document similar to them."""
    passes = -(-len(duplicate_of) // DOCUMENTS_AT_ONCE)
    for number in range(passes):
        members, keys = _candidates(documents, (duplicate_of == KEPT) & ~ignored, band, number, passes)
        _link_groups(documents, duplicate_of, members, keys, exact=band is None)


def _candidates(documents: _Documents, wanted: Flags, band: int | None, number: int, of: int) -> tuple[Numbers, Keys]:
    """Return the wanted documents of one pass out of `of`, and their keys: sorted by key, then by document.

    All documents with the same key are in the same pass.
    """
    found, keys_found = [], []
    for part, first in zip(documents.parts, documents.firsts[:-1].tolist(), strict=True):
        keys = _keys(open_signatures(part), band)
        here = np.flatnonzero(wanted[first : first + len(keys)] & (keys % np.uint64(of) == number))
        found.append(first + here)
        keys_found.append(keys[here])
    members, keys = np.concatenate(found), np.concatenate(keys_found)
    order = np.argsort(keys, kind="stable")
    return members[order], keys[order]


def _link_groups(documents: _Documents, duplicate_of: Numbers, members: Numbers, keys: Keys, *, exact: bool) -> None:
    """Link each of these documents, as returned by `_candidates`, to the first similar one with its key."""
    in_group = np.zeros(len(keys), dtype=np.bool_)
    in_group[1:] = keys[1:] == keys[:-1]
    in_group[:-1] |= in_group[1:]
    members, keys = members[in_group], keys[in_group]
    for _ in range(MAX_LEADERS):
        if not len(members):
            return
        # The sort is stable, so each group begins with its earliest document: the leader.
        begins = np.append(True, keys[1:] != keys[:-1])
        leaders = members[begins][np.cumsum(begins) - 1]
        members, leaders, keys = members[~begins], leaders[~begins], keys[~begins]
        is_like = _compare(documents, members, leaders, exact=exact)
        duplicate_of[members[is_like]] = leaders[is_like]
        members, keys = members[~is_like], keys[~is_like]


def _keys(signatures: Signatures, band: int | None) -> Keys:
    """Return a number for each document, equal for documents that agree in the band."""
    if band is None:
        return np.array(signatures["digest"][:, 0])
    columns = slice(band * ROWS_OF_BAND, (band + 1) * ROWS_OF_BAND)
    words = np.ascontiguousarray(signatures["minima"][:, columns]).view("<u8")  # two of 64 bits
    return words[:, 0] * np.uint64(0x9E3779B97F4A7C15) ^ words[:, 1]


def _compare(documents: _Documents, one: Numbers, other: Numbers, *, exact: bool) -> Flags:
    """Return whether each pair of documents is equal (`exact`) or similar enough."""
    is_like = np.empty(len(one), dtype=np.bool_)
    for start in range(0, len(one), COMPARED_AT_ONCE):
        chunk = slice(start, start + COMPARED_AT_ONCE)
        first, second = (_rows(documents, numbers[chunk]) for numbers in (one, other))
        if exact:
            is_like[chunk] = (first["digest"] == second["digest"]).all(axis=1)
        else:
            is_like[chunk] = (first["minima"] == second["minima"]).mean(axis=1) >= SIMILARITY
    return is_like


def _rows(documents: _Documents, numbers: Numbers) -> Signatures:
    """Return the signatures of some documents, by their numbers, copied from their parts."""
    part_of = np.searchsorted(documents.firsts, numbers, side="right") - 1
    rows = np.empty(len(numbers), dtype=SIGNATURE_TYPE)
    for part in np.unique(part_of).tolist():
        here = part_of == part
        rows[here] = open_signatures(documents.parts[part])[numbers[here] - documents.firsts[part]]
    return rows
