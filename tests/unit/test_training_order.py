"""The order of samples is a permutation of each epoch and a function of the position alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.training.data.order import samples_at


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 700), seed=st.integers(0, 2**40))
def test_every_epoch_visits_every_sample_once(count, seed):
    samples, epochs = samples_at(np.arange(3 * count), seed=seed, count=count)
    assert (epochs == np.repeat([0, 1, 2], count)).all()
    for epoch in range(3):
        assert (np.sort(samples[epochs == epoch]) == np.arange(count)).all()


def test_a_position_has_the_same_sample_however_it_is_requested():
    together, epochs = samples_at(np.arange(2000), seed=5, count=777)
    for position in (0, 776, 777, 1500, 1999):
        alone, epoch = samples_at(np.array([position]), seed=5, count=777)
        assert alone[0] == together[position]
        assert epoch[0] == epochs[position]


def test_epochs_and_seeds_are_shuffled_differently():
    samples, _ = samples_at(np.arange(2000), seed=5, count=1000)
    other, _ = samples_at(np.arange(1000), seed=6, count=1000)
    for shuffled in (samples[1000:], other, np.arange(1000)):
        assert (samples[:1000] == shuffled).sum() < 10


def test_neighbours_land_anywhere():
    count = 4096
    samples, _ = samples_at(np.arange(count), seed=9, count=count)
    distances = np.abs(np.diff(samples))
    assert abs(distances.mean() / (count / 3) - 1) < 0.05
    # Each sixteenth of the epoch draws evenly from each sixteenth of the samples: 16 expected, standard deviation 4.
    table = np.histogram2d(np.arange(count), samples, bins=16)[0]
    assert ((table - 16) ** 2 / 16).sum() < 320  # chi squared with 225 degrees of freedom: mean 225, deviation 21


def test_the_order_of_a_known_seed_never_changes():
    samples, _ = samples_at(np.array([0, 1, 2, 3, 10**6, 10**9]), seed=42, count=1_000_003)
    assert samples.tolist() == [650213, 532057, 197136, 49455, 383913, 746382]
