"""Sentence boundaries by a Punkt model: Kiss and Strunk, Unsupervised Multilingual Sentence Boundary Detection, 2006.

This code follows NLTK 3.10's `nltk.tokenize.punkt` (Copyright NLTK Project, Apache License 2.0) and makes the same
decisions, which the tests compare. NLTK itself only trains models, because its import takes 1.6 seconds of processor
time, mostly for scipy and scikit-learn, and a corpus has many jobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

Kind = Literal["end", "abbreviation", "ellipsis", "other"]


@dataclass(frozen=True)
class PunktModel:
    """Parameters that Punkt learns from a text, under NLTK's names.

    Attributes:
        abbrev_types: abbreviations, in lower case, without their full stop.
        collocations: pairs of words between which a full stop does not end a sentence.
        sent_starters: words that often begin sentences.
        ortho_context: in which positions and cases a word occurs: a sum of the `_BEGINS_...` below.
    """

    abbrev_types: Set[str]
    collocations: Set[tuple[str, str]]
    sent_starters: Set[str]
    ortho_context: Mapping[str, int]

    @cached_property
    def exceptions(self) -> Set[str]:
        """The words after which a full stop may not end a sentence, in lower case."""
        return self.abbrev_types | {first for first, _ in self.collocations}


_INNER_UPPER = 1 << 2
_UPPER = 1 << 1 | _INNER_UPPER | 1 << 3  # at the beginning of a sentence, inside, unknown
_BEGIN_LOWER = 1 << 4
_LOWER = _BEGIN_LOWER | 1 << 5 | 1 << 6

_NO_WORD = r"[)\";}\]*:@'({\[\u2018\u2019\u201c\u201d\xab\xbb?!]"
_REPEATED = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
_TOKEN = re.compile(
    rf"{_REPEATED}|(?=[^(\"`{{\[:;&#*@)}}\]\-,])\S+?(?=\s|$|{_NO_WORD}|{_REPEATED}|,(?=$|\s|{_NO_WORD}|{_REPEATED}))|\S"
)
_CANDIDATE = re.compile(rf"[.?!](?=\s|{_NO_WORD})")
_CLOSING = re.compile(r"[\"')\]}\u2018\u2019\u201c\u201d\xab\xbb]+?(?:\s+|(?=--)|$)")
_ELLIPSIS = re.compile(r"\.\.+$")
_NUMBER = re.compile(r"^-?[.,]?\d[\d,.-]*\.?$")
_INITIAL = re.compile(r"[^\W\d]\.$")
_PUNCTUATION = (";", ":", ",", ".", "!", "?")


def split_by_punkt(text: str, model: PunktModel) -> list[str]:
    """Return the sentences of a tidy paragraph, with the closing quotes and brackets that follow their ends."""
    sentences, start = [], 0
    for end in _ends_of_sentences(text, model):
        following = end + 1 if text[end] == " " else end
        closing = _CLOSING.match(text, following)
        if closing:
            end, following = following + len(closing[0].rstrip()), closing.end()
        if start < end:
            sentences.append(text[start:end])
        start = following
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _ends_of_sentences(text: str, model: PunktModel) -> list[int]:
    """Return the positions after the marks that end a sentence, without the text's last."""
    ends = []
    # Inside a word, only the last candidate counts, and one at the beginning of the word.
    waiting = -1
    for match in _CANDIDATE.finditer(text):
        mark = match.start()
        if waiting >= 0 and (waiting == 0 or " " in text[waiting - 1 : mark]) and _is_end(text, waiting, model):
            ends.append(waiting + 1)
        waiting = -1
        if text[mark + 1] != " ":
            waiting = mark
        elif _is_end(text, mark, model):
            ends.append(mark + 1)
    if waiting >= 0 and _is_end(text, waiting, model):
        ends.append(waiting + 1)
    return ends


def _is_end(text: str, mark: int, model: PunktModel) -> bool:
    """Return whether the mark at a position, the last candidate of its word, ends a sentence."""
    # A question or exclamation mark is a token of its own, which always ends one.
    if text[mark] != ".":
        return True
    word = text[text.rfind(" ", 0, mark) + 1 : mark]
    # An initial is a single letter.
    if word.isalpha() and len(word) > 1 and word.lower() not in model.exceptions:
        return True
    after = mark + 1
    if text[after] == " ":
        after = text.find(" ", mark + 2)
        context = f"{word}{text[mark:after]}" if after >= 0 else f"{word}{text[mark:]}"
    else:
        context = f"{word}.{text[after]}"
    return any(_ends(token, following, model) for token, following in pairwise(_TOKEN.findall(context)))


def _kind(token: str, model: PunktModel) -> Kind:
    """Return the kind of a token by itself: the paper's type-based classification, section 3."""
    if token in (".", "?", "!"):
        return "end"
    if _ELLIPSIS.match(token):
        return "ellipsis"
    if not token.endswith(".") or token.endswith(".."):
        return "other"
    word = token[:-1].lower()
    is_known = word in model.abbrev_types or word.rpartition("-")[2] in model.abbrev_types
    return "abbreviation" if is_known else "end"


def _ends(token: str, following: str, model: PunktModel) -> bool:
    """Return whether a token ends a sentence before the following one: token-based classification, section 4."""
    if not token.endswith("."):
        return token in ("?", "!")
    kind = _kind(token, model)
    word = _without_full_stop(_type(token))
    next_word = _type(following)
    if _kind(following, model) == "end":
        next_word = _without_full_stop(next_word)
    if (word, next_word) in model.collocations:
        return False
    is_initial = _INITIAL.match(token) is not None
    begins = _begins_sentence(following, next_word, model)
    if (
        kind in ("abbreviation", "ellipsis")
        and not is_initial
        and (begins or (following[0].isupper() and next_word in model.sent_starters))
    ):
        return True
    if is_initial or word == "##number##":
        if begins is False:
            return False
        if begins is None and is_initial and following[0].isupper():
            return bool(model.ortho_context.get(next_word, 0) & _LOWER) and kind == "end"
    return kind == "end"


def _begins_sentence(token: str, word: str, model: PunktModel) -> bool | None:
    """Return whether a token begins a sentence by its case, None if that is unknown: section 4.1.1."""
    if token in _PUNCTUATION:
        return False
    context = model.ortho_context.get(word, 0)
    if token[0].isupper() and context & _LOWER and not context & _INNER_UPPER:
        return True
    if token[0].islower() and (context & _UPPER or not context & _BEGIN_LOWER):
        return False
    return None


def _type(token: str) -> str:
    return _NUMBER.sub("##number##", token.lower())


def _without_full_stop(word: str) -> str:
    return word[:-1] if len(word) > 1 and word.endswith(".") else word
