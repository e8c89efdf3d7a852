"""Reading of a dataset: its card `dataset.json`, which lists the files, and all their samples as one sequence."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.card_format import check_belongs, read_card, remedy
from bertline.encoding.layout import SampleFile, open_samples
from bertline.encoding.page_cache import major_faults, wait_for_pages
from bertline.encoding.ranges import offsets_of
from bertline.encoding.tokenizer import id_type
from bertline.files import Json

# After a batch that waited for storage, this many batches are read ahead. The one TRIAL before their end is not read
# ahead: if it waits, reading ahead continues.
BATCHES_TO_READ_AHEAD, TRIAL = 10_000, 16
READS_AT_ONCE = 32


class MaskedTokens(NamedTuple):
    """Static masks of some samples, concatenated.

    Attributes:
        positions: uint16 [masks], ascending within a sample.
        input_ids: uint16 or uint32 [masks], the input at these positions.
    """

    positions: np.ndarray
    input_ids: np.ndarray


class Batch(NamedTuple):
    """Concatenated samples.

    Attributes:
        tokens: uint16 or uint32 [sum of lengths].
        offsets: int64 [samples + 1], where each begins in `tokens`.
        second_segment_start: uint16 [samples].
        next_sentence_labels: uint8 [samples].
        masks: of a statically masked dataset, else None; `tokens` is the unmasked text in any case.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    second_segment_start: np.ndarray
    next_sentence_labels: np.ndarray
    masks: MaskedTokens | None = None


class _Columns(NamedTuple):
    """Columns of a file. Single numbers are read faster from a memoryview than from an array."""

    input_ids: np.ndarray
    sample_offsets: memoryview
    second_segment_start: memoryview
    next_sentence_labels: memoryview


class SampleReader:
    """All samples of a split as one sequence, in the order of the card's files; tokens are read on demand.

    Only the numbers that a whole global batch needs are in memory, 2 bytes a sample, 4 with static masks. All others
    are read from the mapped files, whose pages the processes of a machine share.

    Attributes:
        lengths: uint16 [N], tokens of each sample.
        mask_counts: uint16 [N], masks of each sample of a statically masked dataset, else None.
        sequence_length, card
    """

    def __init__(self, files: Sequence[SampleFile], sequence_length: int, card: Json) -> None:
        """Read the offsets of all samples. Raises BertlineError if those of a file are damaged."""
        self.sequence_length = sequence_length
        self.card = card
        self._files = files
        self._firsts = np.cumsum([0, *(len(file) for file in files)])
        self._columns = [
            _Columns(
                file.input_ids,
                file.sample_offsets.data,
                file.second_segment_start.data,
                file.next_sentence_labels.data,
            )
            for file in files
        ]
        masked = sum(file.masks is not None for file in files)
        if 0 < masked < len(files):
            raise BertlineError(f"only {masked} of the {len(files)} files of a split have masks; import them again")
        self.lengths = np.empty(self._firsts[-1], dtype=np.uint16)
        self.mask_counts = np.empty_like(self.lengths) if masked else None
        for file, first in zip(files, self._firsts.tolist(), strict=False):
            for block in file.blocks():
                place = slice(first + block.start, first + block.stop)
                self.lengths[place] = lengths = _lengths(file, block, sequence_length, card)
                if self.mask_counts is not None:
                    self.mask_counts[place] = _mask_counts(file, block, lengths, card)
        self._batches_to_read_ahead = 0
        self._threads: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    def corpora(self) -> Iterator[np.ndarray]:
        """Yield the corpus of every sample, uint8, in blocks. Raises BertlineError for one that is not in the card."""
        for file in self._files:
            for block in file.blocks():
                corpora = file.corpus_index[block]
                if corpora.max() >= len(self.card["corpora"]):
                    raise _damaged(file, f"corpus_index names corpus {corpora.max()}, which is not there", self.card)
                yield corpora

    def gather(self, indices: np.ndarray) -> Batch:
        """Return the samples at `indices` (integer [samples], in any order, repeats allowed) in one flat array.

        Raises BertlineError if one is damaged such that a network could not compute with it.
        """
        indices = np.asarray(indices, dtype=np.int64)
        if indices.size and not (indices.min() >= 0 and indices.max() < len(self)):
            raise IndexError(f"samples {indices.min()} to {indices.max()} of {len(self)}")
        faults = major_faults()
        offsets = offsets_of(self.lengths[indices])
        tokens = np.empty(offsets[-1], dtype=id_type(self.card["tokenizer"]["vocab_size"]))
        seconds, labels = [], []
        numbers, rows = self._rows(indices)
        begin = 0
        # One copy per sample: a shuffled batch rarely has two samples of one file.
        for number, row, end in zip(numbers, rows, offsets[1:].tolist(), strict=True):
            ids, starts, of_second, of_label = self._columns[number]
            source = starts[row]
            tokens[begin:end] = ids[source : source + end - begin]
            begin = end
            seconds.append(of_second[row])
            labels.append(of_label[row])
        masks = None if self.mask_counts is None else self._masks(numbers, rows, tokens.dtype)
        # Below that are accidents, such as a page of a library that was dropped from memory.
        if major_faults() - faults > len(rows) // 16:
            self._batches_to_read_ahead = BATCHES_TO_READ_AHEAD
        batch = Batch(tokens, offsets, np.array(seconds, np.uint16), np.array(labels, np.uint8), masks)
        self._check(indices, batch)
        return batch

    def _masks(self, numbers: list[int], rows: list[int], dtype: np.dtype[Any]) -> MaskedTokens:
        positions, ids = [np.empty(0, np.uint16)], [np.empty(0, dtype)]
        for number, row in zip(numbers, rows, strict=True):
            masks = self._files[number].masks
            if masks is not None:
                first, last = masks.mask_offsets[row : row + 2].tolist()
                positions.append(masks.masked_positions[first:last])
                ids.append(masks.masked_input_ids[first:last])
        return MaskedTokens(np.concatenate(positions), np.concatenate(ids))

    def read_ahead(self, indices: np.ndarray) -> None:
        """Let other threads read the samples at `indices` from storage, many at once, without waiting for them.

        `gather` alone waits for one page after the other. Does nothing unless a recent `gather` had to wait: for pages
        that are in memory this would take longer than gathering.
        """
        if not self._batches_to_read_ahead:
            return
        self._batches_to_read_ahead -= 1
        if self._batches_to_read_ahead == TRIAL:
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="reading-ahead")
        for part in np.array_split(indices, min(READS_AT_ONCE, len(indices))):
            self._threads.submit(self._wait_for, part)

    def _wait_for(self, indices: np.ndarray) -> None:
        for number, row, length in zip(*self._rows(indices), self.lengths[indices].tolist(), strict=True):
            file = self._files[number]
            wait_for_pages(file.input_ids, int(file.sample_offsets[row]), length)
            wait_for_pages(file.second_segment_start, row, 1)
            wait_for_pages(file.next_sentence_labels, row, 1)
            if file.masks is not None:
                first, last = file.masks.mask_offsets[row : row + 2].tolist()
                wait_for_pages(file.masks.masked_positions, first, last - first)
                wait_for_pages(file.masks.masked_input_ids, first, last - first)

    def _rows(self, indices: np.ndarray) -> tuple[list[int], list[int]]:
        """Return the number of each sample's file, and its own there."""
        numbers = np.searchsorted(self._firsts, indices, side="right") - 1
        return numbers.tolist(), (indices - self._firsts[numbers]).tolist()

    def _check(self, indices: np.ndarray, batch: Batch) -> None:
        """Raise BertlineError for the first sample with an id, segment, label or mask out of range."""
        lengths, vocab_size = np.diff(batch.offsets), self.card["tokenizer"]["vocab_size"]
        faulty = {
            "has an id beyond the vocabulary": (batch.tokens >= vocab_size, lengths),
            "has a second segment that begins after its end": (batch.second_segment_start >= lengths, None),
            "has a label that is neither 0 nor 1": (batch.next_sentence_labels > 1, None),
        }
        if self.mask_counts is not None and batch.masks is not None:
            counts = self.mask_counts[indices]
            faulty |= {
                "has a mask beyond its end": (batch.masks.positions >= np.repeat(lengths, counts), counts),
                "has a mask with an id beyond the vocabulary": (batch.masks.input_ids >= vocab_size, counts),
            }
        for what, (where, counts) in faulty.items():
            if where.any():
                first = int(where.argmax())
                sample = first if counts is None else int(np.searchsorted(np.cumsum(counts), first, side="right"))
                [number], [row] = self._rows(indices[sample : sample + 1])
                raise _damaged(self._files[number], f"sample {row} {what}", self.card)


def _lengths(file: SampleFile, block: slice, most: int, card: Json) -> np.ndarray:
    """Return the number of tokens of each sample of a block: int64 [samples].

    Raises BertlineError unless each has 1 to `most`, and the last one of the file ends with the file's tokens.
    """
    lengths = file.lengths(block)
    invalid = (lengths < 1) | (lengths > most)
    if invalid.any():
        row = int(invalid.argmax())
        raise _damaged(file, f"sample {block.start + row} has {lengths[row]} tokens, allowed are 1 to {most}", card)
    if file.sample_offsets[0] != 0 or file.sample_offsets[-1] != len(file.input_ids):
        raise _damaged(file, "sample_offsets do not rise from 0 to the number of tokens", card)
    return lengths


def _mask_counts(file: SampleFile, block: slice, lengths: np.ndarray, card: Json) -> np.ndarray:
    """Return the number of static masks of each sample of a block: int64 [samples].

    Raises BertlineError unless each has at most as many as tokens, and the last one of the file ends with its masks.
    """
    if file.masks is None:
        raise ValueError(f"{file.path} has no masks")
    offsets = file.masks.mask_offsets
    counts = np.diff(offsets[block.start : block.stop + 1]).astype(np.int64)
    invalid = (counts < 0) | (counts > lengths)
    if invalid.any():
        row = int(invalid.argmax())
        raise _damaged(file, f"sample {block.start + row} has {counts[row]} masks for {lengths[row]} tokens", card)
    if offsets[0] != 0 or offsets[-1] != len(file.masks.masked_positions):
        raise _damaged(file, "mask_offsets do not rise from 0 to the number of masks", card)
    return counts


def _damaged(file: SampleFile, what: str, card: Json) -> BertlineError:
    return BertlineError(f"{file.path}: {what}; the file is damaged, {remedy(card)}")


def open_dataset(card: Path | str, sequence_length: int, split: str) -> SampleReader:
    """Open a split (`train` or `held_out`) of the dataset whose dataset.json is `card`.

    Raises BertlineError if the card has another layout version or lacks the sequence length, or if one of its files is
    missing or belongs to another tokenizer, dataset or length.
    """
    content = read_card(card)
    lengths = content["sequence_lengths"]
    if str(sequence_length) not in lengths:
        advice = "put it into sequence_lengths and run `snakemake encode`"
        raise BertlineError(
            f"{card} is encoded for sequence lengths {', '.join(lengths)}, not {sequence_length}; "
            f"{'import files of this length' if 'imported' in content else advice}"
        )
    entries = lengths[str(sequence_length)][split]
    _allow_open_files(len(entries), card)
    files = [open_samples(Path(card).parent / entry["file"]) for entry in entries]
    for file, entry in zip(files, entries, strict=True):
        check_belongs(file.path, file.attributes, entry, content, sequence_length)
    return SampleReader(files, sequence_length, content)


def _allow_open_files(count: int, card: Path | str) -> None:
    """Raise the limit of open files, which often begins at 1,024: each mapped file keeps a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    if count >= most:
        raise BertlineError(
            f"{card} lists {count} files, but a process may open only {hard} here; raise the hard limit "
            "(`ulimit -Hn`), or encode the text in fewer shards"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft + count, most), hard))
