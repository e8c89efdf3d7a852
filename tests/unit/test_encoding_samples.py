"""Samples: nothing lost, nothing empty, labels that say the truth."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_leak import leak

from bertline.console import BertlineError
from bertline.encoding.ranges import concatenated_ranges, offsets_of, offsets_of_blocks
from bertline.encoding.sample_rows import sample_ids, sample_lengths, second_segment_starts
from bertline.encoding.samples import PAIR_OBJECTIVES, Samples, make_samples
from bertline.encoding.tokenization import TokenizedShard

CLS, SEP, PIECE, FIRST_WORD = 0, 1, 2, 3  # ids of the made-up vocabulary; PIECE continues a word
VOCAB_SIZE = 1 << 16

Document = list[list[int]]  # sentences of ids


def make_shard(documents: list[Document]) -> TokenizedShard:
    sentences = [sentence for document in documents for sentence in document]
    ids = np.array([index for sentence in sentences for index in sentence], dtype=np.uint16)
    sentence_offsets = np.cumsum([0, *map(len, sentences)])
    document_offsets = np.cumsum([0, *(sum(map(len, document)) for document in documents)])
    word_starts = ids != PIECE
    word_starts[sentence_offsets[:-1]] = True
    with_text = np.flatnonzero(np.diff(document_offsets))
    return TokenizedShard(ids, word_starts.tobytes(), sentence_offsets, document_offsets, with_text)


def samples_of(shard: TokenizedShard, length: int, objective: str, short: float = 0.1, **changes: Any) -> Samples:
    settings = {"seed": 7, "passes": 1, "shard_name": "00000", **changes}
    return make_samples(
        shard,
        Path(tempfile.gettempdir()),
        sequence_length=length,
        pair_objective=objective,
        short_sequence_probability=short,
        **settings,
    )


def long_documents(count: int, sentences: int, words: int, seed: int = 0) -> list[Document]:
    """Every token is another word: a token's id tells its place."""
    random = np.random.default_rng(seed)
    following = iter(range(FIRST_WORD, VOCAB_SIZE))

    def sentence() -> list[int]:
        return [next(following) for _ in range(random.integers(1, words + 1))]

    return [[sentence() for _ in range(sentences)] for _ in range(count)]


SENTENCE = st.lists(st.sampled_from([PIECE, PIECE, FIRST_WORD, FIRST_WORD + 1]), min_size=1, max_size=40)
DOCUMENTS = st.lists(st.lists(SENTENCE, max_size=6), max_size=6)


@given(documents=DOCUMENTS, length=st.integers(16, 48), short=st.sampled_from([0.0, 0.1, 1.0]))
@settings(max_examples=100, deadline=None)
def test_pairs_hold_every_token_once_and_their_labels_are_true(
    documents: list[Document], length: int, short: float
) -> None:
    shard = make_shard(documents)
    samples = samples_of(shard, length, "next_sentence", short)
    tokens_before = shard.document_offsets
    document_of = np.repeat(np.arange(len(documents)), np.diff(tokens_before))
    with_text = len(np.unique(document_of))
    seen = np.zeros(len(shard.ids), dtype=int)
    reused, previous = 0, (0, 0)
    for a, a_end, b, b_end, is_random, document in samples.table.tolist():
        assert a < a_end
        assert b < b_end
        assert set(document_of[a:a_end]) == {document}
        if is_random:
            assert len(set(document_of[b:b_end])) == 1
            assert document not in document_of[b:b_end]
        else:
            assert b == a_end
            assert set(document_of[b:b_end]) == {document}
            seen[b:b_end] += 1
        new = seen[a:a_end] == 0
        reused += int((~new).sum())
        # A last chunk of one sentence is used whole, and with another second part; a single word follows its text.
        assert new.all() or ((a, a_end) == previous if is_random else not any(shard.word_starts[b + 1 : b_end]))
        seen[a:a_end] = 1
        previous = a, a_end
    assert (sample_lengths(samples.table) <= length).all()
    if with_text > 1:
        assert (seen == 1).all()
        assert (samples.unplaced_tokens, samples.without_partner) == (0, 0)
    else:
        # A lone document has no partner: its last token may need the text before it once more.
        assert (seen == 0).sum() == samples.unplaced_tokens == (len(shard.ids) == 1)
        assert not samples.table[:, 4].any()
        assert reused < length


@given(documents=DOCUMENTS, length=st.integers(16, 48), short=st.sampled_from([0.0, 0.1, 1.0]))
@settings(max_examples=100, deadline=None)
def test_ordered_pairs_hold_every_token_and_their_labels_are_true(
    documents: list[Document], length: int, short: float
) -> None:
    shard = make_shard(documents)
    samples = samples_of(shard, length, "sentence_order", short)
    document_of = np.repeat(np.arange(len(documents)), np.diff(shard.document_offsets))
    seen = np.zeros(len(shard.ids), dtype=int)
    for a, a_end, b, b_end, is_swapped, document in samples.table.tolist():
        assert a < a_end
        assert b < b_end
        assert (b_end == a) if is_swapped else (a_end == b)
        begin, end = min(a, b), max(a_end, b_end)
        assert set(document_of[begin:end]) == {document}
        seen[begin:end] += 1
    assert (sample_lengths(samples.table) <= length).all()
    # Only a document of one token gives no pair; a last sentence alone takes text from before it once more.
    lone = np.diff(shard.document_offsets) == 1
    assert samples.unplaced_tokens == lone.sum() == (seen == 0).sum()
    assert samples.labelled == samples.table[:, 4].sum()


def test_half_of_the_ordered_pairs_are_swapped() -> None:
    samples = samples_of(make_shard(long_documents(20, 100, 20)), 128, "sentence_order")
    assert 0.4 < samples.table[:, 4].mean() < 0.6


@given(documents=DOCUMENTS, length=st.integers(16, 48), short=st.sampled_from([0.0, 0.1, 1.0]))
@settings(max_examples=100, deadline=None)
def test_single_segments_hold_every_token_once_in_order(documents: list[Document], length: int, short: float) -> None:
    shard = make_shard(documents)
    samples = samples_of(shard, length, "none", short)
    tokens_before = shard.document_offsets
    document_of = np.repeat(np.arange(len(documents)), np.diff(tokens_before))
    begins, ends = samples.table[:, 0], samples.table[:, 1]
    assert concatenated_ranges(begins, ends - begins).tolist() == list(range(len(shard.ids)))
    assert (begins < ends).all()
    assert (document_of[begins] == document_of[ends - 1]).all()
    assert (document_of[begins] == samples.table[:, 5]).all()
    assert (sample_lengths(samples.table) <= length).all()
    assert not second_segment_starts(samples.table).any()
    assert not samples.table[:, 4].any()


@pytest.mark.parametrize("objective", PAIR_OBJECTIVES)
def test_segments_begin_with_words(objective: str) -> None:
    random = np.random.default_rng(1)
    documents = [[[FIRST_WORD, *random.choice([PIECE, FIRST_WORD], 30).tolist()] for _ in range(20)] for _ in range(10)]
    shard = make_shard(documents)
    table = samples_of(shard, 64, objective).table
    assert PIECE not in shard.ids[table[:, 0]]
    if objective != "none":
        assert PIECE not in shard.ids[table[:, 2]]


def test_full_length_samples_are_full_but_for_the_end_of_each_document() -> None:
    documents = long_documents(5, 40, 30)
    samples = samples_of(make_shard(documents), 64, "none", short=0.0)
    is_last = np.append(np.diff(samples.table[:, 5]) > 0, True)
    assert (sample_lengths(samples.table)[~is_last] == 64).all()
    assert is_last.sum() == 5


def test_pairs_are_full_but_for_the_ends_of_documents() -> None:
    samples = samples_of(make_shard(long_documents(20, 100, 30)), 64, "next_sentence", short=0.0)
    assert (sample_lengths(samples.table) == 64).mean() > 0.9


def test_about_half_of_the_pairs_are_random_and_splits_fall_between_sentences() -> None:
    shard = make_shard(long_documents(20, 100, 20))
    samples = samples_of(shard, 128, "next_sentence", passes=8)
    assert 0.45 < samples.table[:, 4].mean() < 0.55
    assert np.isin(samples.table[:, 1], shard.sentence_offsets).mean() > 0.9
    assert np.isin(samples.table[:, 2], shard.sentence_offsets).mean() > 0.9


def test_the_length_of_a_sample_does_not_tell_its_label() -> None:
    """With documents shorter than the target, a random segment that filled the sample would give itself away."""
    samples = samples_of(make_shard(long_documents(400, 12, 15)), 512, "next_sentence")
    lengths, is_random = sample_lengths(samples.table), samples.table[:, 4].astype(bool)
    # The best that a threshold on the length can do, beyond always giving the more frequent label.
    thresholds = np.unique(lengths)[:, None]
    accuracy = ((lengths > thresholds) == is_random).mean(axis=1)
    best = max(accuracy.max(), (1 - accuracy).max())
    assert best - max(is_random.mean(), 1 - is_random.mean()) < 0.05


@pytest.mark.parametrize("length", [48, 512])
@pytest.mark.parametrize("sentences", [1, 3, 12])
def test_the_form_of_a_sample_does_not_tell_its_label(length: int, sentences: int) -> None:
    """Neither its length, nor those of its segments, nor the tokens at its end."""
    random = np.random.default_rng(1)
    stop, last_stop = FIRST_WORD, FIRST_WORD + 1

    def document() -> Document:
        words = [random.integers(FIRST_WORD + 2, VOCAB_SIZE, random.integers(3, 25)).tolist() for _ in range(count)]
        return [[*sentence, last_stop if number + 1 == count else stop] for number, sentence in enumerate(words)]

    documents = []
    for _ in range(1500 // sentences):
        count = int(random.integers(1, sentences + 1))
        documents.append(document())
    shard = make_shard(documents)
    table = samples_of(shard, length, "next_sentence", passes=2).table
    lengths, ends = sample_lengths(table), table[:, 3]
    second = lengths - second_segment_starts(table) - 1
    last = [shard.ids[ends - back].astype(np.int64) for back in (1, 2)]
    features = np.stack([lengths, second, lengths == length, *last], axis=1)
    assert 0.45 < table[:, 4].mean() < 0.55
    assert leak(features, table[:, 4], table[:, 5]) < 0.6


def documents_of_sentences(count: int, most: int) -> list[Document]:
    """Sentences of 3 to 24 words and a full stop, up to `most` in a document."""
    random = np.random.default_rng(1)
    return [
        [
            [*random.integers(FIRST_WORD + 1, VOCAB_SIZE, random.integers(3, 25)).tolist(), FIRST_WORD]
            for _ in range(int(random.integers(2, most + 1)))
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize("length", [64, 128, 512])
@pytest.mark.parametrize("most", [3, 40])
def test_the_form_of_ordered_segments_does_not_tell_whether_they_are_swapped(length: int, most: int) -> None:
    """Neither their lengths nor the tokens at their ends."""
    shard = make_shard(documents_of_sentences(3000 // most, most))
    samples = samples_of(shard, length, "sentence_order", passes=2)
    table = samples.table
    first, second = table[:, 1] - table[:, 0], table[:, 3] - table[:, 2]
    last = [shard.ids[table[:, column] - 1].astype(np.int64) for column in (1, 3)]
    features = np.stack([first, second, first + second, *last], axis=1)
    assert leak(features, table[:, 4], table[:, 5]) < 0.6
    assert samples.without_partner < 0.02 * len(table)
    assert (first + second).sum() < 1.25 * 2 * len(shard.ids)


def test_ordered_pairs_of_single_sentences_are_counted() -> None:
    samples = samples_of(make_shard(documents_of_sentences(100, 2)[:1] + [[[5, 6, 7, 3]]] * 30), 64, "sentence_order")
    assert samples.without_partner == 30


def test_ordered_pairs_that_begin_or_end_within_a_sentence_are_counted() -> None:
    shard = make_shard(100 * [[list(range(3, 43)), list(range(50, 55)), list(range(60, 65))]])
    samples = samples_of(shard, 32, "sentence_order", short=0.0)
    edges, table = set(shard.sentence_offsets.tolist()), samples.table[:, :4].tolist()
    assert samples.without_partner == sum(not edges.issuperset(row) for row in table) > 100


@pytest.mark.parametrize("objective", PAIR_OBJECTIVES)
def test_samples_of_text_without_spaces_are_full(objective: str) -> None:
    """A sentence in byte-level BPE is then a single word."""
    documents = [[[FIRST_WORD, *[PIECE] * 60] for _ in range(40)] for _ in range(10)]
    samples = samples_of(make_shard(documents), 64, objective, short=0.0)
    is_last = np.append(np.diff(samples.table[:, 5]) > 0, True)
    assert (sample_lengths(samples.table)[~is_last] >= 62).mean() > 0.9


def test_short_sequences_come_as_often_as_asked() -> None:
    shard = make_shard(long_documents(5, 400, 20))
    lengths = sample_lengths(samples_of(shard, 128, "none", short=0.25).table)
    assert 0.2 < (lengths < 128).mean() < 0.3
    assert len(np.unique(lengths)) > 20


def test_short_sequences_have_every_length_equally_often() -> None:
    shard = make_shard([[[FIRST_WORD] * 200_000]])
    lengths, counts = np.unique(sample_lengths(samples_of(shard, 32, "none", short=1.0).table[:-1]), return_counts=True)
    assert lengths.tolist() == list(range(4, 33))  # two tokens and more, with [CLS] and [SEP]
    assert counts.min() > 0.7 * counts.mean()


def test_a_last_sentence_takes_as_much_text_from_before_it_as_a_chunk_has() -> None:
    """The targets are 2 to 61 tokens, equally often; that many hold a third of whole sentences, but at least two."""
    shard = make_shard([[[FIRST_WORD] * 3] * 40] * 2000)
    table = samples_of(shard, 64, "sentence_order", short=1.0).table
    begins, ends = table[:, [0, 2]].min(axis=1), table[:, [1, 3]].max(axis=1)
    again = np.append(False, begins[1:] < ends[:-1])
    assert (ends[again] % 120 == 0).all()
    assert again.sum() > 100
    expected = np.mean([max(6, 3 * (target // 3)) for target in range(2, 62)])
    assert (ends - begins)[again].mean() == pytest.approx(expected, rel=0.1)


def test_random_choices_depend_on_seed_shard_and_length_only() -> None:
    shard = make_shard(long_documents(10, 30, 20))
    first = samples_of(shard, 64, "next_sentence").table
    assert (first == samples_of(shard, 64, "next_sentence").table).all()
    other = samples_of(shard, 64, "next_sentence", shard_name="00001").table
    assert first.shape != other.shape or (first != other).any()


def test_a_lone_document_counts_the_partners_it_lacks() -> None:
    samples = samples_of(make_shard(long_documents(1, 60, 20)), 64, "next_sentence")
    assert 0.2 < samples.without_partner / len(samples.table) < 0.8


def test_an_unknown_objective_is_one_line() -> None:
    with pytest.raises(BertlineError, match="given 'order', allowed are next_sentence, sentence_order, none"):
        samples_of(make_shard([]), 64, "order")


def test_ids_are_laid_out_with_cls_and_sep() -> None:
    shard = make_shard([[[10, 11], [12]], [[13]]])
    table = np.array([[0, 2, 3, 4, 1, 0], [2, 3, 0, 0, 0, 0]])
    ids = np.concatenate(list(sample_ids(shard, table, CLS, SEP)))
    assert ids.tolist() == [CLS, 10, 11, SEP, 13, SEP, CLS, 12, SEP]
    assert sample_lengths(table).tolist() == [6, 3]
    assert second_segment_starts(table).tolist() == [4, 0]


@pytest.mark.parametrize("blocks", [[], [[]], [[3, 1], [], [], [2]], [[], [5]]])
def test_offsets_of_blocks_are_those_of_the_whole(blocks: list[list[int]]) -> None:
    """Also if a block is empty."""
    found = np.concatenate(list(offsets_of_blocks(np.array(block, dtype=np.int64) for block in blocks)))
    assert found.tolist() == offsets_of(np.array([*chain.from_iterable(blocks)], dtype=np.int64)).tolist()


def test_the_end_of_every_other_document_may_be_a_random_next_segment() -> None:
    pairs = set()
    shard = make_shard([[[FIRST_WORD] * 5] * sentences for sentences in (40, 38, 42, 41)])
    ends = shard.document_offsets[1:].tolist()
    for seed in range(50):
        for _, _, _, end, label, document in samples_of(shard, 32, "next_sentence", seed=seed).table.tolist():
            if label and end in ends:
                pairs.add((document, ends.index(end)))
    assert pairs == {(one, other) for one in range(4) for other in range(4) if one != other}


def word(tokens: int) -> list[int]:
    return [FIRST_WORD, *[PIECE] * (tokens - 1)]


def words(*lengths: int) -> list[int]:
    return [*chain.from_iterable(map(word, lengths))]


def rows_of(documents: list[Document], maximum: int, objective: str = "next_sentence", **changes: Any) -> np.ndarray:
    """Many samples with at most `maximum` tokens of text: begins and ends of the segments, the label, the document."""
    specials = 2 if objective == "none" else 3
    changes = {"short": 0.0, "passes": 200, **changes}
    return samples_of(make_shard(documents), maximum + specials, objective, **changes).table


@pytest.mark.parametrize(
    ("maximum", "sentences", "spans"), [(40, 5, {(0, 40), (10, 50)}), (39, 4, {(0, 30), (10, 40)})]
)
def test_a_last_sentence_takes_all_whole_sentences_before_it_that_fit(
    maximum: int, sentences: int, spans: set[tuple[int, int]]
) -> None:
    table = rows_of([[[FIRST_WORD] * 10] * sentences], maximum, "sentence_order")
    begins, ends = table[:, [0, 2]].min(axis=1), table[:, [1, 3]].max(axis=1)
    assert set(zip(begins.tolist(), ends.tolist(), strict=True)) == spans


def test_a_last_sentence_takes_the_one_before_it_also_if_both_are_longer_than_a_short_chunk() -> None:
    shard = make_shard([[*[[FIRST_WORD] * 20] * 8, [FIRST_WORD] * 3]] * 20)
    samples = samples_of(shard, 45, "sentence_order", short=1.0, passes=10)
    assert samples.without_partner == 0  # none of its samples is a divided sentence


@pytest.mark.parametrize("stays", [0, 1])
@pytest.mark.parametrize(
    ("begins", "room", "expected"),
    [
        ((50, 24, 18), 30, 18),
        ((50, 22, 15), 30, 22),
        ((50, 23, 17), 30, 17),  # of two that are as near, the shorter
        ((50, 22, 10), 22, 22),  # it fills the sample
        ((50, 22, 10), 21, 10),
        ((50, 26), 30, 26),
        ((50, 31), 30, 20),  # no sentence begins where it fits: a word does
        ((50,), 50, 50),
    ],
)
def test_the_end_of_another_document_is_as_long_as_the_sentence_that_it_replaces(
    stays: int, begins: tuple[int, ...], room: int, expected: int
) -> None:
    """As nearly as its sentences allow: these begin so many tokens before its end; the replaced one has 20 tokens."""
    other = [[FIRST_WORD] * (begin - end) for begin, end in zip(begins, (*begins[1:], 0), strict=True)]
    last = [[FIRST_WORD] * 10, [FIRST_WORD] * 20]
    table = rows_of([other, last if stays == 0 else last[::-1]], 10 + room)
    kept = 50 if stays == 0 else 70
    random = table[(table[:, 0] == kept) & (table[:, 1] == kept + 10) & (table[:, 4] == 1)]
    assert len(random) > 20
    assert {*map(tuple, random[:, 2:4].tolist())} == {(50 - expected, 50)}


@pytest.mark.parametrize(
    ("other", "room", "expected"),
    [
        ((7, 18), 30, 18),
        ((4, 3, 18), 30, 18),  # no nearer word but a longer text: 21 tokens
        ((9, 23, 2), 25, 25),  # it fills the sample
        ((9, 23, 2), 24, 20),  # no word begins where it fits: one is divided
        ((10, 22, 4), 30, 26),  # a word begins behind, too far away
        ((25,), 30, 25),  # the shard's first word
        ((14, 36), 50, 36),
        ((13, 37), 50, 20),  # a word begins before, too far away
    ],
)
def test_the_end_of_another_document_is_as_long_as_the_words_that_it_replaces(
    other: tuple[int, ...], room: int, expected: int
) -> None:
    """As nearly as its words allow, whose lengths are given; the replaced word has 20 tokens."""
    size = sum(other)
    table = rows_of([[words(*other)], [words(10, 20)]], 10 + room)
    random = table[(table[:, 0] == size) & (table[:, 1] == size + 10) & (table[:, 4] == 1)]
    assert len(random) > 20
    assert {*map(tuple, random[:, 2:4].tolist())} == {(size - expected, size)}


def test_another_document_that_differs_by_a_tenth_is_taken_at_once() -> None:
    """Or else few documents, which fit exactly, would be the random segments of all others."""
    others = [[[FIRST_WORD] * length] for length in (20, 22, 23)] * 10
    table = rows_of([[[FIRST_WORD] * 10, [FIRST_WORD] * 20], *others], 40, passes=1000)
    random = table[(table[:, 0] == 0) & (table[:, 1] == 10) & (table[:, 4] == 1)]
    lengths = random[:, 3] - random[:, 2]
    assert {*lengths.tolist()} == {20, 22}
    assert 0.3 < (lengths == 22).mean() < 0.7


def test_a_document_of_a_word_goes_with_text_of_any_length_that_fits() -> None:
    table = rows_of([[word(5)], [[FIRST_WORD] * 4] * 20], 20, passes=1000)
    of_word = table[table[:, 5] == 0]
    assert (of_word[:, :2] == (0, 5)).all()
    assert of_word[:, 4].all()
    assert {*(of_word[:, 3] - of_word[:, 2]).tolist()} == {*range(1, 16)}


def test_a_word_at_the_end_goes_half_of_the_time_with_the_text_before_it() -> None:
    """As much of it as fits."""
    table = rows_of([[[FIRST_WORD] * 20, word(5)], [[FIRST_WORD] * 40]], 20, passes=1000)
    before = (table[:, 0] == 0) & (table[:, 3] == 20) & (table[:, 4] == 0)  # a chunk that ends where the word begins
    of_word = table[np.flatnonzero(before) + 1]
    is_random = of_word[:, 4] == 1
    assert (of_word[is_random, :2] == (20, 25)).all()
    assert (of_word[~is_random, :4] == (5, 20, 20, 25)).all()
    assert 0.42 < is_random.mean() < 0.58


def test_a_text_of_a_single_token_gives_no_pair() -> None:
    samples = samples_of(make_shard([[[FIRST_WORD]]]), 32, "next_sentence")
    assert (len(samples.table), samples.unplaced_tokens) == (0, 1)


@pytest.mark.parametrize(("maximum", "tokens", "is_whole"), [(20, 10, True), (20, 11, False), (21, 11, False)])
def test_a_word_is_divided_if_another_text_would_have_less_room_than_it(
    maximum: int, tokens: int, is_whole: bool
) -> None:
    table = rows_of([[word(tokens)], [[FIRST_WORD] * 40]], maximum)
    assert ((table[table[:, 5] == 0, :2] == (0, tokens)).all(axis=1)).any() == is_whole


def test_the_only_word_of_a_lone_document_is_divided_anywhere() -> None:
    table = rows_of([[word(12)]], 20)
    assert {*table[:, 1].tolist()} == {*range(1, 12)}
    assert (table[:, 1] == table[:, 2]).all()


def test_a_short_chunk_ends_between_words() -> None:
    shard = make_shard([[words(*[1, 2] * 20)] * 5] * 5)
    table = samples_of(shard, 32, "next_sentence", short=1.0, passes=5).table
    ends = table[table[:, 4] == 0, 3]
    assert PIECE not in shard.ids[ends[ends < len(shard.ids)]]


def test_half_of_the_pairs_of_a_lone_document_lack_a_partner_also_the_last_word() -> None:
    samples = samples_of(make_shard([[[FIRST_WORD] * 21]]), 23, "next_sentence", short=0.0, passes=300)
    assert len(samples.table) == 600  # of 20 tokens, then the last word with the text before it
    assert 0.42 < samples.without_partner / 600 < 0.58


def test_a_random_text_that_does_not_end_a_document_begins_with_any_sentence_of_another_and_fills_the_sample() -> None:
    first, other = [[FIRST_WORD] * 10] * 12, [[FIRST_WORD] * 10] * 60
    table = rows_of([first, other], 40, passes=1000)
    random = table[(table[:, 0] < 120 - 40) & (table[:, 4] == 1)]  # in no last chunk
    assert (sample_lengths(random) == 43).all()
    assert (random[:, 3] < 720).all()  # a text that ends a document is beside another at the end of one
    assert {*random[:, 2].tolist()} == {*range(120, 720 - 10, 10)}


def test_a_random_text_within_a_sentence_begins_with_any_word_of_another_document() -> None:
    table = rows_of([[[FIRST_WORD] * 100], [[FIRST_WORD] * 200]], 40, passes=1000)
    random = table[(table[:, 0] < 100 - 40) & (table[:, 4] == 1)]
    assert {*range(100, 110)} < {*random[:, 2].tolist()}
    assert (sample_lengths(random) == 43).all()


def test_of_random_texts_that_are_too_short_the_longest_is_taken() -> None:
    others = [*[[[FIRST_WORD] * 9]] * 100, *[[[FIRST_WORD] * 5]] * 30]
    table = rows_of([[[FIRST_WORD] * 10] * 12, *others], 40, passes=100)
    random = table[(table[:, 0] < 120 - 40) & (table[:, 5] == 0) & (table[:, 4] == 1)]
    assert len(random) > 50
    assert {*(random[:, 3] - random[:, 2]).tolist()} == {9}


def test_beside_a_document_with_most_of_the_text_another_begins_the_random_text() -> None:
    """It ends with the last word that fits: these have four tokens."""
    table = rows_of([[[FIRST_WORD] * 10] * 5000, [words(*[4] * 25)]], 40, passes=1)
    random = table[(table[:, 0] < 50_000 - 40) & (table[:, 5] == 0) & (table[:, 4] == 1)]
    assert (random[:, 2] == 50_000).all()
    lengths = zip((random[:, 1] - random[:, 0]).tolist(), (random[:, 3] - random[:, 2]).tolist(), strict=True)
    assert {*lengths} == {(10, 28), (20, 20), (30, 8)}


def test_a_random_text_in_a_short_sample_is_short() -> None:
    samples = samples_of(make_shard(long_documents(20, 100, 20)), 128, "next_sentence", short=1.0)
    random = samples.table[samples.table[:, 4] == 1]
    assert (sample_lengths(random) == 128).mean() < 0.1
