"""Tokenization of lines: the ids of the `tokenizers` library at several times its speed.

BERT's WordPiece is encoded by `nanotoken`, if it agrees with the library on `DIFFICULT` text and on the vocabulary, and
byte-level BPE through `WordCache`. Anything else is encoded by the library itself.

A line has the ids that it has in its text. They depend on the space before it, except in WordPiece: see `is_joined`.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from nanotoken.nanotoken_rs import WordPieceTokenizer
from tokenizers import Tokenizer

from bertline.encoding.normalizer import JOINERS, REMOVED, bert_normalizer_of, removes_joiners, strips_accents
from bertline.encoding.ranges import concatenated_ranges
from bertline.encoding.spaces import is_joined
from bertline.encoding.tokenizer import encode_texts, is_byte_level, is_unigram, special_token_ids
from bertline.encoding.tokenizer_checks import BEGIN_OF_WORD
from bertline.encoding.word_cache import WordCache

# Encode lines, given the line before them. A line after an empty one begins a text. Returns the ids of all, uint32
# [tokens], and the number of each line's, int64 [lines].
EncodeLines = Callable[[Sequence[str], str], tuple[np.ndarray, np.ndarray]]

# Unusual white space, characters that are dropped, split off or replaced by one or several others, long words.
DIFFICULT = (
    "a\x00b\x0bc\x0cd\x1ce\x85f\u00a0g\u2028h\u200bi\u3000j\ufffdk\ue000l \t\r  m\u00adn\U000e0001o",
    "É e\u0301 ǆ ß ẞ İ ı Σας ﬁ ½ Å ｋ ㎏ \u1e9b\u0323 a\u0338b x\u0345y \u037e\u1fef`´ Ж й Ё q\u20ddr",
    "東京都 㐀 豈 𠀀 カﾀが 한국어 ที่นี่ हिन्दी עִבְרִית العَرَبِيَّة 👩\u200d👩\u200d👧 🇩🇪 ①²٣",
    "don't [UNK][SEP] ##ing </s> (a,b)/c_d|e^f~g*h+i=j<k>$l%m&n@o#p\\q{r}¿s¡t«u»v“w”x…y—z" + "·§¶†‰€№™",
    "w" * 99 + " " + "x" * 100 + " " + "y" * 101 + " " + "é" * 100 + " " + "e\u0301" * 51,
)
TOKENS_COMPARED = 2000  # all of them would take a tenth of a second of every job
JOINED = "\ufdd0"  # a noncharacter, put before a line that no space precedes
LETTERS_BEYOND_CYRILLIC = re.compile("[\u0530-\U0010ffff][\u0300-\U0010ffff]*")  # with their combining marks

logger = logging.getLogger(__name__)


def line_encoder(tokenizer: Tokenizer) -> EncodeLines:
    """Return a function that encodes lines."""
    if is_byte_level(tokenizer):
        return WordCache(tokenizer).encode_lines
    if is_unigram(tokenizer):
        return unigram_encoder(tokenizer)
    by_library = library_encoder(tokenizer)
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(index) or "" for index in range(0, size, 1 + size // TOKENS_COMPARED)]
    probe = [*DIFFICULT, " ".join(tokens)]
    try:
        fast = wordpiece_encoder(tokenizer)
        is_same = all(map(np.array_equal, fast(probe, ""), by_library(probe, "")))
        problem = None if is_same else "its ids are others"
    except ValueError as error:
        problem = str(error)
    if problem is None:
        return fast
    logger.warning("nanotoken cannot replace the tokenizers package for this tokenizer (%s): encoding is slow", problem)
    return by_library


def wordpiece_encoder(tokenizer: Tokenizer) -> EncodeLines:
    """Return nanotoken's encoder. Raises ValueError if it does not support the tokenizer."""
    plain = Tokenizer(tokenizer.model)  # without special tokens: a literal [SEP] is text
    plain.normalizer, plain.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    with_joiners = bert_normalizer_of(tokenizer)
    if with_joiners is not None:  # nanotoken does not support its other part
        plain.normalizer = with_joiners
    encode = WordPieceTokenizer.from_json(plain.to_str()).encode_batch
    removed = re.compile(REMOVED)

    def encode_lines(lines: Sequence[str], before: str) -> tuple[np.ndarray, np.ndarray]:
        if with_joiners is not None and removed.search("".join(lines)):
            lines = [removed.sub("", line) for line in lines]
        ids, offsets = encode(lines, add_special_tokens=False, parallel=False)
        return ids, np.diff(offsets)

    return encode_lines


def library_encoder(tokenizer: Tokenizer) -> EncodeLines:
    """Return the library's encoder of WordPiece."""
    return lambda lines, before: encode_texts(tokenizer, lines)


def unigram_encoder(tokenizer: Tokenizer) -> EncodeLines:
    """Return the library's encoder of Unigram, with BEGIN_OF_WORD before a line unless `is_joined`."""
    description = json.loads(tokenizer.to_str())
    marked = {"type": "Prepend", "prepend": JOINED}
    normalizers = [description["normalizer"], marked] if description["normalizer"] else [marked]
    description["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    # Behind WhitespaceSplit and Metaspace, which put BEGIN_OF_WORD before each word.
    pattern = {"String": f"{BEGIN_OF_WORD}{JOINED}"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Removed", "invert": False}
    description["pre_tokenizer"]["pretokenizers"].insert(2, split)
    of_joined = Tokenizer.from_str(json.dumps(description))
    of_joined.encode_special_tokens = True

    def encode_lines(lines: Sequence[str], before: str) -> tuple[np.ndarray, np.ndarray]:
        joined = np.array([*map(is_joined, (before, *lines[:-1]))], dtype=bool)
        if not joined.any():
            return encode_texts(tokenizer, lines)
        order = np.argsort(joined, kind="stable")
        first = len(lines) - int(joined.sum())
        ordered = [lines[index] for index in order.tolist()]
        groups = (encode_texts(tokenizer, ordered[:first]), encode_texts(of_joined, ordered[first:]))
        ids, counts = map(np.concatenate, zip(*groups, strict=True))
        starts, lengths = np.empty_like(counts), np.empty_like(counts)
        starts[order], lengths[order] = np.cumsum(counts) - counts, counts
        return ids[concatenated_ranges(starts, lengths)], lengths

    return encode_lines


class CharacterCounts:
    """Count the characters of lines, and those that are lost in their ids.

    Attributes:
        characters: without spaces.
        unknown_characters: of these, those that [UNK] replaces.
        stripped_characters: of these, those that `stripped_marks` counts, if the tokenizer strips accents, and
            zero-width joiners, if it removes them.
    """

    def __init__(self, tokenizer: Tokenizer, encode: EncodeLines) -> None:
        self._tokenizer = tokenizer
        self._encode = encode
        self._unknown = special_token_ids(tokenizer)["[UNK]"]
        self._strips = strips_accents(tokenizer)
        self._removes_joiners = removes_joiners(tokenizer)
        self.characters = self.unknown_characters = self.stripped_characters = 0

    def add(self, lines: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> None:
        """Count lines, given their `ids` and the number of each line's."""
        text = "".join(lines)
        self.characters += len(text) - text.count(" ")
        if self._removes_joiners and not text.isascii():
            self.stripped_characters += sum(map(text.count, JOINERS))
        with_unknown = self._with_unknown(lines, ids, lengths)
        if with_unknown:
            words = Counter(word for line in with_unknown for word in line.split(" "))
            self.unknown_characters += self._hidden(words)
        if self._strips:
            text = "\n".join(line for line in lines if not line.isascii())
            runs = Counter(LETTERS_BEYOND_CYRILLIC.findall(text))
            self.stripped_characters += sum(count * stripped_marks(run) for run, count in runs.items())

    def _with_unknown(self, lines: Sequence[str], ids: np.ndarray, lengths: np.ndarray) -> list[str]:
        places = np.flatnonzero(ids == self._unknown)
        return [lines[index] for index in np.unique(np.searchsorted(np.cumsum(lengths), places, side="right"))]

    def _hidden(self, words: Counter[str]) -> int:
        """Return how many characters of words [UNK] replaces."""
        distinct = [part for word in words if word for part in (word, "")]  # each a text of its own
        unknown = self._with_unknown(distinct, *self._encode(distinct, ""))
        hidden = 0
        for word, encoding in zip(
            unknown, self._tokenizer.encode_batch(unknown, add_special_tokens=False), strict=True
        ):
            spans = [span for index, span in zip(encoding.ids, encoding.offsets, strict=True) if index == self._unknown]
            hidden += words[word] * sum(end - start for start, end in spans)
        return hidden


def stripped_marks(text: str) -> int:
    """Return how many characters of a text stripping of accents alters that are not accented Latin, Greek or Cyrillic.

    It removes the marks of category Mn, such as vowels of Thai, and decomposes the syllables of Korean.
    """
    count, base = 0, ""
    for character in unicodedata.normalize("NFD", text):
        if unicodedata.category(character) != "Mn":
            base = character
        elif base.isalpha():
            count += not unicodedata.name(base, "").startswith(("LATIN", "GREEK", "CYRILLIC"))
    return count + sum("\uac00" <= character <= "\ud7a3" for character in text)
