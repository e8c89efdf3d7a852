"""Published filters of low-quality documents, with the numbers of their authors.

- `gopher_quality`, `gopher_repetition`: Rae et al. 2021, "Scaling Language Models: Methods, Analysis & Insights from
  Training Gopher", section A.1.1 and table A1.
- `c4`: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.2 of the final text, with the markers
  of citations and the lines on policies that its published code removes. Its list of bad words, its langdetect and its
  removal of repeated spans of three sentences are left out. (In the first preprint a line has three words, a page five
  sentences.)
- `fineweb`: Penedo et al. 2024, "The FineWeb Datasets", section 3.6, with what its code has otherwise: at most 0.01 of
  the characters in repeated lines, for 0.1 in the text; quotation marks that end lines; and the rule on new lines.

They are made for web pages with spaces between words. Words are separated by white space. In scripts without spaces,
each character with its marks counts as a part of a word: half a word for Han characters and kana, a third of a word for
Thai, Lao, Khmer and Burmese. The length of words is measured only where most words have spaces between them. Paragraphs
are lines, as in all documents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import regex

from bertline.console import BertlineError
from bertline.corpus.documents import tidy
from bertline.corpus.pieces import pieces_of

Numbers = npt.NDArray[np.signedinteger[Any]]

# Words are found in pieces of a text, so that a list of strings is short.
PIECE_CHARACTERS = 1 << 18

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

# May end a line, too; among them those that close quotations in German, Danish and Japanese.
QUOTES = ('"', "'", "”", "’", "»", "›", "“", "‘", "«", "‹", "」", "』")
C4_MIN_WORDS_OF_LINE = 5
C4_MIN_SENTENCES = 3
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
# The sentence marks of all scripts: Unicode Standard Annex #29, section 5.
_MARK = regex.compile(r"[\p{SB=STerm}\p{SB=ATerm}…]")
# Their code's: of Wikipedia and its mirrors.
_CITATION = regex.compile(r"\[(?:\d*|edit|citation needed)\]")
_SENTENCE_END = regex.compile(rf"{_MARK.pattern}+[{''.join(QUOTES)})\]]*(?:\s|$)|[。！？｡]+[」』）”’]*")


class Words(NamedTuple):
    """The words of a text.

    Attributes:
        counts: how often each word occurs; for scripts without spaces, each character with its marks.
        number: of words; characters of scripts without spaces count as parts of a word. A sum of floats.
    """

    counts: Counter[str]
    number: float

    @property
    def sixths(self) -> int:
        """The number of words in sixths of a word: exact, so that 15 characters of Thai are not less than 5 words."""
        return round(6 * self.number)


def words_of(text: str) -> Words:
    """Count the words of a text."""
    counts: Counter[str] = Counter()
    number = 0.0
    for words, is_spaced in _divide(text):
        counts.update(words)
        if is_spaced:
            number += len(words)
            continue
        for word in words:
            number += 1 / 2 if _HALF.match(word) else 1 / 3 if _THIRD.match(word) else 1
    return Words(counts, number)


def _divide(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of a text in order, of one piece at a time, and whether all have spaces between them."""
    is_spaced = text.isascii() or not _UNSPACED.search(text)
    for piece in pieces_of(text, PIECE_CHARACTERS):
        yield piece.split() if is_spaced else _WORD.findall(piece), is_spaced


def gopher_quality(text: str, stop_words: Sequence[str]) -> str | None:
    """Return why a document is dropped, or None.

    Reasons are `words`, `word_length`, `symbols`, `bullets`, `ellipses`, `letters`, `stop_words`.

    Args:
        stop_words: of its language; an empty list turns this rule off.

    Raises BertlineError for a stop word with white space.
    """
    stop_words = comparable_stop_words(tuple(stop_words))
    words = words_of(text)
    spaced = {word: times for word, times in words.counts.items() if not _UNSPACED.match(word)}
    of_letters = {word: times for word, times in spaced.items() if any(map(str.isalnum, word))}
    found = sum(of_letters.values())
    # Marks alone are not words. Not in sixths: at exact limits, the last bit has decided on finished corpora of Thai.
    number = words.number - (sum(spaced.values()) - found)
    if not MIN_WORDS <= number <= MAX_WORDS:
        return "words"
    if 2 * found > number:
        characters = sum(len(word) * times for word, times in of_letters.items())
        if not MIN_WORD_LENGTH <= characters / found <= MAX_WORD_LENGTH:
            return "word_length"
    if max(text.count("#"), sum(map(text.count, ELLIPSES))) > MAX_SYMBOLS * words.number:
        return "symbols"
    lines = text.split("\n")
    if sum(line.startswith(BULLETS) for line in lines) > MAX_BULLETS * len(lines):
        return "bullets"
    if sum(line.endswith(ELLIPSES) for line in lines) > MAX_ELLIPSES * len(lines):
        return "ellipses"
    with_letters = sum(times for word, times in words.counts.items() if any(map(str.isalpha, word)))
    if with_letters < MIN_WORDS_WITH_LETTERS * words.counts.total():
        return "letters"
    lower = text.lower() if stop_words else ""
    known = set(lower.split())
    present = sum(word in known or (_UNSPACED.match(word) is not None and word in lower) for word in stop_words)
    return "stop_words" if present < min(MIN_STOP_WORDS, len(stop_words)) else None


@lru_cache
def comparable_stop_words(stop_words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stop words as they are in a document's text in lower case, each once."""
    for word in stop_words:
        if len(tidy(word).split()) != 1:
            raise BertlineError(f"stop_words: given {word!r}, which is not one word; give words without white space")
    return tuple(dict.fromkeys(tidy(word).lower() for word in stop_words))


def gopher_repetition(text: str) -> str | None:
    """Return why a document is dropped: `lines`, `line_characters`, or `2_grams` to `10_grams`."""
    lines = text.split("\n")
    repeated, characters = _repeated(lines)
    if repeated > MAX_REPEATED_LINES * len(lines):
        return "lines"
    if characters > MAX_REPEATED_LINE_CHARACTERS * len(text):
        return "line_characters"
    words, lengths, spaces = _number_words(text)
    ngrams = words  # their numbers, by the position of their first word
    for length in range(2, max(MAX_IN_REPEATED_NGRAMS) + 1):
        ngrams, times, first = _number_ngrams(ngrams[:-1], words[length - 1 :])
        if times.max(initial=0) <= 1:
            break  # nor does a longer one repeat
        if share := MAX_IN_TOP_NGRAM.get(length):
            top = np.flatnonzero(times == times.max())
            start = first[top].min()
            size = lengths[start : start + length].sum() + spaces[start : start + length - 1].sum()
            if times[top[0]] * size > share * len(text):
                return f"{length}_grams"
        if share := MAX_IN_REPEATED_NGRAMS.get(length):
            most = share * len(text)
            if _in_repeated_ngrams(ngrams, times, lengths, length) > most:
                return f"{length}_grams"
    return None


def _number_words(text: str) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Number the words of a text by their first occurrence.

    Returns:
        For each word its number, its length, and whether a space is between it and the next: if both have spaces.
    """
    numbers: dict[str, int] = {}
    pieces = [
        np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), np.int32, len(words))
        for words, _ in _divide(text)
    ]
    words = np.concatenate([np.empty(0, dtype=np.int32), *pieces])
    lengths = np.fromiter(map(len, numbers), np.int32, len(numbers))
    is_spaced = np.fromiter((not _UNSPACED.match(word) for word in numbers), np.bool_, len(numbers))
    return words, lengths[words], is_spaced[words[:-1]] & is_spaced[words[1:]]


def _number_ngrams(before: Numbers, last: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Number n-grams by the n-gram without the last word, and the last word.

    Returns:
        The number of the n-gram at each position; and by number, how often it occurs, and its first position.
    """
    pairs = before.astype(np.int64) << 32 | last
    order = np.argsort(pairs, kind="stable")
    pairs = pairs[order]
    is_new = np.concatenate([[True], pairs[1:] != pairs[:-1]])[: len(pairs)]
    starts = np.flatnonzero(is_new)
    numbers = np.empty(len(pairs), dtype=np.int32)
    numbers[order] = np.cumsum(is_new, dtype=np.int32) - 1
    return numbers, np.diff(starts, append=len(pairs)), order[starts]


def _repeated(lines: Sequence[str]) -> tuple[int, int]:
    """Return how many lines repeat an earlier one, and their characters."""
    again = Counter(lines)
    return sum(count - 1 for count in again.values()), sum((count - 1) * len(line) for line, count in again.items())


def _in_repeated_ngrams(ngrams: Numbers, times: Numbers, lengths: Numbers, length: int) -> int:
    """Return the characters of n-grams that repeat an earlier one and do not overlap."""
    repeated = np.flatnonzero(times[ngrams] > 1)
    sizes = np.convolve(lengths, np.ones(length, dtype=np.int32), "valid")[repeated]
    seen = bytearray(len(times))
    characters, end = 0, 0
    of_repeated = repeated.data, ngrams[repeated].data, sizes.data  # yield Python's integers one by one
    for at, ngram, size in zip(*of_repeated, strict=True):
        if at < end:
            continue
        if seen[ngram]:
            characters += size
            end = at + length
        else:
            seen[ngram] = True
    return characters


def c4(text: str) -> tuple[str, str | None]:
    """Return the lines that are kept, without markers of citations, and why the document is dropped.

    Reasons are `lorem_ipsum`, `curly_bracket`, `sentences`.
    """
    lower = text.lower()
    if "lorem ipsum" in lower:
        return text, "lorem_ipsum"
    if "{" in text:
        return text, "curly_bracket"
    lines = text.split("\n")
    if "[" in text:
        lines = [tidy(_CITATION.sub("", line)) if "[" in line else line for line in lines]
    kept = [line for line in lines if _is_kept_by_c4(line)]
    sentences = sum(max(1, len(_SENTENCE_END.findall(line))) for line in kept)
    return "\n".join(kept), "sentences" if sentences < C4_MIN_SENTENCES else None


def _is_kept_by_c4(line: str) -> bool:
    if not _is_ended(line) or line.endswith(ELLIPSES):
        return False
    lower, words = line.lower(), words_of(line)
    return (
        words.sixths >= 6 * C4_MIN_WORDS_OF_LINE
        and max(map(len, words.counts)) <= C4_MAX_WORD_LENGTH
        and "javascript" not in lower
        and not any(policy in lower for policy in C4_POLICIES)
    )


def _is_ended(line: str) -> bool:
    return _MARK.match(line[-1:]) is not None or line.endswith(QUOTES)


def fineweb(text: str) -> str | None:
    """Return why a document is dropped: `line_ends`, `short_lines`, `repeated_lines`, `list`."""
    lines = text.split("\n")
    if sum(map(_is_ended, lines)) <= MIN_ENDED_LINES * len(lines):
        return "line_ends"
    if sum(len(line) <= SHORT_LINE for line in lines) >= MAX_SHORT_LINES * len(lines):
        return "short_lines"
    if _repeated(lines)[1] >= MAX_FINEWEB_REPEATED * (len(text) - len(lines) + 1):
        return "repeated_lines"
    return "list" if 6 * (len(lines) - 1) > MAX_LINES_PER_WORD * words_of(text).sixths else None
