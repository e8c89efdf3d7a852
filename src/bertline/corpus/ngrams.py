"""Sequences of n words, by which the similarity of texts is measured.

A word is a run of letters, digits and underscores in lower case; in scripts written without spaces every character is a
word. Punctuation, white space and paragraph boundaries are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from rensa import RMinHash

# Thai and Lao, Burmese, Khmer, kana, and the Han characters of the basic plane.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(f"[^\\W{_UNSPACED}]+|[{_UNSPACED}]")
PIECE_CHARACTERS = 1_000_000  # long documents are read in pieces: their words take many times their memory


def word_ngrams(text: str, length: int) -> Iterator[list[str]]:
    """Yield all sequences of `length` words (at least 2) of a text, joined by spaces, in order and in blocks.

    A text of fewer words has none.
    """
    before: list[str] = []
    for piece in _pieces(text):
        words = before + _WORD.findall(piece.lower())
        yield [" ".join(words[first : first + length]) for first in range(len(words) - length + 1)]
        before = words[-(length - 1) :]


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
