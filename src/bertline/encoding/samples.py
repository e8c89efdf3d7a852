"""Samples for pretraining: pairs of segments for next sentence prediction, or one segment of full length.

Next sentence prediction follows Devlin et al. 2018 (arXiv 1810.04805) and Google's `create_pretraining_data.py`: a
document is cut into chunks of the target length; a chunk is cut in two at a random sentence; half of the time the
second part is exchanged for text of another document and goes back into the line. The target is the maximum, or with
the short-sequence probability a random length.

Three things differ, all where that program loses text or tells the answer. A pair that is too long is not truncated:
a chunk ends at the target, between two words, and the rest of the sentence begins the next chunk; a chunk inside one
long sentence is parted between two words. A second segment labelled random never comes from the same document. And it
is as long as the text it stands in for, so that the length of a sample does not give its label away.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.ranges import concatenated_ranges
from bertline.encoding.tokenization import TokenizedShard

PAIR_OBJECTIVES = ("next_sentence", "none")
FIRST_BEGIN, FIRST_END, SECOND_BEGIN, SECOND_END, IS_RANDOM, DOCUMENT = range(6)
SAMPLES_PER_BLOCK = 50_000


@dataclass(frozen=True)
class Samples:
    """Where the samples of a shard lie among its tokens.

    Attributes
    ----------
    table: int64 [N, 6], one row a sample: the tokens of the first segment, begin and end; those of the second (both 0:
        there is none); whether the second is random; the document of the first.
    without_partner: samples whose second segment should have been random, but the shard has no other document.
    unplaced_tokens: tokens in no sample. Only a shard that is a single token gives no pair.
    """

    table: np.ndarray
    without_partner: int = 0
    unplaced_tokens: int = 0


def make_samples(
    shard: TokenizedShard,
    continues_word: np.ndarray,
    *,
    sequence_length: int,
    pair_objective: str,
    short_sequence_probability: float,
    seed: int,
    shard_name: str,
) -> Samples:
    """Cut a shard into samples.

    Parameters
    ----------
    shard: its tokens.
    continues_word: bool [vocabulary], ids that continue a word; segments are not cut before them.
    sequence_length: the most tokens in a sample, [CLS] and [SEP] included.
    pair_objective: `next_sentence`, or `none` for single segments.
    short_sequence_probability: share of the chunks whose target is a random length.
    seed, shard_name: together with the sequence length they seed the random choices.
    """
    if pair_objective not in PAIR_OBJECTIVES:
        raise BertlineError(f"pair objective: given '{pair_objective}', allowed are {', '.join(PAIR_OBJECTIVES)}")
    digest = hashlib.sha256(f"{seed}/{shard_name}/{sequence_length}".encode()).digest()
    cutter = _Cutter(shard, continues_word, Random(digest), short_sequence_probability)  # noqa: S311 - not a secret
    if pair_objective == "next_sentence":
        rows = cutter.pairs(sequence_length - 3)
    else:
        rows = cutter.singles(sequence_length - 2)
    table = np.fromiter(rows, dtype=np.dtype((np.int64, 6)))
    return Samples(table, cutter.without_partner, cutter.unplaced_tokens)


class _Cutter:
    """The state of the cutting: the shard's boundaries as plain Python values, the random numbers, the counts."""

    def __init__(self, shard: TokenizedShard, continues_word: np.ndarray, random: Random, short: float) -> None:
        self.sentences: list[int] = shard.sentence_offsets.tolist()
        self.documents: list[int] = shard.sentence_offsets[shard.document_offsets].tolist()
        self.with_text = [i for i in range(len(self.documents) - 1) if self.documents[i] < self.documents[i + 1]]
        # One byte a token, 1 where a word begins: searched at the speed of memory.
        word_starts = ~continues_word[shard.ids]
        word_starts[shard.sentence_offsets[:-1]] = True
        self.word_starts = word_starts.tobytes()
        self.random = random
        self.short = short
        self.without_partner = 0
        self.unplaced_tokens = 0

    def below(self, bound: int) -> int:
        """A random integer of [0, bound). `Random.random` is the one draw whose stream Python promises to keep."""
        return int(self.random.random() * bound)

    def target(self, maximum: int) -> int:
        """The length of the next chunk."""
        return 2 + self.below(maximum - 1) if self.random.random() < self.short else maximum

    def end_of_chunk(self, begin: int, length: int, limit: int) -> int:
        """The last place to cut within `length` tokens from `begin`; inside a word only where it alone is longer."""
        if begin + length >= limit:
            return limit
        cut = self.word_starts.rfind(b"\1", begin + 1, begin + length + 1)
        return cut if cut > 0 else begin + length

    def random_sentence(self, begin: int, end: int) -> int:
        """A random sentence that begins in [begin, end); `end` where none does."""
        first, beyond = bisect_left(self.sentences, begin), bisect_left(self.sentences, end)
        return self.sentences[first + self.below(beyond - first)] if first < beyond else end

    def random_word(self, begin: int, end: int) -> int:
        """A random word that begins in [begin, end), or a random token where none does."""
        near = begin + self.below(end - begin)
        cut = self.word_starts.rfind(b"\1", begin, near + 1)
        if cut < 0:
            cut = self.word_starts.find(b"\1", near + 1, end)
        return cut if cut > 0 else near

    def other_text(self, position: int, length: int) -> tuple[int, int]:
        """At most `length` tokens of any document but the one at `position` in `with_text`.

        They begin with a random sentence, if possible one that leaves enough text behind it.
        """
        choice = self.below(len(self.with_text) - 1)
        document = self.with_text[choice + (choice >= position)]
        begin, end = self.documents[document], self.documents[document + 1]
        start = self.random_sentence(begin, max(begin, end - length) + 1)
        return start, self.end_of_chunk(start, length, end)

    def singles(self, maximum: int) -> Iterator[tuple[int, ...]]:
        """Single segments of at most `maximum` tokens: rows of `Samples.table`."""
        for document in self.with_text:
            begin, limit = self.documents[document], self.documents[document + 1]
            while begin < limit:
                end = self.end_of_chunk(begin, self.target(maximum), limit)
                yield begin, end, 0, 0, 0, document
                begin = end

    def pairs(self, maximum: int) -> Iterator[tuple[int, ...]]:
        """Pairs of together at most `maximum` tokens: rows of `Samples.table`."""
        partners = len(self.with_text) - 1
        for position, document in enumerate(self.with_text):
            first, limit = self.documents[document], self.documents[document + 1]
            begin = first
            while begin < limit:
                target = self.target(maximum)
                end = self.end_of_chunk(begin, target, limit)
                if not partners and end == begin + 1 < limit:
                    end += 1  # a token alone would find no second segment
                middle = self.random_sentence(begin + 1, end)
                # One sentence alone is parted where it leaves no room for another text, or where there is none.
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
                    # The last token of the shard's only document: the text before it is used once more.
                    yield max(first, end - target), begin, begin, end, 0, document
                else:
                    self.unplaced_tokens += 1
                begin = end


def sample_lengths(samples: Samples) -> np.ndarray:
    """Tokens of each sample with its [CLS] and [SEP]: int64 [N]."""
    first = samples.table[:, FIRST_END] - samples.table[:, FIRST_BEGIN]
    second = samples.table[:, SECOND_END] - samples.table[:, SECOND_BEGIN]
    return first + 2 + second + (second > 0)


def second_segment_starts(samples: Samples) -> np.ndarray:
    """Index of the first token of the second segment in its sample, 0 where there is none: int64 [N]."""
    has_second = samples.table[:, SECOND_END] > samples.table[:, SECOND_BEGIN]
    return np.where(has_second, samples.table[:, FIRST_END] - samples.table[:, FIRST_BEGIN] + 2, 0)


def sample_ids(shard: TokenizedShard, samples: Samples, cls: int, sep: int) -> Iterator[np.ndarray]:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, one sample after the other, in blocks of many samples."""
    source = np.append(shard.ids, np.array([cls, sep], dtype=shard.ids.dtype))
    cls_at, sep_at = len(shard.ids), len(shard.ids) + 1
    for start in range(0, len(samples.table), SAMPLES_PER_BLOCK):
        table = samples.table[start : start + SAMPLES_PER_BLOCK]
        begins = np.stack(np.broadcast_arrays(cls_at, table[:, FIRST_BEGIN], sep_at, table[:, SECOND_BEGIN], sep_at), 1)
        lengths = np.ones_like(begins)
        lengths[:, 1] = table[:, FIRST_END] - table[:, FIRST_BEGIN]
        lengths[:, 3] = table[:, SECOND_END] - table[:, SECOND_BEGIN]
        lengths[:, 4] = lengths[:, 3] > 0
        yield source[concatenated_ranges(begins.ravel(), lengths.ravel())]
