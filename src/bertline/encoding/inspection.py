"""Files of samples in any layout: validation against every rule of the layout, and samples as readable text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from cyclopts.types import PositiveInt
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding import interchange, validation
from bertline.encoding.card_format import SPLITS, check_belongs, read_card
from bertline.encoding.interchange import Block, InterchangeFile, open_any
from bertline.encoding.layout import SampleFile
from bertline.encoding.tokenizer import special_token_ids, take_tokenizer
from bertline.files import Json, sha256_of_file
from bertline.results import paths


def problems_of(path: Path | str, vocabulary: Path | str | None = None) -> Iterator[str]:
    """Yield all problems of a file of samples, one line each: the file, the first sample, the problem.

    A native file is also checked against the dataset.json of its dataset, if that exists two folders above: its digest
    covers attributes without a rule, such as the seed. `vocabulary` is a vocab.txt or a tokenizer.json.
    """
    path = Path(path)
    try:
        described: Json | None = None
        if vocabulary is not None:
            tokenizer = take_tokenizer(vocabulary)
            described = {"vocab_size": tokenizer.get_vocab_size(), "special_tokens": special_token_ids(tokenizer)}
        file = open_any(path)
        if isinstance(file, SampleFile):
            yield from _problems_of_native(file, described)
        else:
            yield from map(str, interchange.violations_of(file, described))
    except BertlineError as error:
        yield str(error)


def summary_of(path: Path | str) -> str:
    """Describe a valid file in one line."""
    file = open_any(path)
    if isinstance(file, SampleFile):
        kind = "native" if file.masks is None else "native with static masks"
        length = file.attributes["sequence_length"]
    else:
        kind, length = file.layout, file.sequence_length
    return f"{path}: valid, {kind}, {len(file):,} samples of at most {length}"


def _problems_of_native(file: SampleFile, tokenizer: Json | None) -> Iterator[str]:
    if tokenizer is not None:
        special = tokenizer["special_tokens"]
        expected = {"vocab_size": tokenizer["vocab_size"], "cls_id": special["[CLS]"], "sep_id": special["[SEP]"]}
        for name, value in expected.items():
            if file.attributes[name] != value:
                yield f"{file.path}: {name} is {file.attributes[name]}, that of the vocabulary given is {value}"
    yield from map(str, validation.violations_of(file))
    card_json = _beside(file.path, paths.CARD)
    if not card_json.exists():
        return
    card, name = read_card(card_json), f"{file.path.absolute().parent.name}/{file.path.name}"
    for length, section in card["sequence_lengths"].items():
        for entry in (entry for split in SPLITS for entry in section[split] if entry["file"] == name):
            try:
                check_belongs(file.path, file.attributes, entry, card, int(length))
            except BertlineError as error:
                yield str(error)
            if sha256_of_file(file.path) != entry["sha256"]:
                yield f"{file.path}: is not the file that {card_json} describes: another digest"


def _beside(path: Path, name: str) -> Path:
    """Return the path of a file of the dataset to which a native file belongs."""
    return path.absolute().parent.parent / name


def show_samples(file: Path, *, tokenizer: Path | None = None, sample: int = 0, count: PositiveInt = 3) -> str:
    """Return samples as text. Raises BertlineError if the file has no such sample.

    Args:
        file: native, NVIDIA's or gpauloski's.
        tokenizer: tokenizer.json or vocab.txt (default: the dataset's; ids are shown if there is none).
        sample: the first sample to show, counted from 0.
        count: number of samples.
    """
    if tokenizer is None and _beside(file, paths.TOKENIZER).exists():
        tokenizer = _beside(file, paths.TOKENIZER)
    taken = take_tokenizer(tokenizer) if tokenizer is not None else None
    opened = open_any(file)
    if not 0 <= sample < len(opened):
        raise BertlineError(f"{file} has no sample {sample}; it has {len(opened)}, counted from 0")
    card_json = _beside(file, paths.CARD)
    native = isinstance(opened, SampleFile)
    corpora = [corpus["name"] for corpus in read_card(card_json)["corpora"]] if native and card_json.exists() else []
    lines: list[str] = []
    for number in range(sample, min(sample + count, len(opened))):
        if isinstance(opened, SampleFile):
            corpus = int(opened.corpus_index[number])
            name = f" ({corpora[corpus]})" if corpus < len(corpora) else ""
            origin = f"document {opened.document_index[number]}, corpus {corpus}{name}"
            objective = opened.attributes["pair_objective"]
            lines += _lines(number, _native_block(opened, slice(number, number + 1)), origin, objective, taken)
        else:
            for block in interchange.read_blocks(opened, number, number + 1):
                lines += _lines(number, block, f"layout {opened.layout}", "next_sentence", taken)
    return "\n".join(lines)


def blocks_of(file: SampleFile | InterchangeFile) -> Iterator[Block]:
    """Yield the samples of a file of any layout in one form, in blocks."""
    if isinstance(file, SampleFile):
        yield from (_native_block(file, samples) for samples in file.blocks())
    else:
        yield from interchange.read_blocks(file)


def _native_block(file: SampleFile, samples: slice) -> Block:
    """Return some samples in the form in which interchange files are read.

    Raises BertlineError if their numbers cannot be those of samples.
    """
    offsets = file.sample_offsets[samples.start : samples.stop + 1].astype(np.int64)
    lengths, second = np.diff(offsets), file.second_segment_start[samples].astype(np.int64)
    sound = _within(offsets, len(file.input_ids)) and bool((second < lengths).all())
    counts = np.zeros(len(lengths), dtype=np.int64)
    positions = seen = np.zeros(0, dtype=np.int64)
    if sound and file.masks is not None:
        of_masks = file.masks.mask_offsets[samples.start : samples.stop + 1].astype(np.int64)
        counts, masks = np.diff(of_masks), slice(of_masks[0], of_masks[-1])
        positions, seen = file.masks.masked_positions[masks], file.masks.masked_input_ids[masks]
        sound = _within(of_masks, len(file.masks.masked_positions))
        sound = sound and bool((positions < np.repeat(lengths, counts)).all())
    if not sound:
        raise BertlineError(
            f"{file.path}: samples from {samples.start} on are damaged; validate_samples.py shows what is wrong"
        )
    return Block(
        file.input_ids[offsets[0] : offsets[-1]].astype(np.int64),
        lengths,
        second,
        file.next_sentence_labels[samples].astype(np.int64),
        counts,
        positions.astype(np.int64),
        seen.astype(np.int64),
    )


def _within(offsets: np.ndarray, end: int) -> bool:
    return bool(offsets[0] >= 0 and offsets[-1] <= end and (offsets[1:] >= offsets[:-1]).all())


def _lines(number: int, sample: Block, origin: str, pair_objective: str, tokenizer: Tokenizer | None) -> Iterator[str]:
    second, label = int(sample.second_segment_start[0]), int(sample.next_sentence_labels[0])
    of_one = "A follows B" if pair_objective == "sentence_order" else "B is random"
    meaning = {0: ", B follows A", 1: f", {of_one}"}.get(label, "")
    pair = f"label {label}{meaning}" if second else "one segment"
    yield f"sample {number}: {len(sample.ids)} tokens, {pair}, {origin}"
    seen = sample.ids.copy()
    seen[sample.masked_positions] = sample.masked_input_ids
    yield f"  A  {_text(seen[: second or None], tokenizer)}"
    if second:
        yield f"  B  {_text(seen[second:], tokenizer)}"
    asked = [
        f"{position} {_token(int(seen[position]), tokenizer)} for {_token(int(sample.ids[position]), tokenizer)}"
        for position in sample.masked_positions.tolist()
    ]
    if asked:
        yield f"  masked  {', '.join(asked)}"


def _text(ids: np.ndarray, tokenizer: Tokenizer | None) -> str:
    if tokenizer is not None and ((ids >= 0) & (ids < tokenizer.get_vocab_size())).all():
        return tokenizer.decode(ids.tolist(), skip_special_tokens=False)
    return " ".join(_token(index, tokenizer) for index in ids.tolist())


def _token(index: int, tokenizer: Tokenizer | None) -> str:
    """Return a token, or the number of one outside the vocabulary."""
    if tokenizer is None or not 0 <= index < tokenizer.get_vocab_size():
        return str(index)
    return str(tokenizer.id_to_token(index))
