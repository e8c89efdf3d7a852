"""Learning rates at the points that define them."""

from __future__ import annotations

import pytest

from bertline.training.schedules import learning_rate_at


def rate(step, **changes):
    settings = {"peak": 6e-3, "total": 7038, "warmup": 0.2843, "schedule": "polynomial", "power": 0.5, **changes}
    return learning_rate_at(step, **settings)


def test_polynomial_is_that_of_nvidias_runs():
    assert rate(1000) == pytest.approx(6e-3 * 1000 / (0.2843 * 7038))
    assert rate(2000) == pytest.approx(6e-3, rel=1e-3)
    # Decay counts from step 0: the rate drops as warm-up ends.
    assert rate(2001) == pytest.approx(6e-3 * 0.846, rel=1e-3)
    assert rate(7038 // 2) == pytest.approx(6e-3 * 0.5**0.5)
    assert rate(7038) == 0


def test_linear_and_cosine_fall_from_the_end_of_warmup_to_zero():
    for schedule in ("linear", "cosine"):
        points = [rate(step, schedule=schedule, total=100, warmup=20) for step in (10, 20, 60, 100)]
        assert points == pytest.approx([3e-3, 6e-3, 3e-3, 0], abs=1e-12)
    assert rate(40, schedule="cosine", total=100, warmup=20) == pytest.approx(6e-3 * 0.8535534)


def test_constant_stays():
    assert [rate(step, schedule="constant", total=10, warmup=0) for step in (1, 5, 10)] == [6e-3] * 3


def test_warmup_is_a_share_below_one_and_steps_from_one_on():
    assert rate(5, total=100, warmup=0.1) == rate(5, total=100, warmup=10) == pytest.approx(3e-3)
    assert rate(1, total=100, warmup=1, schedule="linear") == 6e-3
    assert rate(100, total=100, warmup=100, schedule="linear") >= 0
