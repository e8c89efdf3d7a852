"""Learning rates at the points that define them, compared with those of transformers and torch."""

from __future__ import annotations

import functools

import pytest
import torch
from synthetic_dataset import recipe
from transformers import optimization

from bertline.training.optimizers.schedules import batch_size_factor, learning_rate_at, learning_rate_of_phase


def rate(step, **changes):
    settings = {"peak": 6e-3, "total": 7038, "warmup": 0.2843, "schedule": "polynomial", "power": 0.5, **changes}
    return learning_rate_at(step, **settings)


def rates_of(make_schedule, updates, *, peak=6e-3):
    """The rates of updates 1 to `updates` under a schedule of torch, whose own first update is number 0."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    schedule = make_schedule(optimizer)
    rates = []
    for _ in range(updates):
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    return rates


def test_polynomial_is_that_of_nvidias_runs():
    assert rate(1000) == pytest.approx(6e-3 * 1000 / (0.2843 * 7038))
    assert rate(2000) == pytest.approx(6e-3, rel=1e-3)
    # Decay counts from step 0: the rate drops as warm-up ends.
    assert rate(2001) == pytest.approx(6e-3 * 0.846, rel=1e-3)
    assert rate(7038 // 2) == pytest.approx(6e-3 * 0.5**0.5)
    assert rate(7038) == 0
    # The step at which a warm-up of a whole number of steps ends is the first of the decay.
    assert rate(99, total=1000, warmup=100) == pytest.approx(6e-3 * 0.99)
    assert rate(100, total=1000, warmup=100) == pytest.approx(6e-3 * 0.9**0.5)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_polynomial_without_warmup_is_that_of_torch_and_transformers(power):
    ours = [rate(step, total=50, warmup=0, power=power) for step in range(1, 51)]
    theirs = rates_of(lambda optimizer: torch.optim.lr_scheduler.PolynomialLR(optimizer, 50, power), 50)
    assert ours == pytest.approx(theirs, abs=1e-12)
    with_end = [rate(step, total=50, warmup=0, power=power, end=1e-3) for step in range(1, 51)]
    make = functools.partial(
        optimization.get_polynomial_decay_schedule_with_warmup,
        num_warmup_steps=0,
        num_training_steps=50,
        lr_end=1e-3,
        power=power,
    )
    assert with_end == pytest.approx(rates_of(make, 50), abs=1e-12)
    assert with_end[-1] == pytest.approx(1e-3)


@pytest.mark.parametrize("end", [0.0, 1e-3])
def test_polynomial_from_the_warmups_end_is_that_of_transformers(end):
    settings = recipe(
        steps=50, warmup=10, learning_rate=6e-3, end_learning_rate=end, power=2.0, polynomial_from="warmup"
    )["settings"]
    make = functools.partial(
        optimization.get_polynomial_decay_schedule_with_warmup,
        num_warmup_steps=10,
        num_training_steps=50,
        lr_end=end,
        power=2.0,
    )
    ours = [learning_rate_of_phase(settings, step) for step in range(1, 51)]
    assert ours == pytest.approx(rates_of(make, 50), abs=1e-12)


@pytest.mark.parametrize("schedule", ["polynomial", "linear", "cosine", "wsd"])
def test_a_schedule_may_be_longer_or_shorter_than_its_phase(schedule):
    common = {"schedule": schedule, "warmup": 0.1, "decay": 0.3, "end_learning_rate": 1e-4}
    long = recipe(steps=100, **common)["settings"]
    cut_off = recipe(steps=90, schedule_steps=100, **common)["settings"]
    rates = [learning_rate_of_phase(long, step) for step in range(1, 101)]
    assert [learning_rate_of_phase(cut_off, step) for step in range(1, 91)] == rates[:90]
    extended = recipe(steps=120, schedule_steps=100, **common)["settings"]
    assert [learning_rate_of_phase(extended, step) for step in range(1, 121)] == [
        *rates, *[pytest.approx(1e-4)] * 20,
    ]  # fmt: skip


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_linear_and_cosine_are_those_of_transformers_for_one_step_more(schedule):
    ours = [rate(step, schedule=schedule, total=100, warmup=20) for step in range(1, 101)]
    make = getattr(optimization, f"get_{schedule}_schedule_with_warmup")
    theirs = rates_of(lambda optimizer: make(optimizer, num_warmup_steps=20, num_training_steps=101), 100)
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert ours[19] == 6e-3


@pytest.mark.parametrize("end", [0.0, 1e-3])
def test_wsd_is_that_of_transformers(end):
    ours = [rate(step, schedule="wsd", total=100, warmup=20, decay=30, end=end) for step in range(1, 101)]
    make = functools.partial(
        optimization.get_wsd_schedule,
        num_warmup_steps=20,
        num_decay_steps=30,
        num_training_steps=101,
        decay_type="linear",
        min_lr_ratio=end / 6e-3,
    )
    # Theirs warms up from the end's rate.
    assert ours[19:] == pytest.approx(rates_of(make, 100)[19:], rel=1e-9)
    assert ours[19:71] == [6e-3] * 52
    assert ours[71] < 6e-3


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
def test_the_last_update_still_moves(schedule):
    for total in (1, 2, 1000):
        assert rate(total, schedule=schedule, total=total, warmup=0, decay=0.1) > 0
    assert rate(101, schedule=schedule, total=100, warmup=0, decay=0.1) == 0
    assert rate(101, schedule=schedule, total=100, warmup=0, decay=0.1, end=1e-4) == 1e-4


def test_constant_stays():
    assert [rate(step, schedule="constant", total=10, warmup=0) for step in (1, 5, 10)] == [6e-3] * 3


def test_warmup_and_decay_are_shares_below_one_and_steps_from_one_on():
    assert rate(5, total=100, warmup=0.1) == rate(5, total=100, warmup=10) == pytest.approx(3e-3)
    assert rate(1, total=100, warmup=1, schedule="linear") == 6e-3
    assert rate(100, total=100, warmup=100, schedule="linear") >= 0
    shares = {"schedule": "wsd", "total": 99, "warmup": 0.2}
    assert [rate(step, **shares, decay=0.4) for step in range(1, 100)] == [
        rate(step, **shares, decay=40) for step in range(1, 100)
    ]
    assert rate(80, **shares, decay=0.4) == pytest.approx(3e-3)


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1), ("sqrt", 4), ("linear", 16)])
def test_rates_are_scaled_by_the_batch_size(scaling, factor):
    plain = recipe(schedule="linear", end_learning_rate=1e-3)["settings"]
    scaled = {**plain, "global_batch_size": 4096, "base_batch_size": 256, "learning_rate_scaling": scaling}
    assert batch_size_factor(scaled, scaled["global_batch_size"]) == factor
    for step in (1, 2, 3, 17, 30, 31):
        assert learning_rate_of_phase(scaled, step) == pytest.approx(factor * learning_rate_of_phase(plain, step))
    assert learning_rate_of_phase(plain, 31) == 1e-3


def test_every_setting_of_a_phase_reaches_its_schedule():
    settings = recipe(schedule="wsd", steps=99, warmup=10, decay=20)["settings"]
    assert [learning_rate_of_phase(settings, step) for step in (5, 80, 90)] == pytest.approx([0.01, 0.02, 0.01])
    settings = recipe(schedule="polynomial", steps=100, warmup=0, power=2, end_learning_rate=0.01)["settings"]
    assert learning_rate_of_phase(settings, 50) == pytest.approx(0.0125)
