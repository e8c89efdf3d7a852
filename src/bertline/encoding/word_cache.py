"""Cached tokenization of lines: the ids of the `tokenizers` library, at more than twice its speed.

The text between two spaces is encoded once and then looked up, because most words repeat. This is exact because neither
kind of tokenizer merges across such a space: BERT's normalizer and pre-tokenizer split there, and the regular
expression of byte-level BPE joins a space with the word after it, unless white space precedes it. Words are only split
at the space character: other white space stays inside a word, because the library drops some characters that Python
treats as white space.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import Tokenizer

from bertline.encoding.ranges import concatenated_ranges
from bertline.encoding.tokenizer import begins_with_space, is_byte_level, is_unigram, strips_accents

# Cached words cost about 150 bytes each. A shard of 100 MB of English has some 800,000.
MAX_REMEMBERED_WORDS = 1 << 20
MAX_REMEMBERED_CHARACTERS = 1 << 25
# Words in one text passed to the library, and in one call, whose texts its threads share.
WORDS_PER_TEXT = 500
WORDS_PER_CALL = 32_000
# Marks that BERT's pre-tokenizer always splits off and that no other character is normalized to.
SEPARATORS = "|^~_*+="
AFTER_CYRILLIC = "\u0530"  # before it are Latin, Greek and Cyrillic letters and their accents
# A word cannot contain a newline: END marks the end of a line, and BEGIN before a word that it begins a line.
END, BEGIN = "\n", "\n\n"
NOTHING, END_OF_LINE, EMPTY_LINE = range(3)  # numbers of "", END and BEGIN, which have no tokens


class BertWords:
    """Words that BERT's tokenizer encodes independently, and many of them in one text.

    In such a text words are separated by a mark, which is recognised by its id.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        unknown = tokenizer.token_to_id("[UNK]")
        encoded = ((mark, tokenizer.encode(mark, add_special_tokens=False).ids) for mark in SEPARATORS)
        # A vocabulary without any of the marks falls back to encoding words one by one: all marks become unknown.
        marks = [(mark, ids[0]) for mark, ids in encoded if len(ids) == 1 and ids[0] != unknown]
        self._mark, self._mark_id = marks[0] if marks else (SEPARATORS[0], -1)

    def split(self, text: str, goes_on: bool) -> list[str]:
        """Return the words of lines that each end with a newline, with END after each line; `goes_on`: the text begins
        inside a line, and a space before it was removed."""
        return text.replace("\n", " \n ").split(" ")[:-1]

    def odd(self, words: Sequence[str]) -> np.ndarray:
        """Return which words do not separate their neighbours, so that their whole line is encoded: bool [words]."""
        return np.zeros(len(words), dtype=bool)

    alone = odd  # which words cannot be joined with others

    def join(self, words: Sequence[str]) -> str:
        """Return one text for one or more words."""
        return f" {self._mark} ".join(words)

    def part(self, ids: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the ids of such a text without separators, and how many each word has; None if this is ambiguous."""
        marks = np.flatnonzero(ids == self._mark_id)
        if len(marks) != words - 1:  # a word contains the mark
            return None
        return np.delete(ids, marks), np.diff(marks, prepend=-1, append=len(ids)) - 1


class ByteLevelWords:
    """The same for byte-level BPE, whose words begin with a space; only the first of a line may lack it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._normalizer = tokenizer.normalizer
        self._first_differs = not tokenizer.pre_tokenizer.add_prefix_space
        self._begins_with_space = begins_with_space(tokenizer)

    def split(self, text: str, goes_on: bool) -> list[str]:
        if not self._first_differs:
            return text.replace("\n", " \n ").split(" ")[:-1]
        begin = "" if goes_on else BEGIN
        return (begin + text.replace("\n", f" {END} {BEGIN}")).split(" ")[:-1]

    def odd(self, words: Sequence[str]) -> np.ndarray:
        return np.array([self._is_odd(word.removeprefix(BEGIN)) for word in words], dtype=bool)

    def _is_odd(self, word: str) -> bool:
        if self._normalizer is not None and not (word.isascii() and word.isprintable()):
            word = self._normalizer.normalize_str(word)
        # Empty, or white space at an end: the spaces on both sides form one token, or join other words.
        return not word or word[0].isspace() or word[-1].isspace()

    def alone(self, words: Sequence[str]) -> np.ndarray:
        return np.array([word.startswith(BEGIN) or " " in word for word in words], dtype=bool)

    def join(self, words: Sequence[str]) -> str:
        return "".join(word.removeprefix(BEGIN) if word.startswith(BEGIN) else f" {word}" for word in words)

    def part(self, ids: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray] | None:
        starts = np.flatnonzero(self._begins_with_space[ids])
        if len(starts) != words:  # a word contains a space after normalization, or begins a line
            return None
        return ids, np.diff(starts, append=len(ids))


class WholeLines:
    """The same for any other tokenizer: each line is one word, so the ids are those of the library."""

    def split(self, text: str, goes_on: bool) -> list[str]:
        first, *lines = text.split("\n")[:-1]
        return [
            word
            for line in (first if goes_on else BEGIN + first, *(BEGIN + line for line in lines))
            for word in (line, END)
        ]

    def odd(self, words: Sequence[str]) -> np.ndarray:
        return np.zeros(len(words), dtype=bool)

    def alone(self, words: Sequence[str]) -> np.ndarray:
        return np.ones(len(words), dtype=bool)

    def join(self, words: Sequence[str]) -> str:
        return words[0].removeprefix(BEGIN)

    def part(self, ids: np.ndarray, words: int) -> None:
        """Return None: no words are joined."""


class _Numbers(dict[str, int]):
    """The number of each word, in the order of first appearance, and the list of new words."""

    def __init__(self) -> None:
        super().__init__({"": NOTHING, END: END_OF_LINE, BEGIN: EMPTY_LINE})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


def stripped_marks(word: str) -> int:
    """Return how many characters of a word stripping of accents alters that are not accented Latin, Greek or Cyrillic.

    It removes the marks of category Mn, such as vowels of Thai, and decomposes the syllables of Korean.
    """
    count, base = 0, ""
    for character in unicodedata.normalize("NFD", word):
        if unicodedata.category(character) != "Mn":
            base = character
        elif base.isalpha():
            count += not unicodedata.name(base, "").startswith(("LATIN", "GREEK", "CYRILLIC"))
    return count + sum("\uac00" <= character <= "\ud7a3" for character in word)


class WordCache:
    """A tokenizer of lines that looks up their words in a cache, which is bounded and never changes the ids.

    Attributes:
        characters: of the lines encoded so far, without spaces.
        unknown_characters: of these, those that [UNK] stands for.
        stripped_characters: of these, those that `stripped_marks` counts, if the tokenizer strips accents.
    """

    def __init__(self, tokenizer: Tokenizer, max_remembered: int = MAX_REMEMBERED_WORDS) -> None:
        self._tokenizer = tokenizer
        self._max_remembered = max_remembered
        self._unknown = tokenizer.token_to_id("[UNK]")
        self._strips = strips_accents(tokenizer)
        self.characters = self.unknown_characters = self.stripped_characters = 0
        self._words: BertWords | ByteLevelWords | WholeLines
        if is_unigram(tokenizer):
            self._words = WholeLines()
        else:
            self._words = ByteLevelWords(tokenizer) if is_byte_level(tokenizer) else BertWords(tokenizer)
        self._clear()

    def _clear(self) -> None:
        self._numbers = _Numbers()
        self._characters = 0
        self._ids = np.zeros(0, dtype=np.uint32)
        # By a word's number: the position and number of its ids, and whether its line has to be encoded whole.
        self._starts = np.zeros(3, dtype=np.int64)
        self._lengths = np.zeros(3, dtype=np.int64)
        self._odd = np.append(self._words.odd([""]), [False, False])
        self._unknown_characters = np.zeros(3, dtype=np.int64)
        self._stripped_characters = np.zeros(3, dtype=np.int64)

    def encode_lines(self, text: str, *, goes_on: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Encode lines that each end with a newline.

        `goes_on`: the first line is the rest of one that began in the previous text.

        Returns:
            ids: uint32 [tokens]. lengths: int64 [lines], tokens of each line. empty: bool [lines], whether the line has
            no characters at all.
        """
        if len(self._numbers) > self._max_remembered or self._characters > MAX_REMEMBERED_CHARACTERS:
            self._clear()
        words = self._words.split(text, goes_on)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        del words
        self._add_new_words()
        ends = np.flatnonzero(numbers == END_OF_LINE)
        alone = np.diff(ends, prepend=-1) == 2
        empty = alone & ((numbers[ends - 1] == NOTHING) | (numbers[ends - 1] == EMPTY_LINE))
        if self._odd.any():
            lines_of_odd = np.searchsorted(ends, np.flatnonzero(self._odd[numbers]))
            whole = np.unique(lines_of_odd[~empty[lines_of_odd]])
            if whole.size:
                numbers = self._with_whole_lines(numbers, ends, whole.tolist(), text, goes_on)
                ends = np.flatnonzero(numbers == END_OF_LINE)
        self.characters += len(text) - text.count(" ") - text.count("\n")
        if self._unknown_characters.any():
            self.unknown_characters += int(self._unknown_characters[numbers].sum())
        if self._stripped_characters.any():
            self.stripped_characters += int(self._stripped_characters[numbers].sum())
        lengths = self._lengths[numbers]
        ids = self._ids[concatenated_ranges(self._starts[numbers], lengths)]
        return ids, np.diff(np.cumsum(lengths)[ends], prepend=0), empty

    def _with_whole_lines(
        self, numbers: np.ndarray, ends: np.ndarray, whole: list[int], text: str, goes_on: bool
    ) -> np.ndarray:
        """Return the numbers with each of the `whole` lines as one word."""
        lines = text.split("\n")
        pieces = np.split(numbers, ends + 1)
        for line in whole:
            word = lines[line] if goes_on and line == 0 else BEGIN + lines[line]
            pieces[line] = np.array([self._numbers[word], END_OF_LINE])
        self._add_new_words()
        return np.concatenate(pieces)

    def _add_new_words(self) -> None:
        new = self._numbers.new
        if not new:
            return
        self._numbers.new = []
        self._characters += sum(map(len, new))
        odd = self._words.odd(new)
        alone = odd | self._words.alone(new)
        order = np.argsort(alone, kind="stable")
        words = [new[index] for index in order.tolist()] if alone.any() else new
        joined = len(new) - int(alone.sum())
        pieces, counts = [self._ids], []
        for start in range(0, len(words), WORDS_PER_CALL):
            end = min(start + WORDS_PER_CALL, len(words))
            for ids, lengths_of_ids in self._encode_words(words[start:end], max(0, joined - start)):
                pieces.append(ids)
                counts.append(lengths_of_ids)
        ordered = np.concatenate(counts)
        starts, lengths = np.empty_like(ordered), np.empty_like(ordered)
        starts[order], lengths[order] = len(self._ids) + np.cumsum(ordered) - ordered, ordered
        self._starts = np.append(self._starts, starts)
        self._lengths = np.append(self._lengths, lengths)
        self._odd = np.append(self._odd, odd)
        first_new = len(self._ids)
        self._ids = np.concatenate(pieces)
        unknown, stripped = np.zeros_like(ordered), np.zeros_like(ordered)
        places = np.flatnonzero(self._ids[first_new:] == self._unknown) if self._unknown is not None else ()
        if len(places):
            with_unknown = np.unique(order[np.searchsorted(np.cumsum(ordered), places, side="right")])
            unknown[with_unknown] = self._hidden_by_unknown([new[index] for index in with_unknown.tolist()])
        if self._strips:
            for index, word in enumerate(new):
                if not word.isascii() and max(word) >= AFTER_CYRILLIC:
                    stripped[index] = stripped_marks(word)
        self._unknown_characters = np.append(self._unknown_characters, unknown)
        self._stripped_characters = np.append(self._stripped_characters, stripped)

    def _hidden_by_unknown(self, words: list[str]) -> list[int]:
        """Return how many characters of each word [UNK] stands for."""
        texts = [self._words.join([word]) for word in words]
        hidden = []
        for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False):
            spans = [span for index, span in zip(encoding.ids, encoding.offsets, strict=True) if index == self._unknown]
            hidden.append(sum(end - start for start, end in spans))
        return hidden

    def _encode_words(self, words: list[str], joined: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield ids and their number per word, for some words at a time; the first `joined` words can share a text."""
        together, single = words[:joined], words[joined:]
        groups = [together[start : start + WORDS_PER_TEXT] for start in range(0, len(together), WORDS_PER_TEXT)]
        for group, row in zip(groups, self._encode([self._words.join(group) for group in groups]), strict=True):
            yield self._words.part(np.array(row, dtype=np.uint32), len(group)) or self._one_by_one(group)
        if single:
            yield self._one_by_one(single)

    def _one_by_one(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = self._encode([self._words.join([word]) for word in words])
        ids = np.array([index for row in rows for index in row], dtype=np.uint32)
        return ids, np.array([len(row) for row in rows], dtype=np.int64)

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
