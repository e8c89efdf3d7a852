"""The growing global batch: sizes by their definition, positions as running sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_dataset import recipe

from bertline.encoding.masking import Masking
from bertline.training.data.batch_size_warmup import BatchSizeWarmup, batch_size_warmup_of
from bertline.training.data.batches import global_batch

WARMUPS = st.builds(
    lambda first, more, steps: BatchSizeWarmup(first, first + more, steps),
    st.integers(1, 600),
    st.integers(0, 3000),
    st.integers(0, 200),
)


@given(WARMUPS)
def test_positions_are_the_running_sums_of_the_sizes(warmup):
    position = 0
    for step in range(warmup.steps + 5):
        assert warmup.position_at(step) == position
        position += warmup.batch_size_at(step)


@given(WARMUPS)
def test_sizes_grow_linearly_in_whole_units(warmup):
    unit = math.gcd(warmup.first, warmup.full)
    sizes = [warmup.batch_size_at(step) for step in range(warmup.steps + 2)]
    assert sizes == sorted(sizes)
    assert sizes[warmup.steps :] == [warmup.full] * 2
    for step, size in enumerate(sizes[: warmup.steps]):
        exact = warmup.first + (warmup.full - warmup.first) * step / warmup.steps
        assert exact - unit - 1e-6 < size <= exact + 1e-6
        assert size % unit == 0
    if warmup.steps:
        assert sizes[0] == warmup.first


def test_the_published_batch_in_a_ramp():
    warmup = BatchSizeWarmup(512, 65536, 1000)
    sizes = [warmup.batch_size_at(step) for step in (0, 7, 8, 500, 999, 1000, 5000)]
    assert sizes == [512, 512, 1024, 32768, 65024, 65536, 65536]
    assert warmup.position_at(7038) == warmup.position_at(1000) + 6038 * 65536


def test_a_ramps_steps_are_a_share_below_one_and_steps_from_one_on():
    share, steps = (recipe(steps=30, batch_size_warmup={"from": 4, "steps": given})["settings"] for given in (0.2, 6))
    assert batch_size_warmup_of(share) == batch_size_warmup_of(steps) == BatchSizeWarmup(4, 16, 6)
    assert batch_size_warmup_of(recipe(batch_size_warmup={"from": 4, "steps": 0.01})["settings"]).steps == 1
    # 6.3 steps of 30.
    assert batch_size_warmup_of(recipe(steps=30, batch_size_warmup={"from": 4, "steps": 0.21})["settings"]).steps == 7


def test_without_a_ramp_every_batch_is_full():
    warmup = batch_size_warmup_of(recipe()["settings"])
    assert [(warmup.batch_size_at(step), warmup.position_at(step)) for step in (0, 1, 7)] == [
        (16, 0),
        (16, 16),
        (16, 112),
    ]


@pytest.mark.parametrize("steps", [3, 7])
def test_a_ramp_walks_through_the_same_samples_in_the_same_order(steps):
    lengths, warmup = np.full(40, 8), BatchSizeWarmup(2, 10, steps)
    common = {"seed": 1, "masking": Masking(0.15)}
    end = warmup.position_at(12)
    grown = [
        global_batch(lengths, start=warmup.position_at(step), size=warmup.batch_size_at(step), **common).samples
        for step in range(12)
    ]
    # Equal lengths keep their order inside a batch.
    assert np.array_equal(np.concatenate(grown), global_batch(lengths, start=0, size=end, **common).samples)
