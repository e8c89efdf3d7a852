"""The card of a dataset, `dataset.json`: the keys that readers need, and their checks."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.layout import LAYOUT_VERSION
from bertline.encoding.tokenizer import SPECIAL_TOKENS
from bertline.files import Json, read_json
from bertline.results.paths import HELD_OUT

SPLITS = ("train", HELD_OUT)
# Required keys of a card and of its parts, and their types; it has more, which are optional.
CARD_TYPES = {"fingerprint": str, "settings": dict, "corpora": list, "tokenizer": dict, "sequence_lengths": dict}
TOKENIZER_TYPES = {"file": str, "sha256": str, "vocab_size": int, "special_tokens": dict, "continuation_bitmap": str}
NAMES_OF_TYPES = {str: "a text", int: "a number", dict: "an object", list: "a list"}
MAX_DIGITS = 10  # of a sequence length
FILE_TYPES = {"file": str, "sha256": str, "samples": int, "tokens": int}


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
        raise _wrong(
            path, "tokenizer.continuation_bitmap", tokenizer["continuation_bitmap"], "one bit per id"
        ) from None
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


def check_belongs(path: Path, attributes: Mapping[str, Any], entry: Json, card: Json, sequence_length: int) -> None:
    """Check a file's attributes against the card and its entry there. Raises BertlineError if they differ."""
    expected = {
        "tokenizer_sha256": (card["tokenizer"]["sha256"], "was encoded with another tokenizer"),
        "fingerprint": (card["fingerprint"], "belongs to another dataset"),
        "sequence_length": (sequence_length, "is encoded for another sequence length"),
        "samples": (entry["samples"], "has another number of samples"),
        "tokens": (entry["tokens"], "has another number of tokens"),
    }
    for name, (value, problem) in expected.items():
        if attributes[name] != value:
            raise BertlineError(
                f"{path} {problem} than stated in its dataset.json ({attributes[name]} instead of {value}); "
                f"{remedy(card)}"
            )


def remedy(card: Json) -> str:
    """Return what to do about a file that is not as its dataset's card states."""
    return "import its files again" if "imported" in card else "delete it and run `snakemake encode`"


def continuation_bitmap(card: Json) -> np.ndarray:
    """Return which ids continue a word: bool [vocabulary]. In the card bit i is bit i % 8 of byte i // 8, as base64."""
    packed = np.frombuffer(base64.b64decode(card["tokenizer"]["continuation_bitmap"], validate=True), dtype=np.uint8)
    size = card["tokenizer"]["vocab_size"]
    if len(packed) != (size + 7) // 8:
        raise ValueError(f"{len(packed)} bytes for a vocabulary of {size}")
    return np.unpackbits(packed, count=size, bitorder="little").astype(bool)
