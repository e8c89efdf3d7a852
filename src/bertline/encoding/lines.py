"""Tokenization of lines: the ids of the `tokenizers` library at several times its speed.

BERT's WordPiece is encoded by `nanotoken`, if it agrees with the library on `DIFFICULT` text and on the vocabulary, and
byte-level BPE through `WordCache`. Anything else is encoded by the library itself.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from nanotoken.nanotoken_rs import WordPieceTokenizer
from tokenizers import Tokenizer, models

from bertline.encoding.normalizer import JOINERS, REMOVED, bert_normalizer_of, removes_joiners, strips_accents
from bertline.encoding.tokenizer import encode_texts, is_byte_level, special_token_ids
from bertline.encoding.word_cache import WordCache

# Encode lines; True: the first one is the rest of a line, and a space before it was removed. Returns the ids of all,
# uint32 [tokens], and the number of each line's, int64 [lines].
EncodeLines = Callable[[Sequence[str], bool], tuple[np.ndarray, np.ndarray]]

# Unusual white space, characters that are dropped, split off or replaced by one or several others, long words.
DIFFICULT = (
    "a\x00b\x0bc\x0cd\x1ce\x85f\u00a0g\u2028h\u200bi\u3000j\ufffdk\ue000l \t\r  m\u00adn\U000e0001o",
    "É e\u0301 ǆ ß ẞ İ ı Σας ﬁ ½ Å ｋ ㎏ \u1e9b\u0323 a\u0338b x\u0345y \u037e\u1fef`´ Ж й Ё q\u20ddr",
    "東京都 㐀 豈 𠀀 カﾀが 한국어 ที่นี่ हिन्दी עִבְרִית العَرَبِيَّة 👩\u200d👩\u200d👧 🇩🇪 ①²٣",
    "don't [UNK][SEP] ##ing </s> (a,b)/c_d|e^f~g*h+i=j<k>$l%m&n@o#p\\q{r}¿s¡t«u»v“w”x…y—z" + "·§¶†‰€№™",
    "w" * 99 + " " + "x" * 100 + " " + "y" * 101 + " " + "é" * 100 + " " + "e\u0301" * 51,
)
TOKENS_COMPARED = 2000  # all of them would take a tenth of a second of every job
LETTERS_BEYOND_CYRILLIC = re.compile("[\u0530-\U0010ffff][\u0300-\U0010ffff]*")  # with their combining marks

logger = logging.getLogger(__name__)


def line_encoder(tokenizer: Tokenizer) -> EncodeLines:
    """Return a function that encodes lines."""
    if is_byte_level(tokenizer):
        return WordCache(tokenizer).encode_lines
    by_library = library_encoder(tokenizer)
    if not isinstance(tokenizer.model, models.WordPiece):
        return by_library
    size = tokenizer.get_vocab_size()
    tokens = [tokenizer.id_to_token(index) or "" for index in range(0, size, 1 + size // TOKENS_COMPARED)]
    probe = [*DIFFICULT, " ".join(tokens)]
    try:
        fast = wordpiece_encoder(tokenizer)
        is_same = all(map(np.array_equal, fast(probe, False), by_library(probe, False)))
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

    def encode_lines(lines: Sequence[str], goes_on: bool) -> tuple[np.ndarray, np.ndarray]:
        if with_joiners is not None and removed.search("".join(lines)):
            lines = [removed.sub("", line) for line in lines]
        ids, offsets = encode(lines, add_special_tokens=False, parallel=False)
        return ids, np.diff(offsets)

    return encode_lines


def library_encoder(tokenizer: Tokenizer) -> EncodeLines:
    """Return the library's encoder."""
    return lambda lines, goes_on: encode_texts(tokenizer, lines)


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
        distinct = list(words)
        unknown = self._with_unknown(distinct, *self._encode(distinct, False))
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
