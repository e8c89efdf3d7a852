"""Import of sample files of other programs into a dataset: native files, their tokenizer and a dataset.json.

Training reads samples in random order from memory maps; a machine reads only a few hundred compressed rows, such as
NVIDIA's, per second. So files are read once, checked against every rule of their layout, and written in the native
layout as text without masks plus the original masks (see `bertline.encoding.layout`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from bertline.command_line import Files
from bertline.console import BertlineError, progress
from bertline.encoding.card import describe_tokenizer, finish_card
from bertline.encoding.description import describe_files
from bertline.encoding.interchange import (
    UNUSABLE,
    Block,
    InterchangeFile,
    open_interchange,
    read_blocks,
    reasons_against,
    violations_of,
)
from bertline.encoding.layout import write_samples
from bertline.encoding.ranges import offsets_of_blocks
from bertline.encoding.tokenizer import save_tokenizer, take_with_options
from bertline.files import SNAKEMAKES, Json, check_replaceable, read_object, sha256_of_file
from bertline.fingerprint import fingerprint, stage_versions
from bertline.results import paths
from bertline.results.paths import HELD_OUT
from bertline.spool import Spool

# The columns of a file's samples that are kept on disk until their number is known; tokens are read again.
SPOOLED = {
    "lengths": np.uint32,
    "second_segment_start": np.uint16,
    "next_sentence_labels": np.uint8,
    "mask_counts": np.uint32,
    "masked_positions": np.uint16,
    "masked_input_ids": np.uint32,
}
NUMBERS_PER_BLOCK = 1 << 18
# All paths in an import's folder, with the temporary files of a killed import.
OWN_PATHS = re.compile(
    rf"{re.escape(paths.CARD)}|{re.escape(paths.TOKENIZER)}|seq\d+|seq\d+/({HELD_OUT}_)?\d{{5,}}\.h5"
    rf"|(seq\d+/)?\..*\.[0-9a-f]{{8}}\.part|{re.escape(SNAKEMAKES)}"
)


def import_dataset(
    training: Files,
    tokenizer: Path,
    output: Path,
    *,
    held_out: tuple[Path, ...] = (),
    lowercase: bool | None = None,
    name: str = "imported",
) -> str:
    """Make a dataset from files in NVIDIA's or gpauloski's layout; returns a summary. dataset.json is written last.

    Args:
        training: files to train on, of one layout and all lengths.
        tokenizer: the vocab.txt or tokenizer.json of the files.
        output: the dataset's folder.
        held_out: files to evaluate on.
        lowercase: case of a vocab.txt (default: that of the tokenizer_config.json next to it, else true).
        name: of the corpus in reports.

    The files do not record document boundaries: each counts as one document. Raises BertlineError for the first file
    and sample that violates its layout's rules, for a file that is given twice, and for an output that contains a
    source or anything else than an earlier import. Samples of `UNUSABLE` are left out and counted in the card.
    """
    _check_output(output, [*training, *held_out, tokenizer])
    given = {"train": sorted(training), HELD_OUT: sorted(held_out)}
    files = {split: [open_interchange(path) for path in of_split] for split, of_split in given.items()}
    lengths = _check_together(files)
    read = take_with_options(tokenizer, lowercase=lowercase)
    layout = files["train"][0].layout
    sources = _sources(files)
    _remove_earlier(output)
    for length in lengths:  # first, as `_check_output` expects them in whatever a killed import leaves
        (output / f"seq{length}").mkdir(parents=True, exist_ok=True)
    save_tokenizer(read, output / paths.TOKENIZER)
    taken = describe_tokenizer(output / paths.TOKENIZER)
    digests = {split: [source["sha256"] for source in of_split] for split, of_split in sources.items()}
    made_from = {"layout": layout, "files": digests, "tokenizer": taken["sha256"]}
    name_of_result = fingerprint({**made_from, "versions": stage_versions("import")})
    written: dict[int, list[Path]] = {length: [] for length in lengths}
    dropped = Counter[str](dict.fromkeys(UNUSABLE, 0))
    for file, shard in progress(_shards(files), description="importing", unit="files"):
        path = output / f"seq{file.sequence_length}/{shard}.h5"
        dropped.update(_import_file(file, path, taken, {"fingerprint": name_of_result, "shard": shard}))
        written[file.sequence_length].append(path)
    described = {length: describe_files(of_length) for length, of_length in written.items()}
    of_files = [file.attributes for of_length in described.values() for file in of_length]
    objectives = {attributes["pair_objective"] for attributes in of_files if attributes["samples"]}
    if len(objectives) > 1:
        raise BertlineError("some of the files hold pairs of segments, some single ones; import them separately")
    documents = len(written[lengths[0]])
    card: Json = {
        "fingerprint": name_of_result,
        "settings": {"pair_objective": objectives.pop() if objectives else "none"},
        "imported": {"layout": layout, "sources": sources, "dropped_samples": dropped},
        "static_masks": layout == "nvidia",
        "corpora": [{"name": name, "documents": documents, "read": documents, "kept": documents, "dropped": {}}],
    }
    card = finish_card(output, card, described)
    lines = []
    for length, section in card["sequence_lengths"].items():
        samples = sum(entry["samples"] for entry in section[HELD_OUT])
        lines.append(f"length {length}: {section['samples']:,} samples to train on, {samples:,} held out")
    for reason, count in dropped.items():
        if count:
            lines.append(f"left out: {count:,} samples that each {reason.replace('has', 'have', 1)}")
    return "\n".join(lines)


def _check_output(output: Path, sources: Sequence[Path]) -> None:
    """Raise BertlineError if the folder `output` contains one of the sources, or anything else than an import."""
    check_replaceable(output.resolve(), sources=sources)
    card = output / paths.CARD
    # A plan is there before the card of a dataset that is being encoded.
    if (output / paths.PLAN).exists() or (card.exists() and "imported" not in read_object(card)):
        raise BertlineError(f"{output} holds a dataset that was not imported; name another output")
    for path in [*sorted(output.glob("*")), *sorted(output.glob("seq*/*"))]:
        name = str(path.relative_to(output))
        if not OWN_PATHS.fullmatch(name):
            raise BertlineError(f"{output} contains {name}, which no import made; name another output, or move it away")
    if (output / paths.TOKENIZER).exists() and not any(output.glob("seq*")):
        raise BertlineError(f"{output} contains a {paths.TOKENIZER}, but no import; name another output")


def _remove_earlier(output: Path) -> None:
    """Remove an earlier import, its card first: the new one may have other files, or end before it has a card."""
    (output / paths.CARD).unlink(missing_ok=True)
    for path in output.glob(paths.SAMPLES.format(length="*", shard="*")):
        path.unlink()


def _sources(files: Mapping[str, Sequence[InterchangeFile]]) -> dict[str, list[Json]]:
    """Return the name and the SHA-256 of every file. Raises BertlineError if two files with samples are the same."""
    sources: dict[str, list[Json]] = {split: [] for split in files}
    known: dict[str, Path] = {}
    for split, file in ((split, file) for split, of_split in files.items() for file in of_split):
        digest = sha256_of_file(file.path)
        if len(file) and digest in known:
            raise BertlineError(
                f"{file.path} and {known[digest]} are the same file; give each once, to train on or as held out"
            )
        known[digest] = file.path
        sources[split].append({"file": file.path.name, "sha256": digest})
    return sources


def _check_together(files: Mapping[str, Sequence[InterchangeFile]]) -> list[int]:
    """Return the sequence lengths of the files. Raises BertlineError if they cannot form one dataset."""
    if len({file.layout for of_split in files.values() for file in of_split}) > 1:
        raise BertlineError("the files are of different layouts; import those of nvidia and gpauloski one by one")
    lengths = {file.sequence_length for file in files["train"]}
    for file in files[HELD_OUT]:
        if file.sequence_length not in lengths:
            raise BertlineError(
                f"{file.path} is of length {file.sequence_length}, but no training file is; leave it out"
            )
    return sorted(lengths)


def _shards(files: Mapping[str, Sequence[InterchangeFile]]) -> list[tuple[InterchangeFile, str]]:
    """Return each file with its shard's name, numbered within its split and length: 00000, ..., held_out_00000, ..."""
    shards, seen = [], Counter[tuple[str, int]]()
    for split, of_split in files.items():
        for file in of_split:
            number = seen[split, file.sequence_length]
            seen[split, file.sequence_length] += 1
            shards.append((file, f"{number:05d}" if split == "train" else f"{split}_{number:05d}"))
    return shards


def _import_file(file: InterchangeFile, output: Path, tokenizer: Json, shared: Json) -> Counter[str]:
    """Write one file in the native layout, in bounded memory; returns how many samples were left out, by reason."""
    for violation in violations_of(file, tokenizer):
        if violation.what not in UNUSABLE:
            raise BertlineError(f"{violation}; make the file again, or name the vocabulary that it was made with")
    special = tokenizer["special_tokens"]
    spools = {name: Spool(output.parent, dtype) for name, dtype in SPOOLED.items()}
    samples = pairs = tokens = unknown = labelled = 0
    dropped = Counter[str]()
    for block, of_block in _usable_blocks(file, special):
        dropped.update(of_block)
        for name, spool in spools.items():
            spool.append(getattr(block, name))
        samples += len(block.lengths)
        pairs += int((block.second_segment_start > 0).sum())
        tokens += len(block.ids)
        unknown += int((block.ids == special["[UNK]"]).sum())
        labelled += int(block.next_sentence_labels.sum())
    if 0 < pairs < samples:
        raise BertlineError(f"{file.path}: some samples are pairs and some are not; import them from separate files")
    numbers = {name: spool.read() for name, spool in spools.items()}

    def column(name: str) -> Iterator[np.ndarray]:
        for start in range(0, len(numbers[name]), NUMBERS_PER_BLOCK):
            yield numbers[name][start : start + NUMBERS_PER_BLOCK]
            spools[name].release()

    columns = {
        "input_ids": (block.ids for block, _ in _usable_blocks(file, special)),
        "sample_offsets": offsets_of_blocks(column("lengths")),
        "second_segment_start": column("second_segment_start"),
        "next_sentence_labels": column("next_sentence_labels"),
        "document_index": (np.zeros(len(block)) for block in column("lengths")),
        "corpus_index": (np.zeros(len(block)) for block in column("lengths")),
        "mask_offsets": offsets_of_blocks(column("mask_counts")),
        "masked_positions": column("masked_positions"),
        "masked_input_ids": column("masked_input_ids"),
    }
    write_samples(
        output,
        columns,
        samples=samples,
        tokens=tokens,
        attributes={
            **shared,
            "sequence_length": file.sequence_length,
            "pair_objective": "next_sentence" if pairs else "none",
            "seed": 0,
            "tokenizer_sha256": tokenizer["sha256"],
            "vocab_size": tokenizer["vocab_size"],
            "cls_id": special["[CLS]"],
            "sep_id": special["[SEP]"],
            "documents": 1,
            "documents_of_corpora": [1],
            "sentences": 0,
            "text_tokens": tokens - 2 * samples - pairs,
            "unknown_tokens": unknown,
            "unplaced_tokens": 0,
            "samples_with_random_next": labelled,
            "samples_without_partner": 0,
        },
        masks=len(numbers["masked_positions"]) if file.layout == "nvidia" else None,
    )
    return dropped


def _usable_blocks(file: InterchangeFile, special_tokens: Json) -> Iterator[tuple[Block, Counter[str]]]:
    """Yield the blocks of a file without the samples of `UNUSABLE`, and the numbers of these, by their first reason."""
    for block in read_blocks(file):
        reasons = reasons_against(block, special_tokens)
        keep = reasons < 0
        masks = np.repeat(keep, block.mask_counts)
        kept = Block(
            block.ids[np.repeat(keep, block.lengths)],
            block.lengths[keep],
            block.second_segment_start[keep],
            block.next_sentence_labels[keep],
            block.mask_counts[keep],
            block.masked_positions[masks],
            block.masked_input_ids[masks],
        )
        yield kept, Counter(UNUSABLE[number] for number in reasons[~keep].tolist())
