"""Signatures of documents, by which duplicates are found without reading the documents again.

A signature file is a `.npy` of SIGNATURE_TYPE, one row per document, in the order of the part: 272 bytes whatever the
document's length. Similarity is measured by MinHash (Broder, On the Resemblance and Containment of Documents, 1997)
over sequences of five words.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

from bertline.arrays import read_array
from bertline.console import BertlineError, progress
from bertline.corpus.documents import read_documents
from bertline.corpus.ngrams import Hashes, Places, in_groups, ngram_hashes, ngram_hashes_of
from bertline.files import read_object, write_atomically

PERMUTATIONS = 128
NGRAM_WORDS = 5
SEED = 1
NO_MINIMUM = 0xFFFFFFFF

# digest: the first 16 bytes of the text's SHA-256. minima: the lower halves of the 32-bit minima; the upper halves of
# a long document's are all zeros.
SIGNATURE_TYPE = np.dtype([("digest", "<u8", (2,)), ("minima", "<u2", (PERMUTATIONS,))])
Signatures = npt.NDArray[np.void]


def signatures_of(texts: Sequence[str]) -> Signatures:
    """Return a row for each text, which is one text, or several short ones as of `in_groups`.

    Texts of fewer than five words are similar only to equal ones.
    """
    rows = np.empty(len(texts), dtype=SIGNATURE_TYPE)
    digests = b"".join(hashlib.sha256(text.encode()).digest()[:16] for text in texts)
    rows["digest"] = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    if len(texts) > 1:
        minima = _minima(*ngram_hashes_of(texts, NGRAM_WORDS))
    else:
        blocks = [_minima(hashes, np.array([len(hashes)])) for hashes in ngram_hashes(texts[0], NGRAM_WORDS)]
        minima = np.minimum.reduce([_minima(np.empty(0, np.uint64), np.zeros(1, np.int64)), *blocks])
    is_short = (minima == NO_MINIMUM).all(axis=1)
    minima[is_short] = _minima(rows["digest"][is_short, 0], np.ones(is_short.sum(), np.int64))
    rows["minima"] = minima.astype(np.uint16)
    return rows


def _minima(hashes: Hashes, counts: Places) -> npt.NDArray[np.uint32]:
    """Return the least value of each permutation of the hashes of each text, given the number of its: [texts, 128].

    A text without any has NO_MINIMUM.
    """
    borders = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)
    found: Any = RMinHash.digest_matrix_from_flat_token_hashes(
        np.ascontiguousarray(hashes), borders, PERMUTATIONS, SEED
    )
    return np.array(found.to_rows(), dtype=np.uint32).reshape(len(counts), PERMUTATIONS)


def write_signatures(documents: Path | str, counts: Path | str, output: Path | str) -> None:
    """Write the signatures of a part atomically.

    Args:
        documents: a `.jsonl.zst`.
        counts: its `.counts.json`, which states the number of rows.
        output: the `.npy` to write.

    Raises BertlineError if the two do not agree.
    """
    announced = read_object(counts, "kept")["kept"]
    if not isinstance(announced, int) or announced < 0:
        raise BertlineError(f"{counts} states no number of documents (kept is {announced!r}); make it again")
    texts = (document["text"] for document in read_documents(documents))
    with write_atomically(output) as temporary, temporary.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(SIGNATURE_TYPE), "fortran_order": False, "shape": (announced,)}
        np.lib.format.write_array_header_1_0(file, header)
        written = 0
        shown = progress(texts, description=Path(documents).name, unit="documents", total=announced)
        for group in in_groups(shown, len):
            file.write(signatures_of(group).tobytes())
            written += len(group)
        if written != announced:
            raise BertlineError(
                f"{documents} contains {written} documents, {counts} states {announced}; make both again"
            )


def open_signatures(path: Path | str) -> Signatures:
    """Memory-map a signature file, [documents] of SIGNATURE_TYPE. Raises BertlineError if it is missing or invalid."""
    return read_array(path, "a signature file", SIGNATURE_TYPE, mapped=True)


class SignatureFiles:
    """The rows of several signature files, numbered through all of them.

    Attributes:
        firsts: int64 [files + 1], the number of each file's first row, and that of all rows.
    """

    def __init__(self, paths: Sequence[Path | str]) -> None:
        """Check the files. Raises BertlineError if one is missing or invalid."""
        self._paths = paths
        sizes, offsets = [], []
        for path in paths:
            rows = open_signatures(path)
            sizes.append(len(rows))
            offsets.append(getattr(rows, "offset", 0))  # an empty file is not mapped
        self._offsets = offsets
        self.firsts = np.cumsum([0, *sizes])

    def blocks(self, rows: int) -> Iterator[tuple[int, Signatures]]:
        """Yield all rows in copies of at most `rows`, each with the number of its first row."""
        for file, (first, last) in enumerate(zip(self.firsts[:-1].tolist(), self.firsts[1:].tolist(), strict=True)):
            for start in range(first, last, rows):
                # Mapped anew for each block: the pages of a mapping count as memory until it is closed.
                yield start, np.array(self._open(file)[start - first : min(start + rows, last) - first])

    def rows(self, numbers: npt.NDArray[np.int64]) -> Signatures:
        """Return copies of some rows, by their numbers, which must be sorted."""
        rows = np.empty(len(numbers), dtype=SIGNATURE_TYPE)
        borders = np.searchsorted(numbers, self.firsts)
        for file in np.flatnonzero(np.diff(borders)).tolist():
            here = slice(borders[file], borders[file + 1])
            rows[here] = self._open(file)[numbers[here] - self.firsts[file]]
        return rows

    def _open(self, file: int) -> Signatures:
        # Many times faster than `np.load` and `np.memmap`: ten thousand files are opened for each block of comparisons.
        with open(self._paths[file], "rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        size = int(self.firsts[file + 1] - self.firsts[file])
        return np.frombuffer(mapped, SIGNATURE_TYPE, size, self._offsets[file])
