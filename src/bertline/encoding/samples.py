"""Samples for pretraining: pairs of segments, or one segment of full length.

Next sentence prediction follows Devlin et al. 2018 (arXiv 1810.04805) and Google's `create_pretraining_data.py`: a
document is split into chunks of the target length; a chunk is split in two at a random sentence; half of the time the
second part is replaced by text of another document and becomes the beginning of the next chunk. The target is the
maximum, or with the short-sequence probability a random length.

There are three differences, all where that program loses text or reveals the label. A pair that is too long is not
truncated: a chunk ends at the target, between two words, and the rest of the sentence begins the next chunk; a chunk
inside one long sentence is split between two words. A second segment labelled random is never from the same document.
And it is as long as the text it replaces, so that the length of a sample does not reveal its label.

Sentence order prediction follows ALBERT (Lan et al. 2019, arXiv 1909.11942): the two parts of a chunk stay together,
and half of the time they are swapped, which is the label.

Without a pair objective a sample is a chunk: text of one document, as in the DOC-SENTENCES of RoBERTa (Liu et al. 2019,
arXiv 1907.11692), but filled to the last word that fits instead of the last sentence. The end of a document is a
shorter sample; with packed sequences it costs nothing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.ranges import concatenated_ranges
from bertline.encoding.spool import Spool
from bertline.encoding.tokenization import TokenizedShard

PAIR_OBJECTIVES = ("next_sentence", "sentence_order", "none")
FIRST_BEGIN, FIRST_END, SECOND_BEGIN, SECOND_END, LABEL, DOCUMENT = range(6)
SAMPLES_PER_BLOCK = 4096
# Number of random reads after which a shard's memory is freed, see `Spool`.
READS_PER_RELEASE = 32


@dataclass(frozen=True)
class Samples:
    """The samples of a shard, as positions among its tokens.

    Attributes:
        table: int64 [N, 6], memory-mapped, one row per sample: begin and end of the first segment's tokens; those of
            the second (both 0 if there is none); the label; the document of the first.
        tokens: of all samples, including [CLS] and [SEP].
        labelled: number of samples with label 1.
        without_partner: number of samples without a random second segment because the shard has no other document.
        unplaced_tokens: tokens in no sample, summed over the passes. Only a text of a single token gives no pair.
    """

    table: np.ndarray
    tokens: int
    labelled: int
    without_partner: int
    unplaced_tokens: int
    spool: Spool

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the table in blocks; the memory of each is freed before the next."""
        for start in range(0, len(self.table), SAMPLES_PER_BLOCK):
            yield self.table[start : start + SAMPLES_PER_BLOCK]
            self.spool.release()


def make_samples(
    shard: TokenizedShard,
    folder: Path,
    *,
    sequence_length: int,
    pair_objective: str,
    short_sequence_probability: float,
    seed: int,
    shard_name: str,
    passes: int = 1,
) -> Samples:
    """Split a shard into samples.

    Args:
        shard: its tokens.
        folder: for temporary files of 48 bytes per sample.
        sequence_length: the maximum number of tokens in a sample, including [CLS] and [SEP].
        pair_objective: one of PAIR_OBJECTIVES; `none` for single segments.
        short_sequence_probability: share of the chunks whose target is a random length.
        seed, shard_name: together with the sequence length and the number of the pass they seed the random choices.
        passes: how often the whole text is split, each time with other random choices; samples are ordered by pass.
    """
    if pair_objective not in PAIR_OBJECTIVES:
        raise BertlineError(f"pair objective: given '{pair_objective}', allowed are {', '.join(PAIR_OBJECTIVES)}")
    spool = Spool(folder, np.int64, columns=6)
    tokens = labelled = without_partner = unplaced_tokens = 0
    for number in range(passes):
        name = f"{seed}/{shard_name}/{sequence_length}" + (f"/{number}" if number else "")
        random = Random(hashlib.sha256(name.encode()).digest())  # noqa: S311 - not a secret
        splitter = _Splitter(shard, random, short_sequence_probability)
        rows = splitter.rows(pair_objective, sequence_length)
        while len(block := np.fromiter(islice(rows, SAMPLES_PER_BLOCK), dtype=np.dtype((np.int64, 6)))):
            spool.append(block)
            tokens += int(sample_lengths(block).sum())
            labelled += int(block[:, LABEL].sum())
            shard.release()
        without_partner += splitter.without_partner
        unplaced_tokens += splitter.unplaced_tokens
    return Samples(spool.read(), tokens, labelled, without_partner, unplaced_tokens, spool)


class _Splitter:
    """State of the splitting: the shard's boundaries, the random numbers, the counts."""

    def __init__(self, shard: TokenizedShard, random: Random, short: float) -> None:
        self.shard = shard
        self.reads = 0
        # Memory views, whose elements are plain Python integers.
        self.sentences = shard.sentence_offsets.data
        self.documents = shard.document_offsets.data
        self.with_text = shard.documents_with_text.data
        self.word_starts = shard.word_starts
        self.random = random
        self.short = short
        self.without_partner = 0
        self.unplaced_tokens = 0

    def rows(self, pair_objective: str, sequence_length: int) -> Iterator[tuple[int, ...]]:
        """Yield the rows of `Samples.table`."""
        if pair_objective == "next_sentence":
            return self.pairs(sequence_length - 3)
        if pair_objective == "sentence_order":
            return self.ordered_pairs(sequence_length - 3)
        return self.singles(sequence_length - 2)

    def below(self, bound: int) -> int:
        """Return a random integer in [0, bound). Python only guarantees a stable stream for `Random.random`."""
        return int(self.random.random() * bound)

    def target(self, maximum: int) -> int:
        """Return the length of the next chunk."""
        return 2 + self.below(maximum - 1) if self.random.random() < self.short else maximum

    def end_of_chunk(self, begin: int, length: int, limit: int) -> int:
        """Return the last word boundary within `length` tokens from `begin`; a longer word is split."""
        if begin + length >= limit:
            return limit
        place = self.word_starts.rfind(b"\1", begin + 1, begin + length + 1)
        return place if place > 0 else begin + length

    def random_sentence(self, begin: int, end: int) -> int:
        """Return the beginning of a random sentence in [begin, end); `end` if there is none."""
        first, beyond = bisect_left(self.sentences, begin), bisect_left(self.sentences, end)
        return self.sentences[first + self.below(beyond - first)] if first < beyond else end

    def random_word(self, begin: int, end: int) -> int:
        """Return the beginning of a random word in [begin, end), or a random token if there is none."""
        near = begin + self.below(end - begin)
        place = self.word_starts.rfind(b"\1", begin, near + 1)
        if place < 0:
            place = self.word_starts.find(b"\1", near + 1, end)
        return place if place > 0 else near

    def other_text(self, position: int, length: int) -> tuple[int, int]:
        """Return begin and end of at most `length` tokens of any document but the one at `position` in `with_text`.

        They begin with a random sentence, if possible one followed by enough text.
        """
        self.reads += 1
        if self.reads % READS_PER_RELEASE == 0:
            self.shard.release()
        choice = self.below(len(self.with_text) - 1)
        document = self.with_text[choice + (choice >= position)]
        begin, end = self.documents[document], self.documents[document + 1]
        start = self.random_sentence(begin, max(begin, end - length) + 1)
        return start, self.end_of_chunk(start, length, end)

    def singles(self, maximum: int) -> Iterator[tuple[int, ...]]:
        """Yield single segments of at most `maximum` tokens: rows of `Samples.table`."""
        for document in self.with_text:
            begin, limit = self.documents[document], self.documents[document + 1]
            while begin < limit:
                end = self.end_of_chunk(begin, self.target(maximum), limit)
                yield begin, end, 0, 0, 0, document
                begin = end

    def ordered_pairs(self, maximum: int) -> Iterator[tuple[int, ...]]:
        """Yield pairs of adjacent segments, half of them swapped: rows of `Samples.table`."""
        for document in self.with_text:
            first, limit = self.documents[document], self.documents[document + 1]
            begin = first
            while begin < limit:
                target = self.target(maximum)
                end = self.end_of_chunk(begin, target, limit)
                if end == begin + 1 < limit:
                    end += 1  # a single token is no pair
                middle = self.random_sentence(begin + 1, end)
                if middle == end and end - begin > 1:
                    middle = self.random_word(begin + 1, end)
                start = begin
                if middle == end:  # the last token of a document: use the text before it again
                    start, middle = max(first, end - target), begin
                if start == middle:
                    self.unplaced_tokens += 1
                elif self.random.random() < 0.5:
                    yield middle, end, start, middle, 1, document
                else:
                    yield start, middle, middle, end, 0, document
                begin = end

    def pairs(self, maximum: int) -> Iterator[tuple[int, ...]]:
        """Yield pairs of at most `maximum` tokens in total: rows of `Samples.table`."""
        partners = len(self.with_text) - 1
        for position, document in enumerate(self.with_text):
            first, limit = self.documents[document], self.documents[document + 1]
            begin = first
            while begin < limit:
                target = self.target(maximum)
                end = self.end_of_chunk(begin, target, limit)
                if not partners and end == begin + 1 < limit:
                    end += 1  # a single token would have no second segment
                middle = self.random_sentence(begin + 1, end)
                # A single sentence is split if it leaves no room for another text, or if there is none.
                if middle == end and end - begin > 1 and (2 * (end - begin) > target or not partners):
                    middle = self.random_word(begin + 1, end)
                is_random = middle == end or self.random.random() < 0.5
                if is_random and partners:
                    room = end - middle or 1 + self.below(target - (end - begin))
                    yield begin, middle, *self.other_text(position, room), 1, document
                    begin = middle
                    continue
                self.without_partner += is_random
                if middle < end:
                    yield begin, middle, middle, end, 0, document
                elif first < begin:
                    # The last token of the shard's only document: use the text before it again.
                    yield max(first, end - target), begin, begin, end, 0, document
                else:
                    self.unplaced_tokens += 1
                begin = end


def sample_lengths(table: np.ndarray) -> np.ndarray:
    """Return the tokens of each sample, including [CLS] and [SEP]: int64 [N], from rows of a table."""
    first = table[:, FIRST_END] - table[:, FIRST_BEGIN]
    second = table[:, SECOND_END] - table[:, SECOND_BEGIN]
    return first + 2 + second + (second > 0)


def second_segment_starts(table: np.ndarray) -> np.ndarray:
    """Return the index of the second segment's first token in its sample, 0 if there is none: int64 [N]."""
    has_second = table[:, SECOND_END] > table[:, SECOND_BEGIN]
    return np.where(has_second, table[:, FIRST_END] - table[:, FIRST_BEGIN] + 2, 0)


def sample_ids(shard: TokenizedShard, table: np.ndarray, cls: int, sep: int) -> Iterator[np.ndarray]:
    """Yield the ids of a few concatenated samples at a time: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` each."""
    for start in range(0, len(table), 2 * READS_PER_RELEASE):
        yield _ids_of_rows(shard.ids, table[start : start + 2 * READS_PER_RELEASE], cls, sep)
        shard.release()


def _ids_of_rows(source: np.ndarray, table: np.ndarray, cls: int, sep: int) -> np.ndarray:
    begins = np.zeros((len(table), 5), dtype=np.int64)
    lengths = np.ones_like(begins)
    for column, begin, end in ((1, FIRST_BEGIN, FIRST_END), (3, SECOND_BEGIN, SECOND_END)):
        begins[:, column] = table[:, begin]
        lengths[:, column] = table[:, end] - table[:, begin]
    lengths[:, 4] = lengths[:, 3] > 0
    places = np.cumsum(lengths.ravel()).reshape(lengths.shape) - lengths
    ids = source[concatenated_ranges(begins.ravel(), lengths.ravel())]
    ids[places[:, 0]] = cls
    ids[places[:, 2]] = sep
    ids[places[:, 4][lengths[:, 4] > 0]] = sep
    return ids
