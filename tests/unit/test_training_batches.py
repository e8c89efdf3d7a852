"""Global batches and how they are divided."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fabricated_dataset import write_dataset

from bertline.encoding.dataset import open_dataset
from bertline.training.batches import global_batch, micro_batches
from bertline.training.masking import Masking


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return open_dataset(write_dataset(tmp_path_factory.mktemp("data") / "dataset"), 32, "train")


def divide(reader, batch, *, world_size, micro_batch_size):
    return [
        list(
            micro_batches(
                batch, reader, rank=rank, world_size=world_size, micro_batch_size=micro_batch_size, padding_id=0
            )
        )
        for rank in range(world_size)
    ]


def batch_of(reader, step=2, size=16):
    return global_batch(reader.lengths, start=step * size, size=size, seed=1, masking=Masking(0.15))


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("micro_batch_size", [1, 3, 64])
def test_every_sample_of_a_global_batch_is_computed_once(reader, world_size, micro_batch_size):
    batch = batch_of(reader)
    ranks = divide(reader, batch, world_size=world_size, micro_batch_size=micro_batch_size)
    seen = [sample for rank in ranks for micro in rank for sample in micro.samples.tolist()]
    assert sorted(seen) == sorted(batch.samples.tolist())
    assert all(len(micro.samples) <= micro_batch_size for rank in ranks for micro in rank)
    rows = [sum(len(micro.samples) for micro in rank) for rank in ranks]
    assert max(rows) - min(rows) <= 1


def test_consecutive_steps_walk_through_the_epochs(reader):
    samples = np.concatenate([batch_of(reader, step=step, size=40).samples for step in range(6)])
    assert np.array_equal(np.sort(samples[:120]), np.arange(120))
    assert np.array_equal(np.sort(samples[120:]), np.arange(120))
    assert batch_of(reader, step=3, size=40).epochs.tolist() == [1] * 40


def test_rows_hold_their_samples_and_little_padding(reader):
    batch = batch_of(reader, size=100)
    for micro in divide(reader, batch, world_size=1, micro_batch_size=10)[0]:
        width = micro.input_ids.shape[1]
        assert width % 8 == 0
        longest = 0
        for row, sample in enumerate(micro.samples.tolist()):
            tokens = reader.tokens(sample).astype(np.int64)
            longest = max(longest, len(tokens))
            assert np.array_equal(micro.input_ids[row, : len(tokens)].numpy(), tokens)
            assert not micro.input_ids[row, len(tokens) :].any()
            start = int(reader.second_segment_start[sample])
            expected = [0] * start + [1] * (len(tokens) - start) + [0] * (width - len(tokens))
            assert micro.token_type_ids[row].tolist() == expected
            assert micro.pair_labels[row] == reader.next_sentence_labels[sample]
            if micro.attention_mask is not None:
                assert micro.attention_mask[row].sum() == len(tokens)
        assert width - longest < 8
    assert (np.diff(batch.lengths) >= 0).all()


def test_a_batch_without_padding_has_no_mask(reader):
    full = np.flatnonzero(reader.lengths % 8 == 0)
    lengths = reader.lengths[full[:1]]
    batch = global_batch(lengths, start=0, size=1, seed=1, masking=Masking(0.15))
    batch.samples[:] = full[0]
    assert divide(reader, batch, world_size=1, micro_batch_size=4)[0][0].attention_mask is None


def test_a_single_segment_has_type_zero(reader):
    class OneSegment:
        lengths = reader.lengths

        def gather(self, indices):
            content = reader.gather(indices)
            return content._replace(second_segment_start=np.zeros_like(content.second_segment_start))

    micro = divide(OneSegment(), batch_of(reader), world_size=1, micro_batch_size=16)[0][0]
    assert not micro.token_type_ids.any()
    assert micro.input_ids.dtype == torch.int64
