"""Sequences of n words, by which the similarity of texts is measured.

A word is a run of letters, digits, underscores and the marks that combine with them (as in Hindi, or in Hebrew and
Arabic with vowels), in lower case: `\\w` of Unicode Technical Standard #18, annex C. Punctuation, white space and
paragraph boundaries are ignored.

Scripts written without spaces have no words to be found without a dictionary, and a character is much less than a word:
a sequence of 13 characters is a common phrase. Two Han characters or kana count as a word, and three characters with
their marks in Thai, Lao, Khmer and Burmese, about as many as a word has there: the 1000 sentences of the parallel
treebanks PUD have 18,000 words in German, and 74,000 such characters in Thai.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import regex
from rensa import RMinHash

_PAIRS = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\uff70"  # the last two, long vowels, belong to several scripts
_TRIPLES = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_IS_PAIRED, _IS_TRIPLED = regex.compile(f"[{_PAIRS}]"), regex.compile(f"[{_TRIPLES}]")
_IS_UNSPACED = regex.compile(f"[{_PAIRS}{_TRIPLES}]")
_WORD = regex.compile(r"\w+")
_WORD_OR_CHARACTER = regex.compile(rf"[\w--[{_PAIRS}{_TRIPLES}]]+|[\w&&[{_PAIRS}{_TRIPLES}]]\p{{M}}*+", regex.VERSION1)
_WHOLE, _HALF, _THIRD = 6, 3, 2  # sixths of a word
PIECE_CHARACTERS = 1_000_000  # long documents are read in pieces: their words take many times their memory


def word_ngrams(text: str, length: int) -> Iterator[list[str]]:
    """Yield all sequences of `length` words of a text, joined by spaces, in order and in blocks.

    A text of fewer words has none. One sequence begins at each word, or character of a script without spaces, and is
    the shortest of at least `length` words.
    """
    units: list[str] = []
    has_unspaced = False
    for piece in _pieces(text):
        piece = piece.lower()
        has_unspaced = has_unspaced or (not piece.isascii() and _IS_UNSPACED.search(piece) is not None)
        units += (_WORD_OR_CHARACTER if has_unspaced else _WORD).findall(piece)
        ends = _ends(units, length) if has_unspaced else range(length, len(units) + 1)
        yield [" ".join(units[first:end]) for first, end in enumerate(ends)]
        units = units[len(ends) :]


def _ends(units: list[str], length: int) -> list[int]:
    """Return where the sequence that begins at each unit ends, up to the last one that is long enough."""
    positions = np.cumsum([0, *(_size(unit[0]) for unit in units)])
    ends = np.searchsorted(positions, positions + length * _WHOLE)
    found: list[int] = ends[ends <= len(units)].tolist()
    return found


@cache
def _size(character: str) -> int:
    """Return the part of a word, in sixths, that a unit with this first character counts as."""
    if _IS_PAIRED.match(character):
        return _HALF
    return _THIRD if _IS_TRIPLED.match(character) else _WHOLE


def _pieces(text: str) -> Iterator[str]:
    """Split a text at white space, or anywhere where a whole piece has none."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARACTERS
        if end < len(text):
            end = max(text.rfind(" ", start, end), text.rfind("\n", start, end)) + 1 or end
        yield text[start:end]
        start = end


def hash_ngrams(ngrams: list[str]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each, the same on every machine."""
    hashes: Any = RMinHash.hash_token_sets([ngrams])[0]
    return np.array(hashes, dtype=np.uint64)
