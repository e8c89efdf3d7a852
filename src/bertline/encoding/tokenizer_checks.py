"""Checks of a tokenizer.json that another program wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

from bertline.console import BertlineError
from bertline.encoding.normalizer import bert_part

CONTINUATION_PREFIX = "##"  # in WordPiece
BEGIN_OF_WORD = "▁"  # in Unigram; it represents a space
# They change single characters, or characters with their combining marks: never across a space.
NORMALIZERS = ("BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD")


def check_template(processor: Any, vocabulary: Mapping[str, int], path: Path | str) -> None:
    """Raise BertlineError for a template's special token that is not there, for which the library panics."""
    for part in (processor or {}).get("processors", []):
        check_template(part, vocabulary, path)
    known = (processor or {}).get("special_tokens", {})
    for name, token in known.items() if isinstance(known, dict) else ():
        if token["ids"] != [vocabulary.get(one) for one in token["tokens"]]:
            raise BertlineError(f"{path}: its template gives {name} other ids than the vocabulary; correct them")
    for template in ("single", "pair"):
        for piece in (processor or {}).get(template, []):
            name = piece["SpecialToken"]["id"] if "SpecialToken" in piece else None
            if name is not None and name not in known:
                raise BertlineError(f"{path}: its template names {name[:80]!r}, which is not in special_tokens; add it")


def check_kind(description: Any, path: Path | str) -> None:
    """Raise BertlineError unless it describes BERT's WordPiece, byte-level BPE or Unigram."""
    checks = {"BPE": _check_byte_level, "Unigram": _check_unigram}
    checks.get(description["model"].get("type"), _check_bert)(description, path)


def _check_bert(description: Any, path: Path | str) -> None:
    description = description | {"normalizer": bert_part(description.get("normalizer"))}
    for part, kind in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer"), ("model", "WordPiece")):
        given = (description.get(part) or {}).get("type")
        if given != kind:
            raise BertlineError(
                f"{path}: its {part} is {given}; name a tokenizer of BERT's kind, whose is {kind}, or byte-level BPE"
            )
    if (unknown := description["model"].get("unk_token")) != "[UNK]":
        raise BertlineError(f"{path}: its unk_token is {unknown}, not [UNK]; name another")
    if description["model"].get("continuing_subword_prefix") != CONTINUATION_PREFIX:
        raise BertlineError(
            f"{path}: its words do not continue with '{CONTINUATION_PREFIX}', as BERT's do; name another"
        )


def _check_byte_level(description: Any, path: Path | str) -> None:
    pre_tokenizer, model = description.get("pre_tokenizer") or {}, description["model"]
    if pre_tokenizer.get("type") != "ByteLevel" or not pre_tokenizer.get("use_regex", True):
        given = pre_tokenizer.get("type")
        raise BertlineError(f"{path}: its pre_tokenizer is {given}; BPE has to be byte-level, with GPT-2's expression")
    normalizer = bert_part(description.get("normalizer")) or {"type": "Sequence", "normalizers": []}
    for part in normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]:
        if part["type"] not in NORMALIZERS:
            raise BertlineError(f"{path}: its normalizer is {part['type']}, allowed are {', '.join(NORMALIZERS)}")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise BertlineError(f"{path}: its model sets {option}, which byte-level BPE does not have; remove it")
    missing = [symbol for symbol in pre_tokenizers.ByteLevel.alphabet() if symbol not in model["vocab"]]
    if missing:
        raise BertlineError(f"{path}: its vocabulary lacks {len(missing)} of the 256 bytes; text would get lost")


def _check_unigram(description: Any, path: Path | str) -> None:
    steps = (description.get("pre_tokenizer") or {}).get("pretokenizers", [])
    metaspace = {"type": "Metaspace", "replacement": BEGIN_OF_WORD, "prepend_scheme": "always"}
    kinds = [step["type"] for step in steps[:2]]
    if kinds != ["WhitespaceSplit", "Metaspace"] or not metaspace.items() <= steps[1].items():
        raise BertlineError(
            f"{path}: its pre_tokenizer does not begin with WhitespaceSplit and Metaspace, which puts '{BEGIN_OF_WORD}'"
            " before every word, as XLM-R's does; name another"
        )
    for step in steps[2:]:
        if _removes_text(step):
            raise BertlineError(
                f"{path}: its pre_tokenizer removes text in the step {step['type']}; give it another behavior"
            )
    pieces, unknown = [piece for piece, _ in description["model"]["vocab"]], description["model"].get("unk_id")
    if unknown is None:
        raise BertlineError(f"{path}: its model has no unk_id; text would get lost")
    name = "[UNK]" if "[CLS]" in pieces else "<unk>"
    if pieces[unknown] != name:
        raise BertlineError(f"{path}: its unk_id is that of {pieces[unknown][:80]!r}, not of {name}; name another")


def _removes_text(step: Any) -> bool:
    """Return whether a step of a pre-tokenizer can remove other characters than white space."""
    if step["type"] == "Sequence":
        return any(map(_removes_text, step["pretokenizers"]))
    if step["type"] == "CharDelimiterSplit":
        return not step["delimiter"].isspace()
    if step.get("behavior") != "Removed":
        return False
    pattern = step.get("pattern", {})  # none: punctuation
    is_space = pattern.get("String", "").isspace() or pattern.get("Regex") in (r"\s", r"\s+")
    return not is_space or step["invert"]
