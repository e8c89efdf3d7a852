"""HDF5 layouts of other programs: NVIDIA's, statically masked, and gpauloski's, unmasked. Writer, reader, validator.

N samples of at most S tokens, padded with zeros to rows of S; all datasets are shuffled by byte and
compressed with gzip, which HDF5 itself reads.

`nvidia` (DeepLearningExamples before 2022; also hetseq, DeepSpeed and others), P predictions at most:

    input_ids             int32 [N, S]  already masked
    input_mask            int8  [N, S]  1 for the sample, 0 for the padding
    segment_ids           int8  [N, S]  1 on the second segment and its [SEP], else 0
    masked_lm_positions   int32 [N, P]  ascending; the first 0 ends them
    masked_lm_ids         int32 [N, P]  the original tokens there
    next_sentence_labels  int8  [N]     1: the second segment is random, 0: it follows

`gpauloski` (BERT-PyTorch), which masks during training:

    input_ids                int32 [N, S]
    special_token_positions  int32 [N, 3] of [CLS], [SEP] and the last [SEP], or [N, 2] without a second segment
    next_sentence_labels     int8  [N]

gpauloski's reader masks any file with special_token_positions, even one that is already masked: so no file has both
special_token_positions and masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.hdf5 import create_hdf5, open_hdf5
from bertline.encoding.layout import SampleFile, open_samples
from bertline.encoding.ranges import offsets_of
from bertline.encoding.violations import Violation, Violations, faulty_segments
from bertline.files import Json

# Layout -> dataset -> type and row width.
DATASETS: dict[str, dict[str, tuple[str, str]]] = {
    "nvidia": {
        "input_ids": ("<i4", "S"),
        "input_mask": ("|i1", "S"),
        "segment_ids": ("|i1", "S"),
        "masked_lm_positions": ("<i4", "P"),
        "masked_lm_ids": ("<i4", "P"),
        "next_sentence_labels": ("|i1", ""),
    },
    "gpauloski": {
        "input_ids": ("<i4", "S"),
        "special_token_positions": ("<i4", "T"),
        "next_sentence_labels": ("|i1", ""),
    },
}
ADVICE = "get it or make it again"
MAX_ROW_LENGTH = 65_535  # a position in a sample takes two bytes in the native layout
ROWS_OF_A_CHUNK = 64  # makes reading single rows 20 times faster than h5py's default; most readers read whole files
TOKENS_OF_A_BLOCK = 1 << 20
NO_ID = -1  # of a special token of a vocabulary that is unknown
# Violations found in files of other programs: such samples are useless for training, left out and counted.
UNUSABLE = ("has an empty segment", "has [CLS] or [SEP] inside its text")


@dataclass(frozen=True)
class InterchangeFile:
    """An interchange file whose datasets were checked.

    Attributes:
        layout: `nvidia` or `gpauloski`.
        samples, sequence_length: N and S.
        width: P of NVIDIA's masks, T of gpauloski's special tokens.
    """

    path: Path
    layout: str
    samples: int
    sequence_length: int
    width: int

    def __len__(self) -> int:
        return self.samples


class Block(NamedTuple):
    """Some samples of an interchange file in the form of the native layout: unpadded and unmasked. All int64.

    Attributes:
        ids: the concatenated tokens, `lengths` [N] each.
        second_segment_start: [N], 0 where there is no second segment.
        next_sentence_labels: [N]
        mask_counts: [N], zeros where the file has no masks; `masked_positions` and `masked_input_ids` have their sum.
    """

    ids: np.ndarray
    lengths: np.ndarray
    second_segment_start: np.ndarray
    next_sentence_labels: np.ndarray
    mask_counts: np.ndarray
    masked_positions: np.ndarray
    masked_input_ids: np.ndarray


def write_interchange(
    path: Path | str,
    layout: str,
    blocks: Iterable[Mapping[str, np.ndarray]],
    *,
    samples: int,
    widths: Mapping[str, int],
) -> None:
    """Write a file of `samples` rows atomically; the same rows give the same bytes.

    Args:
        layout: `nvidia` or `gpauloski`.
        blocks: rows of every dataset of the layout, padded with zeros, in pieces of any size.
        widths: of a row, by letter: see the module.
    """
    # The oldest version of HDF5, as the readers are old programs.
    with create_hdf5(path, libver=("earliest", "v108")) as file:
        for name, (dtype, width) in DATASETS[layout].items():
            shape = (samples, widths[width]) if width else (samples,)
            # A dataset without rows cannot be chunked.
            compressed: Json = {"chunks": (min(samples, ROWS_OF_A_CHUNK if width else 1 << 14), *shape[1:])}
            # A tenth smaller than gzip's level 4 without the shuffle, in half the time.
            compressed |= {"compression": "gzip", "compression_opts": 1, "shuffle": True}
            file.create_dataset(name, shape, dtype, track_times=False, **(compressed if samples else {}))
        written = 0
        for block in blocks:
            rows = len(block["input_ids"])
            for name in DATASETS[layout]:
                file[name][written : written + rows] = block[name]
            written += rows
        if written != samples:
            raise ValueError(f"{written} samples were given, {samples} were announced")


def layout_of(path: Path | str) -> str:
    """Return `native`, `nvidia` or `gpauloski`, by the names in the file. Raises BertlineError for any other."""
    path = Path(path)
    with open_hdf5(path, ADVICE) as file:
        if "layout_version" in file.attrs:
            return "native"
        found = [layout for layout, datasets in DATASETS.items() if set(datasets) <= set(file)]
        if len(found) == 1:
            return found[0]
        names = ", ".join(file) or "nothing"
    wanted = "; ".join(f"{layout}: {', '.join(datasets)}" for layout, datasets in DATASETS.items())
    raise BertlineError(f"{path} holds {names}; a file of samples holds the datasets of one layout, {wanted}")


def open_any(path: Path | str) -> SampleFile | InterchangeFile:
    """Open a file of any layout. Raises BertlineError if it is not such a file, or does not have its layout's form."""
    return open_samples(path) if layout_of(path) == "native" else open_interchange(path)


def open_interchange(path: Path | str) -> InterchangeFile:
    """Open an interchange file. Raises BertlineError if its datasets do not have the layout's types and shapes."""
    path = Path(path)
    layout = layout_of(path)
    if layout == "native":
        raise BertlineError(f"{path} is native; it needs no import, name its dataset's folder in the configuration")
    with open_hdf5(path, ADVICE) as file:
        shapes: dict[str, tuple[int, ...]] = {name: file[name].shape or () for name in DATASETS[layout]}
        types = {name: file[name].dtype for name in DATASETS[layout]}
    samples = shapes["input_ids"][0] if shapes["input_ids"] else 0
    widths: dict[str, int] = {}
    for name, (dtype, width) in DATASETS[layout].items():
        # The first dataset with a width defines it.
        row = [widths.setdefault(width, shapes[name][-1] if len(shapes[name]) == 2 else 0)] if width else []
        if types[name] != np.dtype(dtype) or list(shapes[name]) != [samples, *row]:
            wanted = f"{np.dtype(dtype).name} {tuple([samples, *(row if any(row) else width)])}"
            raise BertlineError(
                f"{path}: {name} is {types[name]} {shapes[name]}, in the layout {layout} it is {wanted}; make it again"
            )
    for name, (_, width) in DATASETS[layout].items():
        # No more masks than tokens: a block of samples is read by the number of its tokens.
        most = widths["S"] if width == "P" else MAX_ROW_LENGTH
        if width and not 1 <= widths[width] <= most:
            raise BertlineError(
                f"{path}: {name} has rows of {widths[width]}, allowed are 1 to {most}; make the file again"
            )
    if layout == "gpauloski" and widths["T"] not in (2, 3):
        raise BertlineError(
            f"{path}: special_token_positions has rows of {widths['T']}, allowed are 2 or 3; make the file again"
        )
    return InterchangeFile(path, layout, samples, widths["S"], widths["P" if layout == "nvidia" else "T"])


def read_blocks(file: InterchangeFile, first: int = 0, last: int | None = None) -> Iterator[Block]:
    """Yield the samples [first, last) of a valid file, in blocks of about a million tokens.

    Raises BertlineError for one whose numbers cannot be those of samples.
    """
    for start, rows in _read_rows(file, first, last):
        try:
            yield _block_of(file.layout, rows)
        except (IndexError, ValueError) as error:
            raise BertlineError(
                f"{file.path}: samples from {start} on are damaged ({error}); validate_samples.py shows what is wrong"
            ) from None


def violations_of(file: InterchangeFile, tokenizer: Json | None = None) -> Iterator[Violation]:
    """Yield all violations of the layout's rules in a file.

    `tokenizer`: its `vocab_size` and `special_tokens`. If None, ids are only checked against each other: [CLS] and
    [SEP] are the first and last id of the first sample, and any id may be a word, also that of the padding.
    """
    found = Violations(file.path)
    special: Json = dict(tokenizer["special_tokens"]) if tokenizer else {}
    vocab_size = tokenizer["vocab_size"] if tokenizer else 1 << 31
    try:
        for start, rows in _read_rows(file):
            faulty = _faulty_rows(file.layout, rows, vocab_size)
            found.note(faulty, start)
            sound = ~np.any(list(faulty.values()), axis=0)
            if not sound.any():
                continue
            block = _block_of(file.layout, {name: values[sound] for name, values in rows.items()})
            if not special:
                special = {"[CLS]": int(block.ids[0]), "[SEP]": int(block.ids[block.lengths[0] - 1])}
            of_block = {}
            for what, values in _faulty_samples(block, special).items():
                of_block[what] = np.zeros(len(sound), dtype=bool)
                of_block[what][sound] = values
            found.note(of_block, start)
    except BertlineError as error:  # the rest cannot be read
        yield from found
        yield Violation(file.path, str(error).removeprefix(f"{file.path}: "))
        return
    yield from found


def reasons_against(block: Block, special_tokens: Mapping[str, int]) -> np.ndarray:
    """Return the first violation of `UNUSABLE` of each sample of an otherwise valid block, -1 for none: int64 [N]."""
    faulty = _faulty_samples(block, special_tokens)
    violated = np.array([faulty[what] for what in UNUSABLE])
    return np.where(violated.any(0), violated.argmax(0), -1)


def _read_rows(
    file: InterchangeFile, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yield the rows of all datasets as int64, block by block, each with the number of its first sample."""
    last = file.samples if last is None else min(last, file.samples)
    rows = max(1, TOKENS_OF_A_BLOCK // file.sequence_length)
    with open_hdf5(file.path, ADVICE) as opened:
        for start in range(first, last, rows):
            end = min(start + rows, last)
            yield start, {name: opened[name][start:end].astype(np.int64) for name in DATASETS[file.layout]}


def _faulty_rows(layout: str, rows: Mapping[str, np.ndarray], vocab_size: int) -> dict[str, np.ndarray]:
    """Return for each rule of padding, masks and ranges the rows that violate it: bool [N]."""
    columns = np.arange(rows["input_ids"].shape[1])
    labels = rows["next_sentence_labels"]
    lengths, second = _shapes_of(layout, rows)
    inside = columns < lengths[:, None]
    ids = rows["input_ids"]
    faulty = {
        "has an id outside the vocabulary": ((ids < 0) | (ids >= vocab_size)).any(1),
        "has ids behind its end": (ids != 0).any(1, where=~inside),
        "is shorter than three tokens": lengths < 3,
        "has a label that is not 0 or 1": (labels != 0) & (labels != 1),
        "has a label without a second segment": (labels == 1) & (second == 0),
    }
    if layout == "gpauloski":
        places = rows["special_token_positions"]
        ascend = (np.diff(places) > 0).all(1) & (places[:, 0] == 0) & (places[:, -1] < len(columns))
        return faulty | {"has special_token_positions that do not rise from 0 to a place in its row": ~ascend}
    segments = rows["segment_ids"]
    in_second = (columns >= second[:, None]) & (second > 0)[:, None] & inside
    positions, masked_ids = rows["masked_lm_positions"], rows["masked_lm_ids"]
    counts = _mask_counts(rows)
    given = np.arange(positions.shape[1]) < counts[:, None]
    steps = np.diff(positions, axis=1, prepend=0)
    return faulty | {
        "has an input_mask that is not ones and then zeros": (rows["input_mask"] != inside).any(1),
        "has segment_ids that are not zeros and then ones up to its end": (segments != in_second).any(1),
        "has no masked_lm_positions": counts == 0,
        "has masked_lm_positions that do not ascend": (steps <= 0).any(1, where=given),
        "has masked_lm_positions outside its text": (positions >= (lengths - 1)[:, None]).any(1, where=given)
        | ((positions == (second - 1)[:, None]) & (second > 0)[:, None]).any(1, where=given)
        | (positions < 0).any(1),
        "has masked_lm_positions or masked_lm_ids behind the first 0": (
            (positions != 0).any(1, where=~given) | (masked_ids != 0).any(1, where=~given)
        ),
        "has masked_lm_ids outside the vocabulary": ((masked_ids < 0) | (masked_ids >= vocab_size)).any(1),
    }


def _faulty_samples(block: Block, special_tokens: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return for each rule of [CLS], [SEP], [PAD] and the segments the samples that violate it: bool [N]."""
    cls_id, sep_id = special_tokens["[CLS]"], special_tokens["[SEP]"]
    faulty = faulty_segments(block.ids, block.lengths, block.second_segment_start, cls_id=cls_id, sep_id=sep_id)
    masked = np.repeat(np.arange(len(block.lengths)), block.mask_counts)
    places = np.repeat(offsets_of(block.lengths)[:-1], block.mask_counts) + block.masked_positions
    is_padding = block.ids[places] == special_tokens.get("[PAD]", NO_ID)
    return faulty | {
        "has masked_lm_ids that are padding": np.bincount(masked[is_padding], minlength=len(block.lengths)) > 0,
    }


def _shapes_of(layout: str, rows: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the length of each row, and where its second segment begins, 0 for none: int64 [N]."""
    if layout == "gpauloski":
        places = rows["special_token_positions"]
        second = places[:, 1] + 1 if places.shape[1] == 3 else np.zeros(len(places), dtype=np.int64)
        return places[:, -1] + 1, second
    # The first 1 of segment_ids; argmax returns 0 if there is none.
    return (rows["input_mask"] != 0).sum(1), (rows["segment_ids"] != 0).argmax(1)


def _mask_counts(rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the number of predictions before the first 0 of masked_lm_positions: int64 [N]."""
    positions = rows["masked_lm_positions"]
    ends = positions == 0
    return np.where(ends.any(1), ends.argmax(1), positions.shape[1])


def _block_of(layout: str, rows: Mapping[str, np.ndarray]) -> Block:
    lengths, second = _shapes_of(layout, rows)
    ids = rows["input_ids"].copy()
    invalid = (lengths < 0) | (lengths > ids.shape[1])
    if invalid.any():
        raise IndexError(f"{lengths[invalid][0] - 1} in special_token_positions is outside its row")
    counts = np.zeros(len(ids), dtype=np.int64)
    positions = seen = np.zeros(0, dtype=np.int64)
    if layout == "nvidia":
        counts = _mask_counts(rows)
        given = np.arange(rows["masked_lm_positions"].shape[1]) < counts[:, None]
        positions = rows["masked_lm_positions"][given]
        samples = np.repeat(np.arange(len(ids)), counts)
        outside = (positions < 0) | (positions >= lengths[samples])
        if outside.any():
            raise IndexError(f"{positions[outside][0]} in masked_lm_positions is outside its sample")
        seen = ids[samples, positions]
        ids[samples, positions] = rows["masked_lm_ids"][given]
    inside = np.arange(ids.shape[1]) < lengths[:, None]
    return Block(ids[inside], lengths, second, rows["next_sentence_labels"], counts, positions, seen)
