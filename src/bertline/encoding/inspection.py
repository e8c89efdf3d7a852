"""Samples of a file, in any layout, as readable text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.dataset import read_card
from bertline.encoding.interchange import Block, open_any, read_blocks
from bertline.encoding.layout import SampleFile
from bertline.encoding.tokenizer import take_tokenizer


def show_samples(
    path: Path | str, *, first: int, count: int, vocabulary: Path | str | None = None, lowercase: bool = True
) -> Iterator[str]:
    """Yield lines of text about `count` samples, beginning with number `first`.

    `vocabulary` is a vocab.txt or a tokenizer.json; None selects the tokenizer.json of the file's dataset, and if there
    is none, ids are shown. Raises BertlineError if the file has no such sample.
    """
    path = Path(path)
    beside = path.absolute().parent.parent / "tokenizer.json"
    if vocabulary is None and beside.exists():
        vocabulary = beside
    tokenizer = take_tokenizer(vocabulary, lowercase=lowercase) if vocabulary is not None else None
    file = open_any(path)
    if not 0 <= first < len(file):
        raise BertlineError(f"{path} has no sample {first}; it has {len(file)}, counted from 0")
    card_json = path.absolute().parent.parent / "dataset.json"
    native = isinstance(file, SampleFile)
    corpora = [corpus["name"] for corpus in read_card(card_json)["corpora"]] if native and card_json.exists() else []
    for number in range(first, min(first + count, len(file))):
        if isinstance(file, SampleFile):
            corpus = int(file.corpus_index[number])
            name = f" ({corpora[corpus]})" if corpus < len(corpora) else ""
            origin = f"document {file.document_index[number]}, corpus {corpus}{name}"
            yield from _lines(
                number, _native_sample(file, number), origin, file.attributes["pair_objective"], tokenizer
            )
        else:
            for block in read_blocks(file, number, number + 1):
                yield from _lines(number, block, f"layout {file.layout}", "next_sentence", tokenizer)


def _native_sample(file: SampleFile, number: int) -> Block:
    """Return one sample in the form in which interchange files are read."""
    begin, end = file.sample_offsets[number : number + 2].tolist()
    one = slice(number, number + 1)
    positions = seen = np.zeros(0, dtype=np.int64)
    if file.masks is not None:
        masks = slice(*file.masks.mask_offsets[number : number + 2].tolist())
        positions, seen = file.masks.masked_positions[masks], file.masks.masked_input_ids[masks]
    return Block(
        file.input_ids[begin:end].astype(np.int64),
        np.array([end - begin]),
        file.second_segment_start[one],
        file.next_sentence_labels[one],
        np.array([len(positions)]),
        positions,
        seen,
    )


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
    if tokenizer is None:
        return " ".join(map(str, ids.tolist()))
    return tokenizer.decode(ids.tolist(), skip_special_tokens=False)


def _token(index: int, tokenizer: Tokenizer | None) -> str:
    token = tokenizer.id_to_token(index) if tokenizer is not None else None
    return str(index) if token is None else token
