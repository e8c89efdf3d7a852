"""Description of files of samples for a dataset's card; each file is open only while it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertline.console import BertlineError, progress
from bertline.encoding.card_format import SPLITS
from bertline.encoding.layout import ADVICE, SampleFile, open_samples
from bertline.files import Json, sha256_of_file
from bertline.results.paths import HELD_OUT

HISTOGRAM_BINS = 16
THREADS = 8  # hashing runs without Python's lock
# Attributes that the card sums over the training files of a sequence length.
COUNTS_OF_LENGTH = ("samples", "tokens", "unplaced_tokens", "samples_with_random_next", "samples_without_partner")


class FileDescription(NamedTuple):
    """What the card needs to know of a file of samples.

    Attributes:
        path, attributes: those of the `SampleFile`.
        entry: what the card lists: name, digest, samples and tokens.
        histogram: int64 [bins], samples by their lengths, see `_edges`.
        corpora: int64 [corpora, 2]: samples of each corpus, by the document of the first segment, and their tokens.
        has_masks: whether it is statically masked.
    """

    path: Path
    attributes: Mapping[str, Any]
    entry: Json
    histogram: np.ndarray
    corpora: np.ndarray
    has_masks: bool


def describe_files(files: Sequence[Path]) -> list[FileDescription]:
    """Describe files in several threads, as all of their bytes are read. Raises BertlineError for a damaged one.

    A file may have been damaged since it was written; with the digest of what it is now, training would accept it.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        described = pool.map(_describe_intact, files)
        return list(progress(described, description="files", unit="files", total=len(files)))


def _describe_intact(path: Path) -> FileDescription:
    file = open_samples(path)
    for name in file.damaged_columns():
        raise _damaged(file, f"{name} does not have the digest it was written with")
    return describe_file(file)


def describe_file(file: SampleFile) -> FileDescription:
    """Describe a file of samples. Raises BertlineError if it cannot be counted."""
    counts = {key: file.attributes[key] for key in ("samples", "tokens")}
    name = f"{file.path.parent.name}/{file.path.name}"
    edges = _edges(file.attributes["sequence_length"])
    histogram = np.zeros(len(edges) - 1, dtype=np.int64)
    corpora = np.zeros((len(file.attributes["documents_of_corpora"]), 2), dtype=np.int64)
    if file.sample_offsets[0] != 0 or file.sample_offsets[-1] != len(file.input_ids):
        raise _damaged(file, "sample_offsets are not those of samples")
    for block in file.blocks():
        lengths, indices = file.lengths(block), file.corpus_index[block]
        if lengths.min() < 1 or lengths.max() > edges[-1]:
            raise _damaged(file, "sample_offsets are not those of samples")
        if indices.max() >= len(corpora):
            raise _damaged(file, "corpus_index names a corpus that is not there")
        histogram += np.histogram(lengths, edges)[0]
        corpora[:, 0] += np.bincount(indices, minlength=len(corpora))
        corpora[:, 1] += np.bincount(indices, weights=lengths, minlength=len(corpora)).astype(np.int64)
    entry = {"file": name, "sha256": sha256_of_file(file.path), **counts}
    return FileDescription(file.path, file.attributes, entry, histogram, corpora, file.masks is not None)


def _damaged(file: SampleFile, what: str) -> BertlineError:
    return BertlineError(f"{file.path}: {what}; delete it and {ADVICE}")


def _edges(sequence_length: int) -> np.ndarray:
    """Return the edges of the histogram's bins."""
    return np.unique(np.linspace(0, sequence_length, HISTOGRAM_BINS + 1).round().astype(int))


def describe_length(files: Sequence[FileDescription]) -> Json:
    """Return the entries of one sequence length's files, and the totals of the training files."""
    entries: dict[str, list[Json]] = {split: [] for split in SPLITS}
    totals: Counter[str] = Counter()
    edges = _edges(files[0].attributes["sequence_length"])
    histogram = np.zeros(len(edges) - 1, dtype=np.int64)
    for file in files:
        if file.path.name.startswith(HELD_OUT):
            entries[HELD_OUT].append(file.entry)
            continue
        entries["train"].append(file.entry)
        totals.update({key: file.attributes[key] for key in COUNTS_OF_LENGTH})
        histogram += file.histogram
    return {
        **entries,
        **{key: totals[key] for key in COUNTS_OF_LENGTH},
        "length_histogram": {"edges": edges.tolist(), "counts": histogram.tolist()},
    }


def samples_of_corpora(files: Sequence[FileDescription], corpora: int) -> np.ndarray:
    """Return int64 [corpora, 2]: the sum of the files' `corpora`. Raises BertlineError if a file has more of them."""
    totals = np.zeros((corpora, 2), dtype=np.int64)
    for file in files:
        if len(file.corpora) > corpora:
            raise BertlineError(
                f"{file.path} has text of {len(file.corpora)} corpora, its dataset has {corpora}; delete it and "
                f"{ADVICE}"
            )
        totals[: len(file.corpora)] += file.corpora
    return totals
