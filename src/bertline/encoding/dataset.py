"""Reading of a dataset: its card `dataset.json`, which lists the files, and all their samples as one sequence."""

from __future__ import annotations

import base64
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.layout import LAYOUT_VERSION, SampleFile, open_samples
from bertline.encoding.page_cache import major_faults, wait_for_pages
from bertline.encoding.ranges import offsets_of
from bertline.encoding.tokenizer import SPECIAL_TOKENS, id_type
from bertline.files import Json, read_json
from bertline.results.paths import HELD_OUT

SPLITS = ("train", HELD_OUT)
# Required keys of a card and of its parts, and their types; it has more, which are optional.
CARD_TYPES = {"fingerprint": str, "settings": dict, "corpora": list, "tokenizer": dict, "sequence_lengths": dict}
TOKENIZER_TYPES = {"file": str, "sha256": str, "vocab_size": int, "special_tokens": dict, "continuation_bitmap": str}
NAMES_OF_TYPES = {str: "a text", int: "a number", dict: "an object", list: "a list"}
MAX_DIGITS = 10  # of a sequence length
FILE_TYPES = {"file": str, "sha256": str, "samples": int, "tokens": int}


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
    return BertlineError(f"{file.path}: {what}; the file is damaged, {_remedy(card)}")


def _remedy(card: Json) -> str:
    """Return what to do about a file that is not as its dataset's card states."""
    return "import its files again" if "imported" in card else "delete it and run `snakemake encode`"


def open_dataset(card: Path | str, sequence_length: int, split: str) -> SampleReader:
    """Open a split (`train` or `held_out`) of the dataset whose dataset.json is `card`.

    Raises BertlineError if the card has another layout version or lacks the sequence length, or if one of its files is
    missing or belongs to another tokenizer, dataset or length.
    """
    content = read_card(card)
    lengths = content["sequence_lengths"]
    if str(sequence_length) not in lengths:
        remedy = "put it into sequence_lengths and run `snakemake encode`"
        raise BertlineError(
            f"{card} is encoded for sequence lengths {', '.join(lengths)}, not {sequence_length}; "
            f"{'import files of this length' if 'imported' in content else remedy}"
        )
    entries = lengths[str(sequence_length)][split]
    _allow_open_files(len(entries), card)
    files = [open_samples(Path(card).parent / entry["file"]) for entry in entries]
    for file, entry in zip(files, entries, strict=True):
        check_belongs(file, entry, content, sequence_length)
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


def read_card(path: Path | str) -> Json:
    """Read dataset.json. Raises BertlineError if it is missing, of another layout version, or lacks a needed key.

    It also does if a value that is used has another type.
    """
    card = read_json(path)
    version = card.get("layout_version") if isinstance(card, dict) else None
    if version != LAYOUT_VERSION:
        raise BertlineError(
            f"{path} has layout version {version}, expected is {LAYOUT_VERSION}; encode or import the dataset again"
        )
    _check_types(card, CARD_TYPES, path)
    tokenizer = card["tokenizer"]
    _check_types(tokenizer, TOKENIZER_TYPES, path, "tokenizer")
    _check_types(tokenizer["special_tokens"], dict.fromkeys(SPECIAL_TOKENS, int), path, "tokenizer.special_tokens")
    for token, index in tokenizer["special_tokens"].items():
        if not 0 <= index < tokenizer["vocab_size"]:
            raise _wrong(path, f"tokenizer.special_tokens.{token}", index, "an id of the vocabulary")
    try:
        continuation_bitmap(card)
    except (ValueError, OverflowError):
        raise _wrong(path, "tokenizer.continuation_bitmap", tokenizer["continuation_bitmap"], "a bit an id") from None
    for number, corpus in enumerate(card["corpora"]):
        _check_types(corpus, {"name": str}, path, f"corpora.{number}")
    for length, section in card["sequence_lengths"].items():
        where = f"sequence_lengths.{length}"
        if not (length.isdecimal() and length.isascii() and len(length) < MAX_DIGITS):
            raise _wrong(path, "sequence_lengths", length, "numbers")
        _check_types(section, dict.fromkeys(SPLITS, list), path, where)
        for split in SPLITS:
            for number, entry in enumerate(section[split]):
                _check_types(entry, FILE_TYPES, path, f"{where}.{split}.{number}")
    return card


def _check_types(content: Any, types: Mapping[str, type], path: Path | str, where: str = "") -> None:
    """Raise BertlineError unless `content` is an object with these keys, whose values are of these types."""
    if not isinstance(content, dict):
        raise _wrong(path, where, content, "an object")
    for key, wanted in types.items():
        name = f"{where}.{key}" if where else key
        if key not in content:
            raise BertlineError(f"{path} has no '{name}'; encode or import the dataset again")
        if type(content[key]) is not wanted:
            raise _wrong(path, name, content[key], NAMES_OF_TYPES[wanted])


def _wrong(path: Path | str, key: str, given: Any, allowed: str) -> BertlineError:
    return BertlineError(
        f"{path}: {key}: given {str(given)[:80]!r}, allowed is {allowed}; encode or import the dataset again"
    )


def check_belongs(file: SampleFile, entry: Json, card: Json, sequence_length: int) -> None:
    """Check a file's attributes against the card and its entry there. Raises BertlineError if they differ."""
    expected = {
        "tokenizer_sha256": (card["tokenizer"]["sha256"], "was encoded with another tokenizer"),
        "fingerprint": (card["fingerprint"], "belongs to another dataset"),
        "sequence_length": (sequence_length, "is encoded for another sequence length"),
        "samples": (entry["samples"], "has another number of samples"),
        "tokens": (entry["tokens"], "has another number of tokens"),
    }
    for name, (value, problem) in expected.items():
        if file.attributes[name] != value:
            raise BertlineError(
                f"{file.path} {problem} than stated in its dataset.json ({file.attributes[name]} instead of {value}); "
                f"{_remedy(card)}"
            )


def continuation_bitmap(card: Json) -> np.ndarray:
    """Return which ids continue a word: bool [vocabulary]. In the card bit i is bit i % 8 of byte i // 8, as base64."""
    packed = np.frombuffer(base64.b64decode(card["tokenizer"]["continuation_bitmap"], validate=True), dtype=np.uint8)
    size = card["tokenizer"]["vocab_size"]
    if len(packed) != (size + 7) // 8:
        raise ValueError(f"{len(packed)} bytes for a vocabulary of {size}")
    return np.unpackbits(packed, count=size, bitorder="little").astype(bool)
