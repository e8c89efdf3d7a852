"""The time of steps by a clock whose every step is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bertline.training import trial
from bertline.training.trial import WARM_UP_STEPS, speed_of_steps, timed

GROUP: Any = SimpleNamespace(
    device=torch.device("cpu"),
    device_name="cpu",
    world_size=1,
    barrier=lambda: None,
    broadcast=lambda value: value,
    gather=np.array,
    all_reduce_max=int,
)


@pytest.mark.parametrize(("seconds", "timed_steps"), [(0.1, 2), (2.0, 4), (10.0, 20)])
def test_the_time_of_a_step_is_the_mean_of_those_after_the_warm_up(
    monkeypatch: pytest.MonkeyPatch, seconds: float, timed_steps: int
) -> None:
    """The first step takes 10 s, those of the warm-up 3 s, and the others half a second, a quarter of it computing."""
    clock, used, done = 100.0, 7.0, []

    def step(number: int) -> None:
        nonlocal clock, used
        clock += 10.0 if number == 0 else 3.0 if number <= WARM_UP_STEPS else 0.5
        used += 0.125 * torch.get_num_threads()
        done.append(number)

    monkeypatch.setattr(trial, "time", SimpleNamespace(monotonic=lambda: clock, process_time=lambda: used))
    found = timed(step, GROUP, seconds=seconds, began=99.0)
    assert done == list(range(1 + WARM_UP_STEPS + timed_steps))
    assert found["step_seconds"] == pytest.approx(0.5)
    assert found["busy_seconds"] == pytest.approx(0.125)
    assert found["start_seconds"] == pytest.approx(11.0)


def test_speeds_are_by_the_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "peak_of_all", lambda _: 20.0)
    found = speed_of_steps(0.5, GROUP, sequences=8, tokens=1024, flops=4e12)
    assert (found["sequences"], found["tokens"]) == (8, 1024)
    assert (found["sequences_per_second"], found["tokens_per_second"]) == (16, 2048)
    assert (found["tflops_per_second"], found["model_flops_utilization"]) == (8.0, 0.4)
