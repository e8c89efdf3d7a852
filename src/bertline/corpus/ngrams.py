"""Sequences of n words, by which the similarity of texts is measured.

A word is a run of letters, digits, underscores and the marks that combine with them (as in Hindi, or in Hebrew and
Arabic with vowels), in lower case: `\\w` of Unicode Technical Standard #18, annex C. Punctuation, white space and
paragraph boundaries are ignored.

In scripts without spaces, words cannot be found without a dictionary, and a character is much less than a word: a
sequence of 13 characters is a common phrase. Two Han characters or kana count as a word. In Thai, Lao, Khmer and
Burmese, three characters with their marks do, about as many as a word has: the 1000 sentences of the parallel treebanks
PUD have 18,000 words in German, and 74,000 such characters in Thai.

A hash of 64 bits represents a sequence: it is computed from the hashes of its words, which are computed from their
characters. Both are polynomials with random odd bases, taken from running sums, so that a text takes a few array
operations, and no word is copied to a string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import regex

from bertline.corpus.pieces import pieces_of
from bertline.splitmix import GOLDEN, finalize

Hashes = npt.NDArray[np.uint64]
T = TypeVar("T")
Places = npt.NDArray[np.int64]

_PAIRS = r"[\p{Han}\p{Hiragana}\p{Katakana}\u30fc\uff70]"  # the last two, long vowels, belong to several scripts
_TRIPLES = r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
# What a character is: nothing, part of a word, or of one of these scripts, and whether it is a mark.
_OF_WORD, _PAIRED, _TRIPLED, _SCRIPT, _MARK = 1, 2, 3, 3, 4
_SIXTHS = np.array([0, 6, 3, 2])  # of a word, that a unit of each kind counts as
_ASSIGNED = (range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE1000))  # no other code point is part of a word
# Long documents are read in pieces, whose arrays fit into the processor's cache.
PIECE_CHARACTERS = 1 << 16
_BASE = GOLDEN


def ngram_hashes(text: str, length: int) -> Iterator[Hashes]:
    """Yield the hashes of all sequences of `length` words of a text, in order and in blocks.

    A text of fewer words has none. One sequence begins at each word, or character of a script without spaces, and is
    the shortest of at least `length` words.
    """
    units, sixths = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    for piece in pieces_of(text, PIECE_CHARACTERS):
        codes = np.frombuffer(piece.lower().encode("utf-32-le", "surrogatepass"), dtype="<u4")
        kinds = _kinds()[codes]
        starts, ends = _units(kinds)
        units = np.concatenate([units, _hash_runs(codes.astype(np.uint64), starts, ends)])
        sixths = np.concatenate([sixths, _SIXTHS[kinds[starts] & _SCRIPT]])
        ends = _ends_of_sequences(sixths, length)
        ends = ends[ends <= len(units)]
        yield _hash_runs(units, np.arange(len(ends)), ends)
        units, sixths = units[len(ends) :], sixths[len(ends) :]


def in_groups(texts: Iterable[T], length: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield successive texts, together as many as a piece can hold, and a longer one alone."""
    group: list[T] = []
    size = 0
    for text in texts:
        size += length(text)
        if group and size > PIECE_CHARACTERS:
            yield group
            group, size = [], length(text)
        group.append(text)
    if group:
        yield group


def ngram_hashes_of(texts: Sequence[str], length: int) -> tuple[Hashes, Places]:
    """Return the hashes of all sequences of `length` words of several short texts, and how many each text has.

    They are those of `ngram_hashes`. Texts of ordinary length take a third of the time, most of which is that of calls.
    """
    lowered = [text.lower() for text in texts]
    # A line feed is no part of a word, and no mark combines with it: the texts are read as if each were alone.
    codes = np.frombuffer("\n".join(lowered).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kinds = _kinds()[codes]
    starts, ends = _units(kinds)
    units = _hash_runs(codes.astype(np.uint64), starts, ends)
    ends_of_texts = np.cumsum([len(text) + 1 for text in lowered])
    units_before = np.searchsorted(starts, ends_of_texts)  # and in each text
    text_of = np.repeat(np.arange(len(texts)), np.diff(units_before, prepend=0))
    ends = _ends_of_sequences(_SIXTHS[kinds[starts] & _SCRIPT], length)
    is_within = ends <= units_before[text_of]
    hashes = _hash_runs(units, np.flatnonzero(is_within), ends[is_within])
    return hashes, np.bincount(text_of[is_within], minlength=len(texts))


def _ends_of_sequences(sixths: Places, length: int) -> Places:
    """Return where the sequence that begins at each unit ends; beyond the last unit if the text ends before it."""
    word = _SIXTHS[_OF_WORD]
    if (sixths == word).all():
        return np.arange(length, length + len(sixths))
    positions = np.concatenate([[0], np.cumsum(sixths)])
    return np.searchsorted(positions, positions[:-1] + length * word)


def _units(kinds: npt.NDArray[np.uint8]) -> tuple[Places, Places]:
    """Return where the words, or the characters of a script without spaces, with their marks, begin and end."""
    script = kinds & _SCRIPT
    if script.max(initial=0) <= _OF_WORD:
        borders = np.flatnonzero(np.diff(script, prepend=0, append=0))
        return borders[::2], borders[1::2]
    numbers = np.arange(len(kinds))
    is_mark, is_unspaced = kinds >= _MARK, script > _OF_WORD
    # Marks belong to the character without spaces before them; after another one, such a script's own mark begins one.
    base = np.maximum.accumulate(np.where(is_mark, -1, numbers))
    own_mark = np.maximum.accumulate(np.where(is_mark & is_unspaced, numbers, -1))
    own_mark_before = np.concatenate([[-1], own_mark[:-1]])
    is_attached = is_mark & ((is_unspaced[base] & (base >= 0)) | (own_mark_before > base))
    is_of_word = (script == _OF_WORD) & ~is_attached
    begins = is_unspaced & ~is_attached
    begins |= is_of_word & ~np.concatenate([[False], is_of_word[:-1]])
    borders = np.append(np.flatnonzero(begins | (script == 0)), len(kinds))
    starts = np.flatnonzero(begins)
    return starts, borders[np.searchsorted(borders, starts) + 1]


def _hash_runs(values: Hashes, starts: Places, ends: Places) -> Hashes:
    """Return a hash of each run `values[start:end]`, the same wherever it is and on every machine."""
    powers, inverses = _powers(1 << max(0, len(values) - 1).bit_length())
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values * powers[: len(values)], out=sums[1:])
    hashes: Hashes = (sums[ends] - sums[starts]) * inverses[starts]
    return finalize(hashes)  # a polynomial's lowest bits depend on those of the values only


@cache
def _powers(number: int) -> tuple[Hashes, Hashes]:
    """Return the first powers of the base, and of its inverse, modulo 2**64."""
    first, second = (
        np.concatenate([np.ones(1, np.uint64), np.cumprod(np.full(number - 1, base, dtype=np.uint64))])
        for base in (_BASE, pow(_BASE, -1, 1 << 64))
    )
    return first, second


@cache
def _kinds() -> npt.NDArray[np.uint8]:
    """Return the kind of each code point."""
    codes = np.concatenate([np.arange(assigned.start, assigned.stop) for assigned in _ASSIGNED])
    characters = codes.astype("<u4").tobytes().decode("utf-32-le")
    kinds = np.zeros(0x110000, dtype=np.uint8)

    def codes_of(pattern: str) -> Places:
        runs = [match.span() for match in regex.finditer(f"{pattern}+", characters, regex.VERSION1)]
        return np.concatenate([codes[start:end] for start, end in runs])

    kinds[codes_of(r"\w")] = _OF_WORD
    for script, kind in ((_PAIRS, _PAIRED), (_TRIPLES, _TRIPLED)):
        kinds[codes_of(rf"[\w&&{script}]")] = kind
    kinds[codes_of(r"\p{M}")] |= _MARK
    return kinds
