"""A shard's text to token ids: the same ids as the `tokenizers` library gives, at more than twice its speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.ranges import concatenated_ranges, offsets_of
from bertline.encoding.shards import read_text_blocks

# Kept words cost about 150 bytes each. A shard of 100 MB of English has some 800,000.
MAX_REMEMBERED_WORDS = 1 << 20
# Words of one call to the library; several calls' worth are encoded by its threads at once.
WORDS_PER_CALL = 500
# Marks that BERT's pre-tokenizer always cuts out and that no other character is normalised to.
SEPARATORS = "|^~_*+="
NOTHING, END_OF_LINE = 0, 1  # numbers of "" and "\n", which have no tokens


@dataclass(frozen=True)
class TokenizedShard:
    """Every token of a shard.

    Attributes
    ----------
    ids: uint16 or uint32 [tokens], see `id_type`.
    sentence_offsets: int64 [sentences + 1], where each sentence begins in `ids`; no sentence is empty.
    document_offsets: int64 [documents + 1], where each document begins among the sentences; a document may be empty.
    """

    ids: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray


def id_type(vocab_size: int) -> type[np.unsignedinteger]:
    """The type that ids are stored in: uint16 where the vocabulary allows it."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


class _Numbers(dict[str, int]):
    """Numbers words in the order of their first appearance and remembers which are new."""

    def __init__(self) -> None:
        super().__init__({"": NOTHING, "\n": END_OF_LINE})
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


class WordCache:
    """Encodes lines by looking up what stands between two spaces, which is encoded once.

    BERT's normaliser and pre-tokenizer never look across a space, so the ids of a line are those of its words. Only
    the space itself counts: other white space stays inside a word, because the library drops some characters that
    Python takes for white space.
    """

    def __init__(self, tokenizer: Tokenizer, max_remembered: int = MAX_REMEMBERED_WORDS) -> None:
        self._tokenizer = tokenizer
        self._max_remembered = max_remembered
        unknown = tokenizer.token_to_id("[UNK]")
        candidates = [(mark, self._encode([mark])[0]) for mark in SEPARATORS]
        # A vocabulary without any of the marks falls back to one call for each word.
        self._separator = next(((mark, ids[0]) for mark, ids in candidates if ids != [unknown] and len(ids) == 1), None)
        self._forget()

    def _forget(self) -> None:
        self._numbers = _Numbers()
        self._ids = np.zeros(0, dtype=np.uint32)
        self._offsets = np.zeros(3, dtype=np.int64)

    def encode_lines(self, text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Encode lines that each end with a newline.

        Returns
        -------
        ids: uint32 [tokens].
        lengths: int64 [lines], tokens of each line.
        empty: bool [lines], whether the line has no characters at all.
        """
        if len(self._numbers) > self._max_remembered:
            self._forget()
        words = text.replace("\n", " \n ").split(" ")
        words.pop()  # the empty string behind the last newline
        numbers = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        self._learn_new_words()
        starts, lengths = self._offsets[numbers], np.diff(self._offsets)[numbers]
        ends = np.flatnonzero(numbers == END_OF_LINE)
        words_before = np.diff(ends, prepend=-1) - 1
        empty = (words_before == 1) & (numbers[ends - 1] == NOTHING)
        ids = self._ids[concatenated_ranges(starts, lengths)]
        return ids, np.diff(np.cumsum(lengths)[ends], prepend=0), empty

    def _learn_new_words(self) -> None:
        new = self._numbers.new
        if not new:
            return
        pieces, lengths = [self._ids], [np.diff(self._offsets)]
        for ids, counts in self._encode_words(new):
            pieces.append(ids)
            lengths.append(counts)
        self._ids = np.concatenate(pieces)
        self._offsets = offsets_of(np.concatenate(lengths))
        self._numbers.new = []

    def _encode_words(self, words: list[str]) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """The ids and the number of ids of each word, for some words at a time.

        Many words go into one call, with a mark between them that is found again by its id. Where a word itself
        gives that id, the marks do not add up and the words are encoded one by one.
        """
        groups = [words[start : start + WORDS_PER_CALL] for start in range(0, len(words), WORDS_PER_CALL)]
        if self._separator is None:
            yield from (self._one_by_one(group) for group in groups)
            return
        mark, mark_id = self._separator
        joined = (f" {mark} ".join(group) for group in groups)
        for group, row in zip(groups, self._encode(joined), strict=True):
            ids = np.array(row, dtype=np.uint32)
            marks = np.flatnonzero(ids == mark_id)
            if len(marks) != len(group) - 1:
                yield self._one_by_one(group)
                continue
            yield np.delete(ids, marks), np.diff(marks, prepend=-1, append=len(ids)) - 1

    def _one_by_one(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = self._encode(words)
        ids = np.array([index for row in rows for index in row], dtype=np.uint32)
        return ids, np.array([len(row) for row in rows], dtype=np.int64)

    def _encode(self, texts: Iterable[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


def tokenize_shard(path: Path | str, tokenizer: Tokenizer) -> TokenizedShard:
    """Encode a whole shard once, for all sequence lengths.

    A sentence without any token (control characters only) is left out; a document of such sentences stays, empty.
    Raises BertlineError when the file is damaged, not UTF-8, or ends inside a document.
    """
    cache = WordCache(tokenizer)
    dtype = id_type(tokenizer.get_vocab_size())
    ids, lengths, ends_document = [np.zeros(0, dtype)], [np.zeros(0, np.int64)], [np.zeros(0, bool)]
    for text in read_text_blocks(path):
        block_ids, block_lengths, block_ends = cache.encode_lines(text)
        ids.append(block_ids.astype(dtype))
        lengths.append(block_lengths)
        ends_document.append(block_ends)
    line_lengths, ends = np.concatenate(lengths), np.concatenate(ends_document)
    if len(ends) and not ends[-1]:
        raise BertlineError(f"{path} ends inside a document; delete it and make it again")
    is_sentence = line_lengths > 0
    sentences_before = np.cumsum(is_sentence)
    return TokenizedShard(
        ids=np.concatenate(ids),
        sentence_offsets=offsets_of(line_lengths[is_sentence]),
        document_offsets=np.concatenate([np.zeros(1, np.int64), sentences_before[ends]]),
    )
