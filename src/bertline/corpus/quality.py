"""Published filters of low-quality documents, with the numbers of their authors.

- `gopher_quality`, `gopher_repetition`: Rae et al. 2021, "Scaling Language Models: Methods, Analysis & Insights from
  Training Gopher", section A.1.1 and table A1.
- `c4`: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.2, but for its list of bad words;
  with the lines on cookies and policies that its published code drops.
- `fineweb`: Penedo et al. 2024, "The FineWeb Datasets", section 3.6.

They are made for web pages with spaces between words. Words are separated by white space. In scripts without spaces,
each character with its marks counts as a part of a word: half a word for Han characters and kana, a third of a word for
Thai, Lao, Khmer and Burmese. The length of words is measured only where most words have spaces between them. Paragraphs
are lines, as in all documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import regex

SENTENCE_MARKS = (".", "!", "?", "…", "。", "！", "？", "।", "॥", "؟", "۔", "։", "။")
MIN_STOP_WORDS = 2
MIN_WORDS, MAX_WORDS = 50, 100_000
MIN_WORD_LENGTH, MAX_WORD_LENGTH = 3, 10
MAX_SYMBOLS = 0.1
MAX_BULLETS, MAX_ELLIPSES = 0.9, 0.3
MIN_WORDS_WITH_LETTERS = 0.8
BULLETS = ("•", "-", "‣", "◦", "▪")
ELLIPSES = ("...", "…")

MAX_REPEATED_LINES, MAX_REPEATED_LINE_CHARACTERS = 0.3, 0.2
MAX_IN_TOP_NGRAM = {2: 0.2, 3: 0.18, 4: 0.16}
MAX_IN_REPEATED_NGRAMS = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.1}

C4_ENDS = (*SENTENCE_MARKS, '"', "'", "”", "’", "»", "」", "』")
C4_MIN_WORDS_OF_LINE = 3
C4_MIN_SENTENCES = 5
C4_MAX_WORD_LENGTH = 1000
C4_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")

MIN_ENDED_LINES = 0.12
SHORT_LINE, MAX_SHORT_LINES = 30, 0.67
MAX_FINEWEB_REPEATED = 0.01
MAX_LINES_PER_WORD = 0.3

_HALVES, _THIRDS = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\uff70", r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_HALF, _THIRD = regex.compile(f"[{_HALVES}]"), regex.compile(f"[{_THIRDS}]")
_UNSPACED = regex.compile(f"[{_HALVES}{_THIRDS}]")
_WORD = regex.compile(rf"[{_HALVES}{_THIRDS}]\p{{M}}*+|[^\s{_HALVES}{_THIRDS}]+")
_MARKS = "".join(map(regex.escape, SENTENCE_MARKS))
_SENTENCE_END = regex.compile(rf"[{_MARKS}]+[\"'”’»)\]」』]*(?:\s|$)|[。！？]+[」』）”’]*")


class Words(NamedTuple):
    """The words of a text.

    Attributes:
        all: words in order; for scripts without spaces, their characters.
        number: of words; characters of scripts without spaces count as parts of a word.
        spaced: the words of scripts with spaces.
    """

    all: list[str]
    number: float
    spaced: list[str]


def words_of(text: str) -> Words:
    """Divide a text into words."""
    if text.isascii() or not _UNSPACED.search(text):
        found = text.split()
        return Words(found, len(found), found)
    found = _WORD.findall(text)
    spaced, number = [], 0.0
    for word in found:
        if _HALF.match(word):
            number += 1 / 2
        elif _THIRD.match(word):
            number += 1 / 3
        else:
            number += 1
            spaced.append(word)
    return Words(found, number, spaced)


def gopher_quality(text: str, stop_words: Sequence[str]) -> str | None:
    """Return why a document is dropped, or None.

    Reasons are `words`, `word_length`, `symbols`, `bullets`, `ellipses`, `letters`, `stop_words`.

    Args:
        stop_words: of its language, in lower case; an empty list turns this rule off.
    """
    words = words_of(text)
    # Marks alone are not words.
    number = words.number - sum(not any(map(str.isalnum, word)) for word in words.spaced)
    if not MIN_WORDS <= number <= MAX_WORDS:
        return "words"
    lengths = [len(word) for word in words.spaced if any(map(str.isalnum, word))]
    if 2 * len(lengths) > number and not MIN_WORD_LENGTH <= sum(lengths) / len(lengths) <= MAX_WORD_LENGTH:
        return "word_length"
    if max(text.count("#"), sum(map(text.count, ELLIPSES))) > MAX_SYMBOLS * words.number:
        return "symbols"
    lines = text.split("\n")
    if sum(line.startswith(BULLETS) for line in lines) > MAX_BULLETS * len(lines):
        return "bullets"
    if sum(line.endswith(ELLIPSES) for line in lines) > MAX_ELLIPSES * len(lines):
        return "ellipses"
    if sum(any(map(str.isalpha, word)) for word in words.all) < MIN_WORDS_WITH_LETTERS * len(words.all):
        return "letters"
    known = set(text.lower().split()) if stop_words else set()
    found = sum(word in known or (_UNSPACED.match(word) is not None and word in text) for word in stop_words)
    return "stop_words" if found < min(MIN_STOP_WORDS, len(stop_words)) else None


def gopher_repetition(text: str) -> str | None:
    """Return why a document is dropped: `lines`, `line_characters`, or `2_grams` to `10_grams`."""
    lines = text.split("\n")
    repeated, characters = _repeated(lines)
    if repeated > MAX_REPEATED_LINES * len(lines):
        return "lines"
    if characters > MAX_REPEATED_LINE_CHARACTERS * len(text):
        return "line_characters"
    words = words_of(text).all
    for length, share in MAX_IN_TOP_NGRAM.items():
        counts = Counter(zip(*(words[start:] for start in range(length)), strict=False))
        if counts:
            top, times = counts.most_common(1)[0]
            if times > 1 and times * (sum(map(len, top)) + length - 1) > share * len(text):
                return f"{length}_grams"
    for length, share in MAX_IN_REPEATED_NGRAMS.items():
        if _in_repeated_ngrams(words, length) > share * len(text):
            return f"{length}_grams"
    return None


def _repeated(lines: Sequence[str]) -> tuple[int, int]:
    """Return how many lines repeat an earlier one, and their characters."""
    again = Counter(lines)
    return sum(count - 1 for count in again.values()), sum((count - 1) * len(line) for line, count in again.items())


def _in_repeated_ngrams(words: Sequence[str], length: int) -> int:
    """Return the characters of n-grams that repeat an earlier one and do not overlap."""
    seen: set[tuple[str, ...]] = set()
    characters, at = 0, 0
    while at <= len(words) - length:
        ngram = tuple(words[at : at + length])
        if ngram in seen:
            characters += sum(map(len, ngram))
            at += length
        else:
            seen.add(ngram)
            at += 1
    return characters


def c4(text: str) -> tuple[str, str | None]:
    """Return the lines that are kept, and why the document is dropped: `lorem_ipsum`, `curly_bracket`, `sentences`."""
    lower = text.lower()
    if "lorem ipsum" in lower:
        return text, "lorem_ipsum"
    if "{" in text:
        return text, "curly_bracket"
    kept = [line for line in text.split("\n") if _is_kept_by_c4(line)]
    sentences = sum(max(1, len(_SENTENCE_END.findall(line))) for line in kept)
    return "\n".join(kept), "sentences" if sentences < C4_MIN_SENTENCES else None


def _is_kept_by_c4(line: str) -> bool:
    lower = line.lower()
    return (
        line.endswith(C4_ENDS)
        and not line.endswith(ELLIPSES)
        and words_of(line).number >= C4_MIN_WORDS_OF_LINE
        and max(map(len, line.split())) <= C4_MAX_WORD_LENGTH
        and "javascript" not in lower
        and not any(words in lower for words in C4_POLICIES)
    )


def fineweb(text: str) -> str | None:
    """Return why a document is dropped: `line_ends`, `short_lines`, `repeated_lines`, `list`."""
    lines = text.split("\n")
    if sum(line.endswith(SENTENCE_MARKS) for line in lines) < MIN_ENDED_LINES * len(lines):
        return "line_ends"
    if sum(len(line) <= SHORT_LINE for line in lines) > MAX_SHORT_LINES * len(lines):
        return "short_lines"
    if _repeated(lines)[1] > MAX_FINEWEB_REPEATED * (len(text) - len(lines) + 1):
        return "repeated_lines"
    return "list" if len(lines) - 1 > MAX_LINES_PER_WORD * words_of(text).number else None
