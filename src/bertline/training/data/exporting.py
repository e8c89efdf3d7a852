"""Export of a native file of samples to the layouts of other programs: NVIDIA's, masked, and gpauloski's."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from bertline.command_line import Files
from bertline.console import BertlineError
from bertline.encoding.card_format import SPLITS, check_belongs, read_card, remedy
from bertline.encoding.dataset import SampleReader
from bertline.encoding.hashing import mix_integers
from bertline.encoding.interchange import TOKENS_OF_A_BLOCK, write_interchange
from bertline.encoding.layout import SampleFile, open_samples
from bertline.encoding.masking import IGNORED, Masking, Vocabulary, count_masked
from bertline.files import sha256_of_file
from bertline.results import paths
from bertline.training.data.batches import GlobalBatch
from bertline.training.data.collation import mask_batch, micro_batches
from bertline.training.data.order import permute
from bertline.training.data.shapes import Batching, row_shape

Rows = dict[str, np.ndarray]
PROBABILITY = 0.15  # of masking a position, as in NVIDIA's files

logger = logging.getLogger(__name__)


def default_max_predictions(sequence_length: int) -> int:
    """Return the slots for predictions in a sample, as in NVIDIA's files: 20 of 128 tokens, 80 of 512.

    At least one stays empty: gpauloski's reader of this layout fails on a row whose positions do not end with a 0.
    """
    return max(-(-sequence_length * 5 // 32), round(PROBABILITY * sequence_length) + 1)


def export_samples(
    samples: Files,
    dataset: Path,
    outputs: Files,
    layout: Literal["nvidia", "gpauloski"],
    *,
    seed: int | None = None,
    dupe_factor: int | None = None,
    max_predictions: int | None = None,
) -> None:
    """Convert native files to NVIDIA's layout, masked, or to gpauloski's, unmasked.

    Masking is as in training: max(1, round(0.15 x length)) positions, at most `max_predictions`; 80 percent become
    [MASK] and 10 percent a random word. Rows are shuffled, because some readers do not shuffle them. Masks and order
    depend on `seed` and the name of the shard. A sample without a word to mask has no place in NVIDIA's layout: it is
    left out, with a warning.

    Args:
        samples: files of the dataset.
        dataset: its dataset.json.
        outputs: one for each file.
        layout: of the outputs.
        seed: of masks and order (default: that of the dataset).
        dupe_factor: differently masked copies of every sample; nvidia only (default: 5).
        max_predictions: masked tokens of a sample; nvidia only (default: 20 of 128, 80 of 512).

    Raises BertlineError if a file is not the dataset's, is damaged, is of segments in either order, or, for NVIDIA's
    layout, was imported and is already masked; and if an output is given twice or is a file of the dataset.
    """
    if len(outputs) != len(samples):
        raise BertlineError("--outputs: give one file for each of the samples' files, in the same order")
    for name, value in (("--dupe-factor", dupe_factor), ("--max-predictions", max_predictions)):
        if value is not None and layout == "gpauloski":
            raise BertlineError(f"{name}: gpauloski's layout has no masks; leave it out")
        if value is not None and value < 1:
            raise BertlineError(f"{name}: given {value}, allowed is at least 1")
    _check_outputs(outputs, samples, dataset)
    for path, output in zip(samples, outputs, strict=True):
        file, reader = _open(path, dataset)
        if file.attributes["pair_objective"] == "sentence_order":
            raise BertlineError(
                f"{path}: a label 1 means that A follows B (pair_objective: sentence_order), but in the layout "
                f"{layout} that B is random; export a dataset with another pair_objective"
            )
        length, shard_seed = reader.sequence_length, _seed(file, seed)
        if layout == "gpauloski":
            special_tokens = 2 if file.attributes["pair_objective"] == "none" else 3
            copies, widths = 1, {"S": length, "T": special_tokens}
            exported = np.arange(len(reader))
            pieces = _shuffled(file, reader, exported, Masking(0.0), shard_seed, copies)
            blocks = (_plain_rows(batch, reader, special_tokens) for batch in pieces)
        else:
            if reader.mask_counts is not None:
                raise BertlineError(f"{path} was imported and keeps its own masks; use the files it was made from")
            most = max_predictions or default_max_predictions(length)
            if most > length:
                raise BertlineError(f"--max-predictions: given {most}, allowed are at most {length}, as many as tokens")
            masking, vocabulary = Masking(PROBABILITY, most), Vocabulary.of_card(reader.card)
            copies, widths = dupe_factor or paths.NVIDIA_COPIES, {"S": length, "P": most}
            exported = _with_words(file, reader, vocabulary)
            pieces = _shuffled(file, reader, exported, masking, shard_seed, copies)
            blocks = (_masked_rows(batch, reader, masking, vocabulary, shard_seed) for batch in pieces)
        write_interchange(output, layout, blocks, samples=copies * len(exported), widths=widths)


def _check_outputs(outputs: Sequence[Path], samples: Sequence[Path], card_json: Path) -> None:
    """Raise BertlineError if an output is named twice, or is a file of the dataset by any of its names."""
    card = read_card(card_json)
    entries = [entry for section in card["sequence_lengths"].values() for split in SPLITS for entry in section[split]]
    names = (card["tokenizer"]["file"], *(entry["file"] for entry in entries))
    files = (card_json, *samples, *(card_json.parent / name for name in names))
    taken = {_identity(path) for path in files if path.exists()}
    seen: set[Path] = set()
    for output in outputs:
        if output.exists() and _identity(output) in taken:
            raise BertlineError(f"{output} is a file of the dataset; name another output")
        if output.resolve() in seen:
            raise BertlineError(f"{output} is the output of two files; name one for each")
        seen.add(output.resolve())


def _identity(path: Path) -> tuple[int, int]:
    """Return what all names of a file have in common: its device and inode."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _open(samples: Path | str, card_json: Path | str) -> tuple[SampleFile, SampleReader]:
    file, card = open_samples(samples), read_card(card_json)
    length = file.attributes["sequence_length"]
    section = card["sequence_lengths"].get(str(length), dict.fromkeys(SPLITS, ()))
    for entry in (entry for split in SPLITS for entry in section[split]):
        if (Path(card_json).parent / entry["file"]).resolve() == Path(samples).resolve():
            check_belongs(file.path, file.attributes, entry, card, length)
            if sha256_of_file(file.path) != entry["sha256"]:
                raise BertlineError(
                    f"{file.path} is damaged: its SHA-256 is not the one that {card_json} states; {remedy(card)}"
                )
            return file, SampleReader([file], length, card)
    raise BertlineError(f"{samples} is not one of the files that {card_json} lists; name one of those")


def _seed(file: SampleFile, seed: int | None) -> int:
    """Return a seed that is unique to the shard."""
    of_dataset = file.attributes["seed"] if seed is None else seed
    digest = hashlib.sha256(f"{of_dataset}/{file.attributes['shard']}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def _with_words(file: SampleFile, reader: SampleReader, vocabulary: Vocabulary) -> np.ndarray:
    """Return the numbers of the samples with an id that is not special, int64 ascending; warn of the others."""
    is_word, kept = ~vocabulary.is_special.numpy(), [np.zeros(0, dtype=np.int64)]
    rows = max(1, TOKENS_OF_A_BLOCK // reader.sequence_length)
    for start in range(0, len(reader), rows):
        numbers = np.arange(start, min(start + rows, len(reader)))
        batch = reader.gather(numbers)
        kept.append(numbers[np.logical_or.reduceat(is_word[batch.tokens], batch.offsets[:-1])])
        file.release()
    samples = np.concatenate(kept)
    if left_out := len(reader) - len(samples):
        logger.warning("warning: %s: left out %d samples that have no word to mask, only [UNK]", file.path, left_out)
    return samples


def _shuffled(
    file: SampleFile, reader: SampleReader, exported: np.ndarray, masking: Masking, seed: int, copies: int
) -> Iterator[GlobalBatch]:
    """Yield the samples `exported` `copies` times in random order, in pieces of about half a million tokens."""
    total, rows = copies * len(exported), max(1, TOKENS_OF_A_BLOCK // 2 // reader.sequence_length)
    for start in range(0, total, rows):
        numbers = np.arange(start, min(start + rows, total), dtype=np.int64)
        copy, places = np.divmod(permute(numbers, key=mix_integers(seed), count=total), len(exported))
        samples = exported[places]
        lengths = reader.lengths[samples].astype(np.int64)
        yield GlobalBatch(samples, copy, lengths, count_masked(lengths, masking))
        file.release()


def _masked_rows(batch: GlobalBatch, reader: SampleReader, masking: Masking, vocabulary: Vocabulary, seed: int) -> Rows:
    rows, length = len(batch.samples), reader.sequence_length
    batching = Batching(length, rows, shapes=(row_shape(rows, length, reader, masking),))
    [padded] = micro_batches(batch, reader, batching)
    ids, positions, labels = mask_batch(padded, seed=seed, masking=masking, vocabulary=vocabulary)
    inside = np.arange(length) < batch.lengths[:, None]
    asked = labels != IGNORED
    row, position = np.divmod(positions[asked].numpy(), length)
    number = np.arange(len(row)) - np.searchsorted(row, row)  # of the mask in its row
    masks = np.zeros((2, rows, masking.max_predictions or length), dtype=np.int64)
    masks[:, row, number] = position, labels[asked].numpy()
    return {
        "input_ids": np.where(inside, ids.numpy(), 0),
        "input_mask": inside,
        "segment_ids": padded.token_type_ids.numpy(),
        "masked_lm_positions": masks[0],
        "masked_lm_ids": masks[1],
        "next_sentence_labels": padded.pair_labels.numpy(),
    }


def _plain_rows(batch: GlobalBatch, reader: SampleReader, special_tokens: int) -> Rows:
    content = reader.gather(batch.samples)
    ids = np.zeros((len(batch.samples), reader.sequence_length), dtype=np.int64)
    ids[np.arange(reader.sequence_length) < batch.lengths[:, None]] = content.tokens
    ends = [content.second_segment_start.astype(np.int64) - 1] if special_tokens == 3 else []
    return {
        "input_ids": ids,
        "special_token_positions": np.stack([np.zeros_like(batch.lengths), *ends, batch.lengths - 1], axis=1),
        "next_sentence_labels": content.next_sentence_labels,
    }
