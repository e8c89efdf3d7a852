"""Exact and near duplicates of earlier documents, over all parts of all corpora of a dataset.

Candidates are found by locality-sensitive hashing: the 128 minima of a signature are split into 16 bands, and documents
that agree in a whole band are compared. At a similarity s these are 1 - (1 - s^8)^16 of the pairs: 95 percent of those
that share 80 percent of their sequences of five words, 99 at 85 percent, 99.99 at 90 percent. Candidates are compared
by all minima, and removed if this estimate (standard error: 3.5 points at 80 percent) is at the threshold or above. So
about half of the pairs at the threshold are removed. Measured on 400 pairs each: 46 percent of those that share 80
percent, 71 at 82 percent, 94 at 85 percent, all at 90 percent.

The signatures are read once. Their keys, 16 bytes a document and band, go to temporary files in buckets of about
`DOCUMENTS_AT_ONCE` documents, which are processed one after the other; so do the duplicates found. The time grows with
the number of documents. The memory is fixed, except for one bit of each document. All documents with the same key are
in one bucket, where a million of them take 50 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertline.console import progress
from bertline.corpus.signatures import PERMUTATIONS, SignatureFiles, Signatures
from bertline.splitmix import GOLDEN
from bertline.spool import BucketSpool

BANDS = 16
WORDS_OF_BAND = 2  # of 64 bits: 8 minima
SIMILARITY = 0.8
# Thousands of different documents may agree in a band (articles made from one template): comparing all of them would
# take quadratic time.
MAX_LEADERS = 64
COMPARED_AT_ONCE = 1 << 18
ROWS_AT_ONCE = 1 << 16
DOCUMENTS_AT_ONCE = 1 << 22
_TEXT_TYPE = np.dtype([("key", "<u8"), ("rest", "<u8"), ("document", "<i8")])
_BAND_TYPE = np.dtype([("key", "<u8"), ("document", "<i8")])
# `original`: the document that is kept instead; `exact`: whether `document` equals the one that it was compared with.
LINK_TYPE = np.dtype([("document", "<i8"), ("original", "<i8"), ("exact", "?")])

EXACT, NEAR = "exact_duplicate", "near_duplicate"
_KEPT = -1

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Entries = npt.NDArray[np.void]  # of _TEXT_TYPE or _BAND_TYPE
Links = npt.NDArray[np.void]  # of LINK_TYPE


class _FlagOfEach:
    """A flag of each document, one bit each."""

    def __init__(self, documents: int) -> None:
        self._bits = np.zeros(-(-documents // 8), dtype=np.uint8)

    def set(self, numbers: Numbers) -> None:
        np.bitwise_or.at(self._bits, numbers >> 3, (1 << (numbers & 7)).astype(np.uint8))

    def of(self, numbers: Numbers) -> Flags:
        return (self._bits[numbers >> 3] >> (numbers & 7).astype(np.uint8) & 1).astype(np.bool_)


class _Found(NamedTuple):
    """The duplicates found so far: which documents are removed, and the links, by the range of either end."""

    is_out: _FlagOfEach
    by_document: BucketSpool
    by_original: BucketSpool

    def add(self, documents: Numbers, originals: Numbers, *, exact: bool) -> None:
        links = np.empty(len(documents), LINK_TYPE)
        links["document"], links["original"], links["exact"] = documents, originals, exact
        self.is_out.set(documents)
        self.by_document.append(links, documents // DOCUMENTS_AT_ONCE)
        self.by_original.append(links, originals // DOCUMENTS_AT_ONCE)


def find_duplicates(
    parts: Sequence[Path | str], ignored: Iterable[Numbers], *, near: bool, folder: Path
) -> Iterator[Links]:
    """Find the documents that duplicate an earlier one; the first one is kept.

    Args:
        parts: signature files; documents are numbered through all of them, in this order.
        ignored: the documents that are neither compared nor a duplicate's original, in any number of arrays.
        near: whether to find near-duplicates in addition to exact ones.
        folder: for temporary files.

    Yields:
        for each range of DOCUMENTS_AT_ONCE documents its duplicates, of LINK_TYPE, sorted by document.

    Equal texts go first, then the bands run in order: a document is removed if it agrees in the band with an earlier
    one that is similar and still kept, among the first MAX_LEADERS that are not similar to each other. So a document
    may stay though it is similar to one that an earlier band removed. If a later band removes the one that it was found
    to repeat, both are duplicates of the earliest. The result depends only on the documents and their order.
    """
    signatures = SignatureFiles(parts)
    ranges = -(-int(signatures.firsts[-1]) // DOCUMENTS_AT_ONCE)
    found = _Found(_FlagOfEach(signatures.firsts[-1]), *(BucketSpool(folder, LINK_TYPE, ranges) for _ in range(2)))
    for numbers in ignored:
        found.is_out.set(numbers)
    texts, bands = _write_keys(signatures, found.is_out, BANDS if near else 0, ranges, folder)
    for bucket in range(ranges):
        _link_equal(_read_entries(texts, bucket, found.is_out), found)
    for band in progress(bands, description="near-duplicates", unit="bands", total=len(bands), shown=near):
        for bucket in range(ranges):
            _link_similar(_read_entries(band, bucket, found.is_out), found, signatures)
    yield from _resolve(found, ranges, folder)


def _write_keys(
    signatures: SignatureFiles, is_out: _FlagOfEach, bands: int, buckets: int, folder: Path
) -> tuple[BucketSpool, list[BucketSpool]]:
    """Write the keys of all documents that are not out: of their texts, and of each band.

    In each bucket documents are in order, and all with the same key are in the same bucket.
    """
    texts = BucketSpool(folder, _TEXT_TYPE, buckets)
    of_bands = [BucketSpool(folder, _BAND_TYPE, buckets) for _ in range(bands)]
    blocks = signatures.blocks(ROWS_AT_ONCE)
    for first, rows in progress(blocks, description="signatures", unit="blocks"):
        documents = np.arange(first, first + len(rows))
        compared = ~is_out.of(documents)
        rows, documents = rows[compared], documents[compared]
        entries = np.empty(len(rows), _TEXT_TYPE)
        entries["key"], entries["rest"], entries["document"] = rows["digest"][:, 0], rows["digest"][:, 1], documents
        texts.append(entries, _bucket_of(entries["key"], buckets))
        words = np.ascontiguousarray(rows["minima"]).view("<u8")
        keys = words[:, ::WORDS_OF_BAND] * np.uint64(GOLDEN) ^ words[:, 1::WORDS_OF_BAND]
        for band, spool in enumerate(of_bands):
            entries = np.empty(len(rows), _BAND_TYPE)
            entries["key"], entries["document"] = keys[:, band], documents
            spool.append(entries, _bucket_of(entries["key"], buckets))
    return texts, of_bands


def _bucket_of(keys: npt.NDArray[np.uint64], buckets: int) -> npt.NDArray[np.uint64]:
    """Return a bucket for each key, from its upper half."""
    return (keys >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)


def _read_entries(spool: BucketSpool, bucket: int, is_out: _FlagOfEach) -> Entries:
    """Return those entries of a bucket that share their key and are not out, sorted by key, then by document."""
    blocks = [block[~is_out.of(block["document"])] for block in spool.read(bucket)]
    entries = np.concatenate([np.empty(0, spool.dtype), *blocks])
    # Most keys are alone. Sorting the lower bits of keys, with positions below them, takes half the time of `argsort`.
    bits = np.uint64(len(entries).bit_length())
    ordered = entries["key"] << bits | np.arange(len(entries), dtype=np.uint64)
    ordered.sort()
    shared = ordered[_has_equal_neighbour(ordered >> bits)] & ((np.uint64(1) << bits) - np.uint64(1))
    entries = entries[shared.astype(np.int64)]
    entries = entries[np.argsort(entries["key"], kind="stable")]
    return entries[_has_equal_neighbour(entries["key"])]


def _has_equal_neighbour(values: npt.NDArray[np.uint64]) -> Flags:
    is_equal = np.zeros(len(values), dtype=np.bool_)
    is_equal[1:] = values[1:] == values[:-1]
    is_equal[:-1] |= is_equal[1:]
    return is_equal


def _link_equal(entries: Entries, found: _Found) -> None:
    """Link each document to the first one with its text."""
    entries = entries[np.lexsort((entries["rest"], entries["key"]))]  # stable, so documents stay in order
    begins = np.ones(len(entries), dtype=np.bool_)
    begins[1:] = (entries["key"][1:] != entries["key"][:-1]) | (entries["rest"][1:] != entries["rest"][:-1])
    members = entries["document"]
    found.add(members[~begins], members[begins][np.cumsum(begins)[~begins] - 1], exact=True)


def _link_similar(entries: Entries, found: _Found, signatures: SignatureFiles) -> None:
    """Link each document to the first one with its key that is similar."""
    members, keys = entries["document"], entries["key"]
    for _ in range(MAX_LEADERS):
        if not len(members):
            return
        # Each group begins with its earliest document: the leader.
        begins = np.append(True, keys[1:] != keys[:-1])
        leaders = members[begins][np.cumsum(begins) - 1]
        members, leaders, keys = members[~begins], leaders[~begins], keys[~begins]
        is_like = _compare(signatures, members, leaders)
        found.add(members[is_like], leaders[is_like], exact=False)
        members, keys = members[~is_like], keys[~is_like]


def _compare(signatures: SignatureFiles, one: Numbers, other: Numbers) -> Flags:
    """Return whether each pair of documents is similar enough."""
    is_like = np.empty(len(one), dtype=np.bool_)
    for start in range(0, len(one), COMPARED_AT_ONCE):
        chunk = slice(start, start + COMPARED_AT_ONCE)
        numbers, places = np.unique(np.concatenate([one[chunk], other[chunk]]), return_inverse=True)
        minima: Signatures = signatures.rows(numbers)["minima"]
        first, second = np.split(places, 2)
        equal = np.count_nonzero(minima[first] == minima[second], axis=1)
        is_like[chunk] = equal >= SIMILARITY * PERMUTATIONS
    return is_like


def _resolve(found: _Found, ranges: int, folder: Path) -> Iterator[Links]:
    """Yield the links of each range, to originals that are kept.

    An original is earlier than its duplicate. So from the last range to the first, each one receives all links to its
    documents, those of later ranges included, and passes on those whose original has an original in an earlier range.
    """
    resolved, waiting = BucketSpool(folder, LINK_TYPE, ranges), found.by_original
    for number in reversed(range(ranges)):
        first = number * DOCUMENTS_AT_ONCE
        original_of = np.full(DOCUMENTS_AT_ONCE, _KEPT, dtype=np.int64)
        for links in found.by_document.read(number):
            original_of[links["document"] - first] = links["original"]
        for links in waiting.read(number):
            originals = links["original"].copy()
            is_here = np.ones(len(links), dtype=np.bool_)
            following = original_of[originals - first]
            while (is_passed := following != _KEPT).any():
                originals[np.flatnonzero(is_here)[is_passed]] = following[is_passed]
                is_here = originals >= first
                following = original_of[originals[is_here] - first]
            links = links.copy()
            links["original"] = originals
            resolved.append(links[is_here], links["document"][is_here] // DOCUMENTS_AT_ONCE)
            waiting.append(links[~is_here], originals[~is_here] // DOCUMENTS_AT_ONCE)
    for number in range(ranges):
        links = np.concatenate([np.empty(0, LINK_TYPE), *resolved.read(number)])
        yield links[np.argsort(links["document"], kind="stable")]
