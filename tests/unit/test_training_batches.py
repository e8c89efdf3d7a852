"""Global batches and how they are divided."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from synthetic_dataset import write_dataset

from bertline.encoding.dataset import open_dataset
from bertline.encoding.masking import IGNORED, Masking
from bertline.training.data.batches import assign_to_ranks, evaluation_batch, global_batch, of_rank
from bertline.training.data.collation import micro_batches
from bertline.training.data.shapes import Batching, fix_shapes, row_shape


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return open_dataset(write_dataset(tmp_path_factory.mktemp("data") / "dataset"), 32, "train")


MASKING = Masking(0.15)


def batching_of(reader, batch, rows, *, length=32, world_size=1, fixed=False, **options):
    batching = Batching(length, rows, **options)
    samples = -(-len(batch.samples) // world_size)
    return fix_shapes(batching, reader, MASKING, batch, samples=samples) if fixed else batching


def divide(reader, batch, *, world_size, rows, **options):
    batching = batching_of(reader, batch, rows, world_size=world_size, **options)
    weights = [1.0] * world_size
    return [list(micro_batches(of_rank(batch, rank, weights), reader, batching)) for rank in range(world_size)]


def samples_of(micro):
    """Without the places that hold no sequence."""
    return micro.samples[micro.pair_labels != IGNORED].tolist()


def batch_of(reader, step=2, size=16):
    return global_batch(reader.lengths, start=step * size, size=size, seed=1, masking=MASKING)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_every_sample_of_a_global_batch_is_computed_once(reader, world_size, rows, packed, fixed):
    batch = batch_of(reader)
    ranks = divide(reader, batch, world_size=world_size, rows=rows, packed=packed, fixed=fixed)
    seen = [sample for rank in ranks for micro in rank for sample in samples_of(micro)]
    assert sorted(seen) == sorted(batch.samples.tolist())
    micros = [micro for rank in ranks for micro in rank]
    assert sum(micro.tokens for micro in micros) == batch.lengths.sum()
    assert all(micro.tokens <= rows * 32 for micro in micros)
    for micro in micros:
        assert micro.masked_counts.sum() <= micro.predictions
    if fixed:
        assert len({(micro.input_ids.shape, micro.samples.shape, micro.predictions) for micro in micros}) <= 10
    of_ranks = [sum(len(samples_of(micro)) for micro in rank) for rank in ranks]
    assert max(of_ranks) - min(of_ranks) <= 1


@pytest.mark.parametrize(
    ("batching", "masked"), [({}, False), ({"fixed": True}, True), ({"fixed": True, "mask_free": True}, False)]
)
def test_only_full_rows_go_without_an_attention_mask_and_only_where_that_is_allowed(reader, batching, masked):
    full, shorter = np.flatnonzero(reader.lengths == 24)[:2], np.flatnonzero(reader.lengths == 23)[:1]
    for samples, rows, expected in ((full, 2, masked), (np.concatenate([shorter, full[:1]]), 2, True)):
        batch = evaluation_batch(samples, reader.lengths, MASKING)
        [micro] = micro_batches(batch, reader, batching_of(reader, batch, rows, length=24, **batching))
        assert (micro.attention_mask is not None) == expected
    # A row that holds no sequence is not full.
    one = evaluation_batch(full[:1], reader.lengths, MASKING)
    batching = batching_of(reader, batch, 2, length=24, fixed=True, mask_free=True)
    [micro] = micro_batches(one, reader, batching)
    assert micro.attention_mask is not None


def test_only_the_largest_shape_has_a_program_without_an_attention_mask(reader):
    shapes = tuple(row_shape(2, width, reader, MASKING) for width in (16, 32))
    batching = Batching(32, 2, shapes=shapes, mask_free=True)
    for width, expected in ((16, True), (32, False)):
        batch = evaluation_batch(np.flatnonzero(reader.lengths == width)[:2], reader.lengths, MASKING)
        [micro] = micro_batches(batch, reader, batching)
        assert micro.input_ids.shape == (2, width)
        assert (micro.attention_mask is not None) == expected


def test_a_row_without_a_sequence_has_a_token_to_attend_to(reader):
    shape = row_shape(4, 32, reader, MASKING)
    batch = evaluation_batch(np.arange(3), reader.lengths, MASKING)
    [micro] = micro_batches(batch, reader, Batching(32, 4, shapes=(shape,)))
    assert micro.attention_mask.sum(1).tolist() == [*batch.lengths.tolist(), 1]


def test_rows_are_no_longer_than_the_sequence_length(reader):
    """Which is not always a multiple of 8, and may be all that a network has positions for."""
    batch = evaluation_batch(np.flatnonzero(reader.lengths == 30), reader.lengths, MASKING)
    widths = {micro.input_ids.shape[1] for micro in micro_batches(batch, reader, Batching(30, 4))}
    assert widths == {30}


@given(
    size=st.integers(1, 300),
    weights=st.lists(st.sampled_from([0.0, 0.2, 0.5, 1.0]), min_size=1, max_size=6).filter(any),
)
def test_ranks_get_samples_in_proportion_to_their_weights(size, weights):
    ranks = assign_to_ranks(size, tuple(weights))
    counts = np.bincount(ranks, minlength=len(weights))
    exact = size * np.array(weights) / sum(weights)
    assert counts.sum() == size
    assert np.abs(counts - exact).max() <= len(weights) / 2 + 1
    assert not counts[np.array(weights) == 0].any()
    # Every rank gets short and long ones: any stretch of the sorted samples is divided alike.
    half = np.bincount(ranks[: size // 2], minlength=len(weights))
    assert np.abs(half - exact / 2).max() <= len(weights) / 2 + 2


def test_equal_ranks_take_turns():
    assert assign_to_ranks(7, (1.0, 1.0, 1.0)).tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((1.0, 0.5), [0, 1, 0, 0, 1, 0, 0]),  # turns in the middle of each rank's share, not at its end
        ((0.5, 1.0), [1, 0, 1, 1, 0, 1, 1]),
        ((1.0, 0.0, 0.25), [0, 0, 2, 0, 0, 0, 0]),
    ],
)
def test_a_faster_rank_takes_more_turns_from_the_middle_of_its_share(weights, expected):
    assert assign_to_ranks(7, weights).tolist() == expected


def test_packed_sequences_follow_each_other(reader):
    batch = batch_of(reader, size=40)
    for fixed in (False, True):
        for micro in divide(reader, batch, world_size=1, rows=4, packed=True, fixed=fixed)[0]:
            starts = micro.attention_mask.cu_seqlens.tolist()
            assert starts[-1] == micro.input_ids.shape[1]
            assert max(np.diff(starts)) <= 32
            for number, sample in enumerate(samples_of(micro)):
                here = slice(starts[number], starts[number + 1])
                tokens = reader.gather([sample]).tokens.astype(np.int64)
                assert np.array_equal(micro.input_ids[0, here].numpy(), tokens)
                start = int(reader.gather([sample]).second_segment_start[0])
                assert micro.token_type_ids[0, here].tolist() == [0] * start + [1] * (len(tokens) - start)
                assert micro.attention_mask.positions[here].tolist() == list(range(len(tokens)))
                assert (micro.token_positions.sequence[here] == number).all()
            assert not micro.input_ids[0, micro.tokens :].any()


def test_packing_leaves_little_room(reader):
    batch = batch_of(reader, size=120)
    micros = divide(reader, batch, world_size=1, rows=16, packed=True, fixed=True)[0]
    assert len(micros) == -(-batch.lengths.sum() // (16 * 32))


def test_consecutive_steps_walk_through_the_epochs(reader):
    samples = np.concatenate([batch_of(reader, step=step, size=40).samples for step in range(6)])
    assert np.array_equal(np.sort(samples[:120]), np.arange(120))
    assert np.array_equal(np.sort(samples[120:]), np.arange(120))
    assert batch_of(reader, step=3, size=40).epochs.tolist() == [1] * 40


def test_rows_hold_their_samples_and_little_padding(reader):
    batch = batch_of(reader, size=100)
    for micro in divide(reader, batch, world_size=1, rows=10)[0]:
        width = micro.input_ids.shape[1]
        assert width % 8 == 0
        longest = 0
        for row, sample in enumerate(micro.samples.tolist()):
            tokens = reader.gather([sample]).tokens.astype(np.int64)
            longest = max(longest, len(tokens))
            assert np.array_equal(micro.input_ids[row, : len(tokens)].numpy(), tokens)
            assert not micro.input_ids[row, len(tokens) :].any()
            start = int(reader.gather([sample]).second_segment_start[0])
            expected = [0] * start + [1] * (len(tokens) - start) + [0] * (width - len(tokens))
            assert micro.token_type_ids[row].tolist() == expected
            assert micro.pair_labels[row] == reader.gather([sample]).next_sentence_labels[0]
            if micro.attention_mask is not None:
                assert micro.attention_mask[row].sum() == len(tokens)
        assert width - longest < 8
    assert (np.diff(batch.lengths) >= 0).all()


def test_a_batch_without_padding_has_no_mask(reader):
    full = np.flatnonzero(reader.lengths % 8 == 0)
    lengths = reader.lengths[full[:1]]
    batch = global_batch(lengths, start=0, size=1, seed=1, masking=MASKING)
    batch.samples[:] = full[0]
    assert divide(reader, batch, world_size=1, rows=4)[0][0].attention_mask is None


def test_a_single_segment_has_type_zero(reader):
    class OneSegment:
        card, lengths, mask_counts = reader.card, reader.lengths, None

        def gather(self, indices):
            content = reader.gather(indices)
            return content._replace(second_segment_start=np.zeros_like(content.second_segment_start))

    micro = divide(OneSegment(), batch_of(reader), world_size=1, rows=16)[0][0]
    assert not micro.token_type_ids.any()
    assert micro.input_ids.dtype == torch.int64
