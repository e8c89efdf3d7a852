"""Reading of a dataset: its card `dataset.json`, which lists the files, and all their samples as one sequence."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.layout import LAYOUT_VERSION, SampleFile, open_samples
from bertline.encoding.ranges import offsets_of
from bertline.encoding.tokenizer import id_type
from bertline.files import Json, read_json

HELD_OUT = "held_out"
SPLITS = ("train", HELD_OUT)
# Of a card; it has more, without which it can be used.
CARD_KEYS = ("fingerprint", "settings", "corpora", "tokenizer", "sequence_lengths")
TOKENIZER_KEYS = ("file", "sha256", "vocab_size", "special_tokens", "continuation_bitmap")


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


class SampleReader:
    """All samples of a split as one sequence, in the order of the card's files; tokens are read on demand.

    Attributes:
        lengths: uint16 [N], tokens of each sample.
        second_segment_start: uint16 [N].
        next_sentence_labels: uint8 [N].
        corpus_index: uint8 [N].
        mask_counts: uint16 [N], masks of each sample of a statically masked dataset, else None.
        sequence_length, card
    """

    def __init__(self, files: Sequence[SampleFile], sequence_length: int, card: Json) -> None:
        self.sequence_length = sequence_length
        self.card = card
        self._files = files
        self._firsts = np.cumsum([0, *(len(file) for file in files)])
        self.lengths = _joined((np.diff(file.sample_offsets) for file in files), np.uint16)
        self.second_segment_start = _joined((file.second_segment_start for file in files), np.uint16)
        self.next_sentence_labels = _joined((file.next_sentence_labels for file in files), np.uint8)
        self.corpus_index = _joined((file.corpus_index for file in files), np.uint8)
        self._masks = [file.masks for file in files if file.masks is not None]
        if self._masks and len(self._masks) < len(files):
            raise BertlineError(
                f"only {len(self._masks)} of the {len(files)} files of a split have masks; import them again"
            )
        self.mask_counts = _joined((np.diff(of.mask_offsets) for of in self._masks), np.uint16) if self._masks else None

    def __len__(self) -> int:
        return len(self.lengths)

    def gather(self, indices: np.ndarray) -> Batch:
        """Return the samples at `indices` (integer [samples], in any order, repeats allowed) in one flat array."""
        indices = np.asarray(indices, dtype=np.int64)
        if indices.size and not (indices.min() >= 0 and indices.max() < len(self)):
            raise IndexError(f"samples {indices.min()} to {indices.max()} of {len(self)}")
        offsets = offsets_of(self.lengths[indices])
        tokens = np.empty(offsets[-1], dtype=id_type(self.card["tokenizer"]["vocab_size"]))
        masks = None
        if self.mask_counts is not None:
            count = int(self.mask_counts[indices].sum(dtype=np.int64))
            masks = MaskedTokens(np.empty(count, np.uint16), np.empty(count, tokens.dtype))
        masked = 0
        numbers = np.searchsorted(self._firsts, indices, side="right") - 1
        rows = (indices - self._firsts[numbers]).tolist()
        # One copy per sample: a shuffled batch rarely has two samples of one file.
        begin = 0
        for number, row, end in zip(numbers.tolist(), rows, offsets[1:].tolist(), strict=True):
            file = self._files[number]
            source = int(file.sample_offsets[row])
            tokens[begin:end] = file.input_ids[source : source + end - begin]
            begin = end
            if masks is not None and file.masks is not None:
                first, last = file.masks.mask_offsets[row : row + 2].tolist()
                masks.positions[masked : masked + last - first] = file.masks.masked_positions[first:last]
                masks.input_ids[masked : masked + last - first] = file.masks.masked_input_ids[first:last]
                masked += last - first
        return Batch(tokens, offsets, self.second_segment_start[indices], self.next_sentence_labels[indices], masks)


def _joined(arrays: Iterable[np.ndarray], dtype: type[np.unsignedinteger]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *(array.astype(dtype) for array in arrays)])


def open_dataset(card: Path | str, sequence_length: int, split: str) -> SampleReader:
    """Open a split (`train` or `held_out`) of the dataset whose dataset.json is `card`.

    Raises BertlineError if the card has another layout version or lacks the sequence length, or if one of its files is
    missing or belongs to another tokenizer, dataset or length.
    """
    content = read_card(card)
    lengths = content["sequence_lengths"]
    if str(sequence_length) not in lengths:
        raise BertlineError(
            f"{card} is encoded for sequence lengths {', '.join(lengths)}, not {sequence_length}; "
            "put it into sequence_lengths and run `snakemake encode`"
        )
    entries = lengths[str(sequence_length)][split]
    files = [open_samples(Path(card).parent / entry["file"]) for entry in entries]
    for file, entry in zip(files, entries, strict=True):
        check_belongs(file, entry, content, sequence_length)
    return SampleReader(files, sequence_length, content)


def read_card(path: Path | str) -> Json:
    """Read dataset.json. Raises BertlineError if it is missing, of another layout version, or lacks a key."""
    card = read_json(path)
    version = card.get("layout_version") if isinstance(card, dict) else None
    if version != LAYOUT_VERSION:
        raise BertlineError(
            f"{path} has layout version {version}, expected is {LAYOUT_VERSION}; encode the dataset again"
        )
    _check_keys(card, CARD_KEYS, path)
    _check_keys(card["tokenizer"], TOKENIZER_KEYS, path, " in its tokenizer")
    for length, section in card["sequence_lengths"].items():
        _check_keys(section, SPLITS, path, f" in its sequence_lengths.{length}")
    return card


def _check_keys(content: Json, keys: Sequence[str], path: Path | str, where: str = "") -> None:
    missing = next((key for key in keys if not isinstance(content, dict) or key not in content), None)
    if missing is not None:
        raise BertlineError(f"{path} has no '{missing}'{where}; encode the dataset again")


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
                "delete it and run `snakemake encode`"
            )


def continuation_bitmap(card: Json) -> np.ndarray:
    """Return which ids continue a word: bool [vocabulary]. In the card bit i is bit i % 8 of byte i // 8, as base64."""
    packed = np.frombuffer(base64.b64decode(card["tokenizer"]["continuation_bitmap"]), dtype=np.uint8)
    return np.unpackbits(packed, count=card["tokenizer"]["vocab_size"], bitorder="little").astype(bool)
