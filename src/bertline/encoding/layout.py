"""The native layout of sample files, version 1: writer and memory-mapped reader.

One HDF5 file per shard and sequence length. Samples are unpadded, unmasked and concatenated.

    input_ids             uint16, or uint32 for vocabularies over 65,536   [tokens]
    sample_offsets        uint64  [samples + 1]  where each sample begins in input_ids
    second_segment_start  uint16  [samples]      index of the first token of segment B in its sample, 0: no B
    next_sentence_labels  uint8   [samples]      1: B is random text, 0: B follows A, or there is no B
                                                 (`pair_objective` sentence_order: 1: A follows B, 0: B follows A)
    document_index        uint32  [samples]      the document of A, counted in its shard; ascending within each pass
    corpus_index          uint8   [samples]      the corpus of A, in the order of the dataset's settings

Datasets are little-endian and contiguous; each begins at a multiple of 4,096 bytes, so that it can be memory-mapped at
its offset. Empty ones are valid and have no offset. Each has a `sha256` attribute of its bytes, because contiguous HDF5
has no checksums and would not detect a flipped bit. Attributes of the file: see `ATTRIBUTES`.

Samples imported from statically masked files (see `bertline.encoding.interchange`) have their masks in addition:

    mask_offsets          uint64  [samples + 1]  where the masks of each sample begin in the next two
    masked_positions      uint16  [masks]        ascending within a sample
    masked_input_ids      as input_ids  [masks]  the input at these positions; input_ids contains the label
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bertline.console import BertlineError
from bertline.encoding.hdf5 import create_hdf5, open_hdf5, read_attribute
from bertline.encoding.tokenizer import id_type

LAYOUT_VERSION = 1
ADVICE = "run `snakemake encode`, or import it again"
ALIGNMENT = 4096
# Name -> type. Names that begin with `samples_` count samples; `documents_of_corpora` has one number per corpus,
# `samples_with_random_next` is the sum of the labels, `passes` is how often the text was split into samples.
# `characters` are those of the text without spaces. [UNK] replaces `unknown_characters` of them, and the tokenizer's
# normalizer removes or decomposes `stripped_characters`, without accents of Latin, Greek and Cyrillic.
ATTRIBUTES: dict[str, type] = {
    "layout_version": int,
    "fingerprint": str,
    "shard": str,
    "sequence_length": int,
    "pair_objective": str,
    "seed": int,
    "tokenizer_sha256": str,
    "vocab_size": int,
    "cls_id": int,
    "sep_id": int,
    "samples": int,
    "tokens": int,
    "documents": int,
    "documents_of_corpora": np.ndarray,
    "sentences": int,
    "text_tokens": int,
    "unknown_tokens": int,
    "unplaced_tokens": int,
    "samples_with_random_next": int,
    "samples_without_partner": int,
    "passes": int,
    "characters": int,
    "unknown_characters": int,
    "stripped_characters": int,
}
OPTIONAL_ATTRIBUTES: dict[str, Any] = {
    "passes": 1,
    "characters": 0,
    "unknown_characters": 0,
    "stripped_characters": 0,
}  # omitted if they have these values, as in older files
# Name -> type; ids have that of the vocabulary's size.
COLUMNS = {
    "input_ids": "ids",
    "sample_offsets": "<u8",
    "second_segment_start": "<u2",
    "next_sentence_labels": "u1",
    "document_index": "<u4",
    "corpus_index": "u1",
}
MASK_COLUMNS = {"mask_offsets": "<u8", "masked_positions": "<u2", "masked_input_ids": "ids"}
SAMPLES_PER_BLOCK = 50_000
BYTES_PER_DIGEST = 1 << 24


@dataclass(frozen=True)
class StaticMasks:
    """The masks of statically masked samples. See the module for the arrays."""

    mask_offsets: np.ndarray
    masked_positions: np.ndarray
    masked_input_ids: np.ndarray


@dataclass(frozen=True)
class SampleFile:
    """A memory-mapped file of samples; the arrays are read-only views of the map. See the module for their meaning.

    Pages read count as memory of the process: use `blocks` to iterate over a whole file.
    """

    path: Path
    attributes: Mapping[str, Any]
    input_ids: np.ndarray
    sample_offsets: np.ndarray
    second_segment_start: np.ndarray
    next_sentence_labels: np.ndarray
    document_index: np.ndarray
    corpus_index: np.ndarray
    digests: Mapping[str, str]
    memory: mmap.mmap
    masks: StaticMasks | None = None

    def __len__(self) -> int:
        return len(self.second_segment_start)

    def blocks(self) -> Iterator[slice]:
        """Yield the samples in blocks; the memory of each is freed before the next."""
        for start in range(0, len(self), SAMPLES_PER_BLOCK):
            yield slice(start, min(start + SAMPLES_PER_BLOCK, len(self)))
            self.release()

    def lengths(self, block: slice) -> np.ndarray:
        """Return the number of tokens of each sample of a block: int64 [samples]."""
        return np.diff(self.sample_offsets[block.start : block.stop + 1]).astype(np.int64)

    def damaged_columns(self) -> list[str]:
        """Return the names of the arrays whose bytes do not have the digest that they were written with."""
        arrays = {**vars(self), **(vars(self.masks) if self.masks else {})}
        return [name for name, expected in self.digests.items() if self._digest(arrays[name]) != expected]

    def _digest(self, array: np.ndarray) -> str:
        digest = hashlib.sha256()
        values = BYTES_PER_DIGEST // array.itemsize
        for start in range(0, len(array), values):
            digest.update(array[start : start + values].data)
            self.release()
        return digest.hexdigest()

    def release(self) -> None:
        """Free the memory of the pages read so far; the arrays stay readable."""
        self.memory.madvise(mmap.MADV_DONTNEED)


def write_samples(
    path: Path | str,
    columns: Mapping[str, Iterable[np.ndarray]],
    *,
    samples: int,
    tokens: int,
    attributes: Mapping[str, Any],
    masks: int | None = None,
) -> None:
    """Write a file of samples atomically; the same samples give the same bytes.

    Args:
        columns: every name of `COLUMNS` -> its numbers, in blocks of any size. Columns are consumed one after another,
            a block at a time.
        samples, tokens: their numbers.
        attributes: `ATTRIBUTES` except `layout_version`, `samples` and `tokens`; optional ones may be absent.
        masks: number of masks of statically masked samples, else None. If given, `columns` has `MASK_COLUMNS`, too;
            `input_ids` is the unmasked text in any case.
    """
    filled = {"layout_version": LAYOUT_VERSION, "samples": samples, "tokens": tokens, **attributes}
    # With a fixed version of HDF5 the bytes depend only on the samples.
    form = {"libver": ("v110", "v110"), "alignment_threshold": 1, "alignment_interval": ALIGNMENT}
    with create_hdf5(path, **form) as file:
        for name, kind in ATTRIBUTES.items():
            if name in filled or name not in OPTIONAL_ATTRIBUTES:
                _write_attribute(file, name, kind, filled[name])
        sizes = {"input_ids": tokens, "sample_offsets": samples + 1}
        if masks is not None:
            sizes |= {"mask_offsets": samples + 1, "masked_positions": masks, "masked_input_ids": masks}
        for name in COLUMNS if masks is None else COLUMNS | MASK_COLUMNS:
            dtype = _type_of(name, filled["vocab_size"])
            _write_dataset(file, name, dtype, sizes.get(name, samples), columns[name])


def _type_of(name: str, vocab_size: int) -> np.dtype[Any]:
    kind = (COLUMNS | MASK_COLUMNS)[name]
    return np.dtype(id_type(vocab_size)).newbyteorder("<") if kind == "ids" else np.dtype(kind)


def _write_attribute(file: h5py.File, name: str, kind: type, value: Any) -> None:
    # Strings of fixed length: those of variable length are stored in a heap that simple readers do not support.
    if kind is str:
        encoded = value.encode("utf-8")
        file.attrs.create(name, np.bytes_(encoded), dtype=h5py.string_dtype("utf-8", max(1, len(encoded))))
    else:
        file.attrs.create(name, np.asarray(value, dtype="<u8"))


def _write_dataset(file: h5py.File, name: str, dtype: np.dtype, size: int, blocks: Iterable[np.ndarray]) -> None:
    dataset = file.create_dataset(name, shape=(size,), dtype=dtype, track_times=False)
    digest = hashlib.sha256()
    written = 0
    for block in blocks:
        content = np.ascontiguousarray(block, dtype=dtype)
        dataset[written : written + len(content)] = content
        digest.update(content.data)
        written += len(content)
    if written != size:
        raise ValueError(f"{name}: {written} values were given, {size} were announced")
    dataset.attrs.create("sha256", np.bytes_(digest.hexdigest()), dtype=h5py.string_dtype("utf-8", 64))


def open_samples(path: Path | str) -> SampleFile:
    """Memory-map a file of samples, reading only its attributes.

    Raises BertlineError if it is missing, truncated, of another layout version, or does not have this module's layout.
    """
    path = Path(path)
    with open_hdf5(path, ADVICE) as file:
        attributes = _read_attributes(file, path)
        names = COLUMNS | MASK_COLUMNS if "mask_offsets" in file else COLUMNS
        places = {name: _place(file, name, attributes["vocab_size"], path) for name in names}
        digests = {name: read_attribute(file[name], "sha256", str) for name in places}
        with path.open("rb") as opened:
            memory = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)  # keeps a descriptor
    whole = np.frombuffer(memory, dtype=np.uint8)
    arrays = {}
    for name, (offset, size, dtype) in places.items():
        if offset + size * dtype.itemsize > len(whole):
            raise BertlineError(f"{path} is truncated inside {name}; delete it and {ADVICE}")
        arrays[name] = whole[offset : offset + size * dtype.itemsize].view(dtype)
    _check_shapes(path, attributes, arrays)
    has_masks = "mask_offsets" in arrays
    masks = StaticMasks(**{name: arrays.pop(name) for name in MASK_COLUMNS}) if has_masks else None
    return SampleFile(path=path, attributes=attributes, digests=digests, memory=memory, masks=masks, **arrays)


def _read_attributes(file: h5py.File, path: Path) -> dict[str, Any]:
    if "layout_version" not in file.attrs:
        raise BertlineError(f"{path} has no layout_version: it is not a native file of samples; {ADVICE}")
    version = read_attribute(file, "layout_version", int)
    if version != LAYOUT_VERSION:
        raise BertlineError(
            f"{path} has layout version {version}, expected is {LAYOUT_VERSION}; encode or import the dataset again"
        )
    values: dict[str, Any] = {}
    for name, kind in ATTRIBUTES.items():
        is_omitted = name in OPTIONAL_ATTRIBUTES and name not in file.attrs
        values[name] = OPTIONAL_ATTRIBUTES[name] if is_omitted else read_attribute(file, name, kind)
    return values


def _place(file: h5py.File, name: str, vocab_size: int, path: Path) -> tuple[int, int, np.dtype]:
    """Return the offset in bytes, number of values and type of a dataset."""
    dataset = file[name]
    expected = _type_of(name, vocab_size)
    if dataset.dtype != expected or dataset.ndim != 1:
        raise BertlineError(
            f"{path}: {name} is {dataset.dtype} {dataset.shape}, it has to be {expected} (n,); {ADVICE}"
        )
    if dataset.size == 0:
        return 0, 0, expected
    offset = dataset.id.get_offset()  # None unless it is contiguous
    if offset is None or offset % ALIGNMENT:
        raise BertlineError(f"{path}: {name} is not contiguous at a multiple of {ALIGNMENT}; {ADVICE}")
    return offset, dataset.size, expected


def _check_shapes(path: Path, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    samples = attributes["samples"]
    others = {"input_ids": attributes["tokens"], "sample_offsets": samples + 1, "mask_offsets": samples + 1}
    if "masked_positions" in arrays:
        others["masked_input_ids"] = others["masked_positions"] = len(arrays["masked_positions"])
    for name, array in arrays.items():
        if len(array) != (expected := others.get(name, samples)):
            raise BertlineError(f"{path}: {name} holds {len(array)} values, it has to hold {expected}; {ADVICE}")
