"""Validation of a file of samples, in any layout, against every rule of that layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertline.console import BertlineError
from bertline.encoding import interchange, layout
from bertline.encoding.dataset import SPLITS, check_belongs, read_card
from bertline.encoding.tokenizer import special_token_ids, take_tokenizer
from bertline.files import Json, sha256_of_file


def problems_of(path: Path | str, vocabulary: Path | str | None = None, *, lowercase: bool = True) -> Iterator[str]:
    """Yield all problems of a file of samples, one line each: the file, the first sample, the problem.

    A native file is also checked against the dataset.json of its dataset, if that exists two folders above: its digest
    covers attributes without a rule, such as the seed. `vocabulary` is a vocab.txt or a tokenizer.json.
    """
    path = Path(path)
    try:
        tokenizer = _describe(vocabulary, lowercase=lowercase) if vocabulary is not None else None
        file = interchange.open_any(path)
        if isinstance(file, layout.SampleFile):
            yield from _problems_of_native(file, tokenizer)
        else:
            yield from map(str, interchange.violations_of(file, tokenizer))
    except BertlineError as error:
        yield str(error)


def summary_of(path: Path | str) -> str:
    """Describe a valid file in one line."""
    file = interchange.open_any(path)
    if isinstance(file, layout.SampleFile):
        kind = "native" if file.masks is None else "native with static masks"
        length = file.attributes["sequence_length"]
    else:
        kind, length = file.layout, file.sequence_length
    return f"{path}: valid, {kind}, {len(file):,} samples of at most {length}"


def _describe(vocabulary: Path | str, *, lowercase: bool) -> Json:
    tokenizer = take_tokenizer(vocabulary, lowercase=lowercase)
    return {"vocab_size": tokenizer.get_vocab_size(), "special_tokens": special_token_ids(tokenizer)}


def _problems_of_native(file: layout.SampleFile, tokenizer: Json | None) -> Iterator[str]:
    if tokenizer is not None:
        special = tokenizer["special_tokens"]
        expected = {"vocab_size": tokenizer["vocab_size"], "cls_id": special["[CLS]"], "sep_id": special["[SEP]"]}
        for name, value in expected.items():
            if file.attributes[name] != value:
                yield f"{file.path}: {name} is {file.attributes[name]}, that of the vocabulary given is {value}"
    yield from map(str, layout.violations_of(file))
    card_json = file.path.absolute().parent.parent / "dataset.json"
    if not card_json.exists():
        return
    card, name = read_card(card_json), f"{file.path.absolute().parent.name}/{file.path.name}"
    for length, section in card["sequence_lengths"].items():
        for entry in (entry for split in SPLITS for entry in section[split] if entry["file"] == name):
            try:
                check_belongs(file, entry, card, int(length))
            except BertlineError as error:
                yield str(error)
            if sha256_of_file(file.path) != entry["sha256"]:
                yield f"{file.path}: is not the file that {card_json} describes: another digest"
