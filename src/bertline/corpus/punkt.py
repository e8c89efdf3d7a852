"""Sentence boundaries by a Punkt model: Kiss and Strunk, Unsupervised Multilingual Sentence Boundary Detection, 2006.

Written after NLTK 3.10's `nltk.tokenize.punkt` (Copyright NLTK Project, Apache License 2.0), and decides as it does,
which the tests compare. NLTK itself only trains models: its import takes 1.6 seconds of processor time, mostly for
scipy and scikit-learn, in each of a corpus's many jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from itertools import pairwise
from typing import Literal, NamedTuple

Kind = Literal["end", "abbreviation", "ellipsis", "other"]


class PunktModel(NamedTuple):
    """What Punkt learns of a language; the names are NLTK's.

    Attributes:
        abbrev_types: abbreviations, in lower case, without their full stop.
        collocations: pairs of words of which a full stop between is no end of a sentence.
        sent_starters: words that often begin sentences.
        ortho_context: in which positions and cases a word occurs: a sum of the `_BEGINS_...` below.
    """

    abbrev_types: Set[str]
    collocations: Set[tuple[str, str]]
    sent_starters: Set[str]
    ortho_context: Mapping[str, int]


_INNER_UPPER = 1 << 2
_UPPER = 1 << 1 | _INNER_UPPER | 1 << 3  # at the beginning of a sentence, inside, unknown
_BEGIN_LOWER = 1 << 4
_LOWER = _BEGIN_LOWER | 1 << 5 | 1 << 6

_NO_WORD = r"[)\";}\]*:@'({\[\u2018\u2019\u201c\u201d\xab\xbb?!]"
_REPEATED = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
_TOKEN = re.compile(
    rf"{_REPEATED}|(?=[^(\"`{{\[:;&#*@)}}\]\-,])\S+?(?=\s|$|{_NO_WORD}|{_REPEATED}|,(?=$|\s|{_NO_WORD}|{_REPEATED}))|\S"
)
_CANDIDATE = re.compile(rf"[.?!](?=(?P<after>{_NO_WORD}|\s+(?P<next>\S+)))")
_CLOSING = re.compile(r"[\"')\]}\u2018\u2019\u201c\u201d\xab\xbb]+?(?:\s+|(?=--)|$)", re.MULTILINE)
_ELLIPSIS = re.compile(r"\.\.+$")
_NUMBER = re.compile(r"^-?[.,]?\d[\d,.-]*\.?$")
_INITIAL = re.compile(r"[^\W\d]\.$")
_PUNCTUATION = (";", ":", ",", ".", "!", "?")
_SPACES = " \t\n\r\x0b\x0c"

# A word of at least two letters, so not an initial, its full stop, and a word of letters or a closing mark.
_PLAIN_CONTEXT = re.compile(r"([^\W\d_]{2,})([.?!])(?:\s+([^\W\d_]+),?|([\"')\]’”»]))")


def split_by_punkt(text: str, model: PunktModel) -> list[str]:
    """Return the sentences of a paragraph, with the closing quotes and brackets that follow their ends."""
    if "." not in text and "?" not in text and "!" not in text:
        return [text] if text else []
    borders = [(0, 0)]  # the end of a sentence, and the beginning of the next
    for match, context in _contexts(text):
        if _has_end(context, model):
            borders.append((match.end(), match.start("next") if match["next"] else match.end()))
    borders.append((len(text.rstrip()), len(text)))
    sentences, skipped = [], 0
    spans = [(start, end) for (_, start), (end, _) in pairwise(borders)]
    for (start, end), following in zip(spans, [*spans[1:], None], strict=True):
        start += skipped
        skipped = 0
        if following and (closing := _CLOSING.match(text[following[0] : following[1]])):
            end, skipped = following[0] + len(closing[0].rstrip()), closing.end()
            sentences.append(text[start:end])
        elif start < end:
            sentences.append(text[start:end])
    return sentences


def _contexts(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each candidate for an end, the last of those within a word, with its word and what follows."""
    previous: re.Match[str] | None = None
    word_start = word_end = 0
    for match in _CANDIDATE.finditer(text):
        before = text[word_end : match.start()]
        space = max(map(before.rfind, _SPACES))
        start = word_end + space + 1 if space > 0 else word_start
        if previous and word_end <= start:
            yield previous, text[word_start:word_end] + previous[0] + previous["after"]
        previous, word_start, word_end = match, start, match.start()
    if previous:
        yield previous, text[word_start:word_end] + previous[0] + previous["after"]


def _has_end(context: str, model: PunktModel) -> bool:
    """Return whether a sentence ends within a context. For two plain words Punkt only uses its lists."""
    match = _PLAIN_CONTEXT.fullmatch(context)
    if match:
        word, mark, following, closing = match.groups()
        if mark != ".":
            return True
        word = word.lower()
        if word not in model.abbrev_types:
            return (word, closing or following.lower()) not in model.collocations
    tokens = _TOKEN.findall(context)
    return any(_ends(token, following, model) for token, following in pairwise(tokens))


def _kind(token: str, model: PunktModel) -> Kind:
    """Return what a token is by itself: the paper's type-based classification, section 3."""
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
    kind = _kind(token, model)
    if not token.endswith("."):
        return kind == "end"
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
