"""A cache for byte-level BPE: the ids of the `tokenizers` library, at more than twice its speed.

The text between two spaces is encoded once and then looked up, because most words repeat. This is exact because the
regular expression of byte-level BPE joins a space with the word after it, unless white space precedes it. Words are
only split at the space character: other white space stays inside a word, because the library drops some characters
that Python treats as white space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer, pre_tokenizers

from bertline.encoding.ranges import concatenated_ranges
from bertline.encoding.spaces import is_joined
from bertline.encoding.tokenizer import begins_with_space, encode_texts

# Cached words cost about 150 bytes each. A shard of 100 MB of English has some 800,000.
MAX_REMEMBERED_WORDS = 1 << 20
MAX_REMEMBERED_CHARACTERS = 1 << 25
# Words in one text passed to the library, and in one call, whose texts its threads share.
WORDS_PER_TEXT = 500
WORDS_PER_CALL = 32_000
# A word cannot contain a newline: END marks the end of a line, JOINED is before a line's first word if no space is, and
# BEGIN before a whole line that begins a text.
END, JOINED, BEGIN = "\n", "\n\n", "\n\n\n"
NOTHING, END_OF_LINE = range(2)  # numbers of "" and END, which have no tokens


class _Numbers(dict[str, int]):
    """The number of each word, in the order of first appearance, and the list of new words."""

    def __init__(self) -> None:
        super().__init__({"": NOTHING, END: END_OF_LINE})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


class WordCache:
    """A tokenizer of lines that looks up their words in a cache, which is bounded and never changes the ids."""

    def __init__(self, tokenizer: Tokenizer, max_remembered: int = MAX_REMEMBERED_WORDS) -> None:
        self._of_texts = tokenizer
        self._max_remembered = max_remembered
        self._normalizer = tokenizer.normalizer
        # Before the first word of a text, as the tokenizer treats it.
        self._first = "" if tokenizer.pre_tokenizer.add_prefix_space else JOINED
        self._of_words = Tokenizer.from_str(tokenizer.to_str())
        self._of_words.encode_special_tokens = True
        self._of_words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._begins_with_space = begins_with_space(tokenizer)
        self._clear()

    def _clear(self) -> None:
        self._numbers = _Numbers()
        self._characters = 0
        self._ids = np.zeros(0, dtype=np.uint32)
        # For each word: the position and number of its ids, and whether its line has to be encoded as a whole.
        self._starts = np.zeros(2, dtype=np.int64)
        self._lengths = np.zeros(2, dtype=np.int64)
        self._odd = np.array([True, False])

    def encode_lines(self, lines: Sequence[str], before: str) -> tuple[np.ndarray, np.ndarray]:
        """Encode lines.

        Args:
            lines: without a newline in them. A line after an empty one begins a text.
            before: the line before them.

        Returns:
            ids: uint32 [tokens]. lengths: int64 [lines], tokens of each line.
        """
        if len(self._numbers) > self._max_remembered or self._characters > MAX_REMEMBERED_CHARACTERS:
            self._clear()
        before_each = [before, *lines[:-1]]
        marks = [JOINED if is_joined(previous) else "" if previous else self._first for previous in before_each]
        marked = f" {END} ".join([mark + line if line else line for mark, line in zip(marks, lines, strict=True)])
        # Most words repeat: only the distinct ones become strings of Python.
        words = pc.split_pattern(pa.scalar(f"{marked} {END}"), " ").values.dictionary_encode()
        distinct = np.array([self._numbers[word] for word in words.dictionary.to_pylist()], dtype=np.int64)
        numbers = distinct[words.indices.to_numpy()]
        self._add_new_words()
        ends = np.flatnonzero(numbers == END_OF_LINE)
        if self._odd.any():
            whole = np.unique(np.searchsorted(ends, np.flatnonzero(self._odd[numbers]))).tolist()
            if whole := [line for line in whole if lines[line]]:
                marks = [mark if previous else BEGIN for mark, previous in zip(marks, before_each, strict=True)]
                numbers = self._with_whole_lines(numbers, ends, whole, [marks[line] + lines[line] for line in whole])
                ends = np.flatnonzero(numbers == END_OF_LINE)
        lengths = self._lengths[numbers]
        ids = self._ids[concatenated_ranges(self._starts[numbers], lengths)]
        return ids, np.diff(np.cumsum(lengths)[ends], prepend=0)

    def _with_whole_lines(
        self, numbers: np.ndarray, ends: np.ndarray, whole: list[int], words: list[str]
    ) -> np.ndarray:
        """Return the numbers with each of the `whole` lines as one word."""
        pieces = np.split(numbers, ends + 1)
        for line, word in zip(whole, words, strict=True):
            pieces[line] = np.array([self._numbers[word], END_OF_LINE])
        self._add_new_words()
        return np.concatenate(pieces)

    def _add_new_words(self) -> None:
        new = self._numbers.new
        if not new:
            return
        self._numbers.new = []
        self._characters += sum(map(len, new))
        odd = np.array([self._is_odd(_without_mark(word)) for word in new])
        # Which words cannot share a text with others; those that begin a text are the last.
        alone = odd | np.array([word.startswith(JOINED) or " " in word for word in new])
        order = np.lexsort((alone, np.array([word.startswith(BEGIN) for word in new])))
        words = [new[index] for index in order.tolist()] if alone.any() else new
        together = len(new) - int(alone.sum())
        pieces, counts = [self._ids], []
        for start in range(0, len(words), WORDS_PER_CALL):
            end = min(start + WORDS_PER_CALL, len(words))
            for ids, lengths_of_ids in self._encode_words(words[start:end], max(0, together - start)):
                pieces.append(ids)
                counts.append(lengths_of_ids)
        ordered = np.concatenate(counts)
        starts, lengths = np.empty_like(ordered), np.empty_like(ordered)
        starts[order], lengths[order] = len(self._ids) + np.cumsum(ordered) - ordered, ordered
        self._starts = np.append(self._starts, starts)
        self._lengths = np.append(self._lengths, lengths)
        self._odd = np.append(self._odd, odd)
        self._ids = np.concatenate(pieces)

    def _is_odd(self, word: str) -> bool:
        """Return whether a word does not separate its neighbours, so that its whole line is encoded."""
        if self._normalizer is not None and not (word.isascii() and word.isprintable()):
            word = self._normalizer.normalize_str(word)
        # Empty, or white space at an end: the spaces on both sides form one token, or join other words.
        return not word or word[0].isspace() or word[-1].isspace()

    def _encode_words(self, words: list[str], sharing: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield ids and their number per word, for some words at a time; the first `sharing` words can share a text."""
        together, single = words[:sharing], words[sharing:]
        groups = [together[start : start + WORDS_PER_TEXT] for start in range(0, len(together), WORDS_PER_TEXT)]
        texts = ["".join(map(_text_of, group)) for group in groups]
        together_ids, lengths = encode_texts(self._of_words, texts)
        for group, ids in zip(groups, np.split(together_ids, np.cumsum(lengths)), strict=False):
            starts = np.flatnonzero(self._begins_with_space[ids])
            if len(starts) == len(group):
                yield ids, np.diff(starts, append=len(ids))
            else:  # a word contains a space after normalization
                yield encode_texts(self._of_words, list(map(_text_of, group)))
        first_text = next((index for index, word in enumerate(single) if word.startswith(BEGIN)), len(single))
        for tokenizer, some in ((self._of_words, single[:first_text]), (self._of_texts, single[first_text:])):
            if some:
                yield encode_texts(tokenizer, list(map(_text_of, some)))


def _without_mark(word: str) -> str:
    return word.lstrip("\n")


def _text_of(word: str) -> str:
    """Return the text of a word: it begins with a space unless a mark says otherwise."""
    return _without_mark(word) if word.startswith(JOINED) else f" {word}"
