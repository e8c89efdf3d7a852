"""Samples for pretraining: pairs of segments, or one segment of full length.

Next sentence prediction follows Devlin et al. 2018 (arXiv 1810.04805) and Google's `create_pretraining_data.py`: a
document is split into chunks of the target length; a chunk is split in two at a random sentence; half of the time the
second part is replaced by text of another document and becomes the beginning of the next chunk. The target is the
maximum, or with the short-sequence probability a random length.

There are two differences, where that program loses text. A pair that is too long is not truncated: a chunk ends at the
target, between two words, and the rest of the sentence begins the next chunk. A document's single last sentence is
split between two words.

There are three more, where it reveals the label. A second segment labelled random is never from the same document. It
begins and ends as the text that it replaces does: at a sentence, or between two words; at the end of a document, or
before it. And it is as long, or fills the sample, as far as other documents allow. A document's last chunk is left
whole two times in three; otherwise each of its parts becomes the first segment of a sample with a random second one. A
last chunk of one sentence makes two samples: whole, and with its second part replaced. So half of the samples are
random, whatever the length of their first segments.

Sentence order prediction follows ALBERT (Lan et al. 2019, arXiv 1909.11942): the two parts of a chunk stay together,
and half of the time they are swapped, which is the label. So that the ends of the parts do not reveal it, a chunk is of
whole sentences: it ends at the last one that fits, or after the second, and a document's single last sentence goes
together with those before it. Only a sentence that is too long for a sample or alone in its document is divided.

Without a pair objective a sample is a chunk: text of one document, as in the DOC-SENTENCES of RoBERTa (Liu et al. 2019,
arXiv 1907.11692), but filled to the last word that fits instead of the last sentence. The end of a document is a
shorter sample; with packed sequences it costs nothing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np

from bertline.console import BertlineError
from bertline.encoding.sample_rows import LABEL, READS_PER_RELEASE, Row, sample_lengths
from bertline.encoding.tokenization import TokenizedShard
from bertline.spool import Spool

PAIR_OBJECTIVES = ("next_sentence", "sentence_order", "none")
SAMPLES_PER_BLOCK = 4096
# Text of scripts without spaces may have no boundary for hundreds of tokens: a longer word is split.
MAX_WHOLE_WORD_LENGTH = 16
# A document's last chunk that is random becomes two samples, one that is not becomes one: half of them are random.
SHARE_OF_LAST = 1 / 3
# Places that are tried for a random segment, and the part of its length, 1 / TOLERANCE, by which it may differ at once.
ATTEMPTS = 16
TOLERANCE = 10


@dataclass(frozen=True)
class Samples:
    """The samples of a shard, as positions among its tokens.

    Attributes:
        table: int64 [N, 6], memory-mapped, one row per sample: begin and end of the first segment's tokens; those of
            the second (both 0 if there is none); the label; the document of the first.
        tokens: of all samples, including [CLS] and [SEP].
        labelled: number of samples with label 1.
        without_partner: number of samples without a random second segment because the shard has no other document; of
            pairs in order, those whose parts are not whole sentences.
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
    passes: int,
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
    row = np.dtype((np.int64, 6))
    spool = Spool(folder, row)
    tokens = labelled = without_partner = unplaced_tokens = 0
    for number in range(passes):
        name = f"{seed}/{shard_name}/{sequence_length}" + (f"/{number}" if number else "")
        generator = Random(hashlib.sha256(name.encode()).digest())  # noqa: S311 - not a secret
        splitter = _Splitter(shard, generator, short_sequence_probability)
        rows = splitter.rows(pair_objective, sequence_length)
        while len(block := np.fromiter(islice(rows, SAMPLES_PER_BLOCK), dtype=row)):
            spool.append(block)
            tokens += int(sample_lengths(block).sum())
            labelled += int(block[:, LABEL].sum())
            shard.release()
        without_partner += splitter.without_partner
        unplaced_tokens += splitter.unplaced_tokens
    return Samples(spool.read(), tokens, labelled, without_partner, unplaced_tokens, spool)


class _Splitter:
    """State of the splitting: the shard's boundaries, the random numbers, the counts."""

    def __init__(self, shard: TokenizedShard, generator: Random, short_sequence_probability: float) -> None:
        self.shard = shard
        self.reads = 0
        # Memory views, whose elements are plain Python integers.
        self.sentences = shard.sentence_offsets.data
        self.documents = shard.document_offsets.data
        self.with_text = shard.documents_with_text.data
        self.word_starts = shard.word_starts
        self.has_others = len(self.with_text) > 1
        self.generator = generator
        self.short_sequence_probability = short_sequence_probability
        self.without_partner = 0
        self.unplaced_tokens = 0

    def rows(self, pair_objective: str, sequence_length: int) -> Iterator[Row]:
        """Yield the rows of `Samples.table`."""
        if pair_objective == "next_sentence":
            return self.pairs(sequence_length - 3)
        if pair_objective == "sentence_order":
            return self.ordered_pairs(sequence_length - 3)
        return self.singles(sequence_length - 2)

    def below(self, bound: int) -> int:
        """Return a random integer in [0, bound). Python only guarantees a stable stream for `Random.random`."""
        return int(self.generator.random() * bound)

    def target(self, maximum: int) -> int:
        """Return the length of the next chunk."""
        return 2 + self.below(maximum - 1) if self.generator.random() < self.short_sequence_probability else maximum

    def end_of_chunk(self, begin: int, length: int, limit: int) -> int:
        """Return the last word boundary within `length` tokens from `begin`; a long word is split."""
        end = begin + length
        if end >= limit:
            return limit
        place = self.word_starts.rfind(b"\1", max(begin + 1, end - MAX_WHOLE_WORD_LENGTH), end + 1)
        return place if place > 0 else end

    def end_of_sentences(self, begin: int, end: int, most: int, has_text_before: bool) -> int:
        """Return the last end of a sentence in (begin, end] but not the first, or else the second one in (begin, most].

        If there is none, return the first one, provided that the sentence has text before it to go with, or else `end`.
        """
        first = bisect_right(self.sentences, begin)
        last = max(first + 1, bisect_right(self.sentences, end) - 1)
        for number in (last, first) if has_text_before else (last,):
            if number < len(self.sentences) and self.sentences[number] <= most:
                return self.sentences[number]
        return end

    def earlier_start(self, first: int, begin: int, end: int, target: int, maximum: int) -> int:
        """Return `begin`, or, if [begin, end) is a single sentence, where a sentence before it in the document begins.

        This is the earliest within `target` tokens from `end`, or else the last one, if it is within `maximum`.
        """
        number = bisect_left(self.sentences, begin)
        if begin == first or self.sentences[number : number + 2].tolist() != [begin, end]:
            return begin
        start = self.sentences[bisect_left(self.sentences, max(first, end - target))]
        if start >= begin:
            start = self.sentences[number - 1]
        return start if end - start <= maximum else begin

    def is_between_sentences(self, place: int) -> bool:
        """Return whether a sentence ends or begins at a place."""
        return self.sentences[bisect_left(self.sentences, place)] == place

    def random_sentence(self, begin: int, end: int) -> int:
        """Return the beginning of a random sentence in [begin, end); `end` if there is none."""
        first, beyond = bisect_left(self.sentences, begin), bisect_left(self.sentences, end)
        return self.sentences[first + self.below(beyond - first)] if first < beyond else end

    def random_word(self, begin: int, end: int) -> int:
        """Return the beginning of a random word in [begin, end); `end` if none begins, or a token of a long word."""
        near = begin + self.below(end - begin)
        place = self.word_starts.rfind(b"\1", max(begin, near - MAX_WHOLE_WORD_LENGTH), near + 1)
        if place < 0:
            place = self.word_starts.find(b"\1", near + 1, min(end, near + MAX_WHOLE_WORD_LENGTH))
        if place < 0:
            place = near if end - begin > MAX_WHOLE_WORD_LENGTH else end
        return place

    def other_document(self, position: int) -> tuple[int, int]:
        """Return begin and end of a random document other than the one at `position` in `with_text`."""
        self.reads += 1
        if self.reads % READS_PER_RELEASE == 0:
            self.shard.release()
        choice = self.below(len(self.with_text) - 1)
        document = self.with_text[choice + (choice >= position)]
        return self.documents[document], self.documents[document + 1]

    def nearest_start(self, place: int, lowest: int, end: int, at_sentence: bool) -> int:
        """Return the beginning of a sentence if `at_sentence`, or else of a word, in [lowest, end) and near `place`."""
        if at_sentence:
            number = bisect_left(self.sentences, place)
            earlier, later = self.sentences[number - 1], self.sentences[number]
            if later < end and (earlier < lowest or later - place <= place - earlier):
                return later
            if earlier >= lowest:
                return earlier
        found = self.word_starts.find(b"\1", place, min(end, place + MAX_WHOLE_WORD_LENGTH))
        if found < 0:
            found = self.word_starts.rfind(b"\1", max(lowest, place - MAX_WHOLE_WORD_LENGTH), place)
        return found if found >= 0 else place

    def other_end(self, position: int, length: int, room: int, at_sentence: bool) -> tuple[int, int]:
        """Return begin and end of the end of another document, of about `length` and at most `room` tokens.

        It begins with a sentence if `at_sentence`, else with a word. Of several documents, the best fitting is taken.
        """
        best, least = (0, 0), room  # more than any difference, as `length` is at most `room`
        for _ in range(ATTEMPTS):
            begin, end = self.other_document(position)
            start = begin
            if end - begin > length:
                start = self.nearest_start(end - length, max(begin, end - room), end, at_sentence)
            difference = abs(end - start - length)
            if difference < least:
                best, least = (start, end), difference
            if TOLERANCE * difference <= length:
                break
        return best

    def other_text(self, position: int, room: int, at_sentence: bool) -> tuple[int, int]:
        """Return begin and end of text that fills `room` and does not end another document, if there is any.

        It begins with a random sentence if `at_sentence`, else with a random word.
        """
        own, best = self.with_text[position], (0, 0)
        for _ in range(ATTEMPTS):
            self.reads += 1
            if self.reads % READS_PER_RELEASE == 0:
                self.shard.release()
            if at_sentence:
                start = self.sentences[self.below(len(self.sentences) - 1)]
            else:
                start = self.random_word(0, self.sentences[-1])
            document = bisect_right(self.documents, start) - 1
            if document == own:
                continue
            end = self.documents[document + 1]
            if end - start > room:
                return start, self.end_of_chunk(start, room, end)
            if end - start > best[1] - best[0]:
                best = start, end
        if best == (0, 0):  # most of the text is one document
            begin, end = self.other_document(position)
            best = begin, self.end_of_chunk(begin, room, end)
        return best

    def singles(self, maximum: int) -> Iterator[Row]:
        """Yield single segments of at most `maximum` tokens: rows of `Samples.table`."""
        for document in self.with_text:
            begin, limit = self.documents[document], self.documents[document + 1]
            while begin < limit:
                end = self.end_of_chunk(begin, self.target(maximum), limit)
                yield begin, end, 0, 0, 0, document
                begin = end

    def ordered_pairs(self, maximum: int) -> Iterator[Row]:
        """Yield pairs of adjacent segments, half of them swapped: rows of `Samples.table`."""
        for document in self.with_text:
            first, limit = self.documents[document], self.documents[document + 1]
            begin = first
            while begin < limit:
                target = self.target(maximum)
                end = self.end_of_chunk(begin, target, limit)
                end = self.end_of_sentences(begin, end, min(begin + maximum, limit), begin > first)
                if end == begin + 1 < limit:
                    end += 1  # a single token is not a pair
                start = self.earlier_start(first, begin, end, target, maximum)
                middle = self.random_sentence(start + 1, end)
                if middle == end and end - start > 1:
                    middle = min(self.random_word(start + 1, end), end - 1)
                if middle == end:  # the last token of a document: use the text before it again
                    start, middle = max(first, end - target), begin
                if start == middle:
                    self.unplaced_tokens += 1
                else:
                    self.without_partner += not all(map(self.is_between_sentences, (start, middle, end)))
                    if self.generator.random() < 0.5:
                        yield middle, end, start, middle, 1, document
                    else:
                        yield start, middle, middle, end, 0, document
                begin = end

    def pairs(self, maximum: int) -> Iterator[Row]:
        """Yield pairs of at most `maximum` tokens in total: rows of `Samples.table`."""
        for position, document in enumerate(self.with_text):
            begin, limit = self.documents[document], self.documents[document + 1]
            while begin < limit:
                target = self.target(maximum)
                end = self.end_of_chunk(begin, target, limit)
                if not self.has_others and end == begin + 1 < limit:
                    end += 1  # a single token would have no second segment
                middle = self.random_sentence(begin + 1, end)
                splits_at_sentence = middle < end
                if not splits_at_sentence and end - begin > 1:
                    middle = self.random_word(begin + 1, end)
                    # A word is split if it leaves no room for another text, or if there is none.
                    if middle == end and (2 * (end - begin) > maximum or not self.has_others):
                        middle = begin + 1 + self.below(end - begin - 1)
                is_last = end == limit
                is_random = self.generator.random() < (SHARE_OF_LAST if is_last and splits_at_sentence else 0.5)
                if middle == end:
                    yield from self.pair_of_word(position, begin, end, maximum, is_random)
                elif not self.has_others or not (is_random or (is_last and not splits_at_sentence)):
                    self.without_partner += is_random
                    yield begin, middle, middle, end, 0, document
                elif is_last:
                    yield from self.last_pairs(position, begin, middle, end, target, splits_at_sentence)
                else:
                    other = self.other_text(position, target - (middle - begin), splits_at_sentence)
                    yield begin, middle, *other, 1, document
                    end = middle
                begin = end

    def pair_of_word(self, position: int, begin: int, end: int, maximum: int, is_random: bool) -> Iterator[Row]:
        """Yield the pair of a chunk [begin, end) that is a single word, if there is text to go with it."""
        document, room = self.with_text[position], maximum - (end - begin)
        first = self.documents[document]
        self.without_partner += is_random and not self.has_others
        if self.has_others and (is_random or begin == first):
            yield begin, end, *self.other_end(position, 1 + self.below(room), room, False), 1, document
        elif first < begin:
            yield max(first, end - maximum), begin, begin, end, 0, document  # use the text before it again
        else:
            self.unplaced_tokens += 1

    def last_pairs(
        self, position: int, begin: int, middle: int, end: int, target: int, splits_at_sentence: bool
    ) -> Iterator[Row]:
        """Yield the two pairs of a document's last chunk, which is split at `middle` and has a random partner."""
        document, first_length, second_length = self.with_text[position], middle - begin, end - middle
        if splits_at_sentence:
            yield begin, middle, *self.other_end(position, second_length, target - first_length, True), 1, document
            yield middle, end, *self.other_end(position, first_length, target - second_length, True), 1, document
        else:  # no sentence ends within: the parts would differ in their ends
            yield begin, middle, middle, end, 0, document
            yield begin, middle, *self.other_end(position, second_length, target - first_length, False), 1, document
