"""Samples of a file, in any layout, as readable text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding import interchange, layout
from bertline.encoding.dataset import read_card
from bertline.encoding.tokenizer import take_tokenizer


@dataclass(frozen=True)
class _Sample:
    """Unmasked ids; `second` is where segment B begins, 0 for none; masks are (position, input id there)."""

    ids: np.ndarray
    second: int
    label: int
    origin: str
    masks: list[tuple[int, int]]
    pair_objective: str = "next_sentence"


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
    native = interchange.layout_of(path) == "native"
    total = len(layout.open_samples(path)) if native else interchange.open_interchange(path).samples
    if not 0 <= first < total:
        raise BertlineError(f"{path} has no sample {first}; it has {total}, counted from 0")
    last = min(first + count, total)
    samples = _native_samples(path, first, last) if native else _interchange_samples(path, first, last)
    for number, sample in enumerate(samples, start=first):
        yield from _lines(number, sample, tokenizer)


def _native_samples(path: Path, first: int, last: int) -> Iterator[_Sample]:
    file = layout.open_samples(path)
    card_json = path.absolute().parent.parent / "dataset.json"
    corpora = [corpus["name"] for corpus in read_card(card_json)["corpora"]] if card_json.exists() else []
    for number in range(first, last):
        begin, end = file.sample_offsets[number : number + 2].tolist()
        corpus = int(file.corpus_index[number])
        name = f" ({corpora[corpus]})" if corpus < len(corpora) else ""
        masks: list[tuple[int, int]] = []
        if file.masks is not None:
            of_sample = slice(*file.masks.mask_offsets[number : number + 2].tolist())
            positions, seen = file.masks.masked_positions[of_sample], file.masks.masked_input_ids[of_sample]
            masks = list(zip(positions.tolist(), seen.tolist(), strict=True))
        yield _Sample(
            file.input_ids[begin:end].astype(np.int64),
            int(file.second_segment_start[number]),
            int(file.next_sentence_labels[number]),
            f"document {file.document_index[number]}, corpus {corpus}{name}",
            masks,
            file.attributes["pair_objective"],
        )


def _interchange_samples(path: Path, first: int, last: int) -> Iterator[_Sample]:
    file = interchange.open_interchange(path)
    for number in range(first, last):
        for block in interchange.read_blocks(file, number, number + 1):
            masks = list(zip(block.masked_positions.tolist(), block.masked_input_ids.tolist(), strict=True))
            second, label = int(block.second_segment_start[0]), int(block.next_sentence_labels[0])
            yield _Sample(block.ids, second, label, f"layout {file.layout}", masks)


def _lines(number: int, sample: _Sample, tokenizer: Tokenizer | None) -> Iterator[str]:
    of_one = "A follows B" if sample.pair_objective == "sentence_order" else "B is random"
    meaning = {0: ", B follows A", 1: f", {of_one}"}.get(sample.label, "")
    pair = f"label {sample.label}{meaning}" if sample.second else "one segment"
    yield f"sample {number}: {len(sample.ids)} tokens, {pair}, {sample.origin}"
    seen = sample.ids.copy()
    for position, token in sample.masks:
        seen[position] = token
    yield f"  A  {_text(seen[: sample.second or None], tokenizer)}"
    if sample.second:
        yield f"  B  {_text(seen[sample.second :], tokenizer)}"
    if sample.masks:
        asked = (
            f"{position} {_token(token, tokenizer)} for {_token(int(sample.ids[position]), tokenizer)}"
            for position, token in sample.masks
        )
        yield f"  masked  {', '.join(asked)}"


def _text(ids: np.ndarray, tokenizer: Tokenizer | None) -> str:
    if tokenizer is None:
        return " ".join(map(str, ids.tolist()))
    return tokenizer.decode(ids.tolist(), skip_special_tokens=False)


def _token(index: int, tokenizer: Tokenizer | None) -> str:
    token = tokenizer.id_to_token(index) if tokenizer is not None else None
    return str(index) if token is None else token
