"""BERT's normalizer: what is removed from a text or altered before it is divided into words."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, normalizers

from bertline.files import Json

# The zero-width non-joiner and joiner: parts of the spelling in Persian and in many scripts of India. Google's
# normalizer removes them with all control characters.
JOINERS = "\u200c\u200d"
# All other characters that it removes: controls and formats of Unicode 8, and those for private use. Documents have no
# or few of them, see `corpus.documents`, but texts of a task may have any. A class for this library's regular
# expressions and for Python's.
REMOVED = (
    "[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b\u200e-\u200f"
    "\u202a-\u202e\u2060-\u2064\u2066-\u206f\ue000-\uf8ff\ufeff\ufff9-\ufffb\ufffd\U000110bd"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f\U000f0000-\U000ffffd"
    "\U00100000-\U0010fffd]"
)


def bert_normalizer(
    lowercase: bool,
    *,
    handle_chinese_chars: bool = True,
    strip_accents: bool | None = None,
    joiners: bool = False,
) -> normalizers.Normalizer:
    """Return Google's normalizer: no control characters, spaces around Chinese characters, no accents if lowercase.

    `strip_accents` None is `lowercase`, as in Google's BERT. Stripping removes every mark of Unicode's category Mn: the
    accents of Latin letters, but vowels of Thai and Hindi as well, and it decomposes the syllables of Korean. With
    `joiners`, JOINERS stay.
    """
    bert = normalizers.BertNormalizer(
        clean_text=not joiners,
        handle_chinese_chars=handle_chinese_chars,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    return normalizers.Sequence([normalizers.Replace(Regex(REMOVED), ""), bert]) if joiners else bert


def strips_accents(tokenizer: Tokenizer) -> bool:
    """Return whether the tokenizer's normalizer removes accents."""
    parts = list(_parts(_description(tokenizer)))
    bert = [part for part in parts if part.get("type") == "BertNormalizer"]
    chosen = [part["lowercase"] if part["strip_accents"] is None else part["strip_accents"] for part in bert]
    return any(chosen) or any(part.get("type") == "StripAccents" for part in parts)


def removes_joiners(tokenizer: Tokenizer) -> bool:
    """Return whether the tokenizer's normalizer removes JOINERS."""
    return any(part.get("clean_text") for part in _parts(_description(tokenizer)))


def bert_part(normalizer: Json | None) -> Json | None:
    """Return the description of a normalizer without the step that `joiners` adds, or as it is."""
    parts = list(_parts(normalizer))
    is_ours = len(parts) == 2 and parts[0] == {"type": "Replace", "pattern": {"Regex": REMOVED}, "content": ""}
    return parts[1] if is_ours else normalizer


def settings_of(tokenizer: Tokenizer) -> Json:
    """Return the description of the tokenizer's BertNormalizer."""
    return bert_part(_description(tokenizer)) or {}


def bert_normalizer_of(tokenizer: Tokenizer) -> normalizers.BertNormalizer | None:
    """Return the BertNormalizer of a normalizer with `joiners`: the same for text without REMOVED. None for others."""
    given = _description(tokenizer)
    bert = bert_part(given)
    if bert is None or bert is given:
        return None
    return normalizers.BertNormalizer(**{key: value for key, value in bert.items() if key != "type"})


def _description(tokenizer: Tokenizer) -> Json | None:
    found: Json | None = json.loads(tokenizer.to_str())["normalizer"]
    return found


def _parts(normalizer: Json | None) -> Iterator[Json]:
    if normalizer is not None:
        yield from normalizer["normalizers"] if normalizer.get("type") == "Sequence" else [normalizer]
