"""Exact and near duplicates of earlier documents, over all parts of all corpora of a dataset.

Candidates are found by locality-sensitive hashing: the 128 minima of a signature are split into 16 bands, and documents
that agree in a whole band are compared. The recall is 1 - (1 - s^8)^16 at a similarity s: 95 percent of the pairs that
share 80 percent of their sequences of five words, 99 at 85 percent, 99.99 at 90 percent. Candidates are compared by all
minima, so that only those at the threshold or above are removed (standard error of that estimate: 3.5 points at 80
percent).

The signatures are read once. Their bands are copied to temporary files, 16 bytes a document and band, each with about
`DOCUMENTS_AT_ONCE` documents, and processed one after the other: the time grows with the number of documents, and the
memory is some 40 bytes for each document of a file and 12 for every one, whatever its length.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertline.console import progress
from bertline.corpus.signatures import PERMUTATIONS, SIGNATURE_TYPE, Signatures, open_signatures
from bertline.spool import Spool

BANDS = 16
ROWS_OF_BAND = PERMUTATIONS // BANDS
SIMILARITY = 0.8
# Thousands of different documents may agree in a band (articles made from one template): comparing all of them would
# take quadratic time.
MAX_LEADERS = 64
COMPARED_AT_ONCE = 1 << 16
# More than in any Wikipedia.
DOCUMENTS_AT_ONCE = 1 << 24
_ENTRY_TYPE = np.dtype([("key", "<u8"), ("document", "<i8")])

EXACT, NEAR = "exact_duplicate", "near_duplicate"
KEPT = -1

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]
Entries = npt.NDArray[np.void]  # of _ENTRY_TYPE


class _Documents(NamedTuple):
    """The documents of several signature files, numbered through all of them."""

    parts: Sequence[Path | str]
    firsts: Numbers  # [parts + 1], the number of each part's first document, and that of all documents


def find_duplicates(parts: Sequence[Path | str], ignored: Flags, *, near: bool, folder: Path) -> tuple[Numbers, Flags]:
    """Find the documents that duplicate an earlier one; the first one is kept.

    Args:
        parts: signature files; documents are numbered through all of them, in this order.
        ignored: bool [documents], those that are neither compared nor a duplicate's original.
        near: whether to find near-duplicates in addition to exact ones.
        folder: for temporary files.

    Returns:
        duplicate_of: int64 [documents], the number of the document that is kept instead, or KEPT. is_exact: bool
        [documents], whether it equals the document that it was compared with.

    A document is removed if it is similar to an earlier one in some band. If that one is itself a duplicate of an even
    earlier one, both are duplicates of the latter. The result depends only on the documents and their order.
    """
    documents = _Documents(parts, np.cumsum([0, *(len(open_signatures(part)) for part in parts)]))
    duplicate_of = np.full(documents.firsts[-1], KEPT, dtype=np.int64)
    exact, *bands = _write_keys(documents, ignored, [None, *range(BANDS)] if near else [None], folder)
    _link(documents, duplicate_of, exact, exact=True)
    is_exact = duplicate_of != KEPT
    for band in progress(bands, description="near-duplicates", unit="bands", total=len(bands), shown=near):
        _link(documents, duplicate_of, band, exact=False)
    removed = np.flatnonzero(duplicate_of != KEPT)
    while (again := removed[duplicate_of[duplicate_of[removed]] != KEPT]).size:
        duplicate_of[again] = duplicate_of[duplicate_of[again]]
    return duplicate_of, is_exact


def _write_keys(documents: _Documents, ignored: Flags, bands: Sequence[int | None], folder: Path) -> list[list[Spool]]:
    """Write the keys of all documents that are not ignored; return the files of each band (None: of the texts).

    In each file documents are in order, and all with the same key are in the same file.
    """
    files = -(-len(ignored) // DOCUMENTS_AT_ONCE)
    spools = [[Spool(folder, _ENTRY_TYPE) for _ in range(files)] for _ in bands]
    parts = zip(documents.parts, documents.firsts[:-1].tolist(), strict=True)
    for part, first in progress(parts, description="signatures", unit="parts", total=len(documents.parts)):
        signatures = open_signatures(part)
        compared = np.flatnonzero(~ignored[first : first + len(signatures)])
        for band, of_band in zip(bands, spools, strict=True):
            entries = np.empty(len(compared), _ENTRY_TYPE)
            entries["key"], entries["document"] = _keys(signatures, band)[compared], first + compared
            file_of = entries["key"] % np.uint64(files)
            for number, spool in enumerate(of_band):
                spool.append(entries[file_of == number])
    return spools


def _link(documents: _Documents, duplicate_of: Numbers, keys: Sequence[Spool], *, exact: bool) -> None:
    """Link documents that agree in a band, or with `exact` in the text, to the first document similar to them."""
    for spool in keys:
        entries: Entries = spool.read()
        entries = entries[duplicate_of[entries["document"]] == KEPT]
        entries = entries[np.argsort(entries["key"], kind="stable")]
        _link_groups(documents, duplicate_of, entries["document"], entries["key"], exact=exact)


def _link_groups(documents: _Documents, duplicate_of: Numbers, members: Numbers, keys: Keys, *, exact: bool) -> None:
    """Link each of these documents, sorted by key, then by number, to the first similar one with its key."""
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
