"""Rates of training: of steps alone, and of the wall clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from synthetic_dataset import MODEL

from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.network_config import BertConfig
from bertline.results.journal import RECENT_POINTS
from bertline.training import meter
from bertline.training.data.batches import GlobalBatch
from bertline.training.distributed.process_group import Group
from bertline.training.step import StepResult

SAMPLES, TOKENS = 4, 40


class Clock:
    """A clock that advances only on request."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def step(seconds: float) -> StepResult:
    ten = np.full(SAMPLES, TOKENS // SAMPLES)
    batch = GlobalBatch(samples=ten, epochs=ten, lengths=ten, masked_counts=np.ones_like(ten))
    names = ("mlm_loss", "mlm_correct", "masked", "pair_loss", "pairs_correct", "pair_correct")
    return StepResult(
        batch, dict.fromkeys(names, 1.0), 1.0, 0.1,
        updated=True, backed_off=False, interrupted=False, seconds=seconds, waited=0.0, tokens=(TOKENS, TOKENS),
    )  # fmt: skip


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meter.time, "monotonic", clock)
    return clock


def made(monkeypatch: pytest.MonkeyPatch, peak: float | None = None) -> Any:
    monkeypatch.setattr(meter, "peak_of_all", lambda device: peak)
    model = BertForPreTraining(BertConfig.from_dict({**MODEL, "vocab_size": 75}))
    return meter.Meter(model, Group(0, 1, torch.device("cpu")), has_pairs=True)


def test_one_rate_is_of_steps_and_one_of_all_the_time_since_the_last_point(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of 2 s between an evaluation of 3 s and a checkpoint of 1 s."""
    counted = made(monkeypatch, peak=1e-3)
    clock.now += 3
    for _ in range(2):
        clock.now += 2
        counted.add(step(2.0))
    clock.now += 1
    metrics = counted.read()
    for name, amount in (("tokens", 2 * TOKENS), ("samples", 2 * SAMPLES)):
        assert metrics[f"train/{name}_per_second"] == pytest.approx(amount / 4)
        assert metrics[f"train/overall_{name}_per_second"] == pytest.approx(amount / 8)
    assert metrics["train/overall_model_flops_utilization"] == pytest.approx(
        metrics["train/model_flops_utilization"] / 2
    )

    clock.now += 2
    counted.add(step(2.0))
    metrics = counted.read()  # nothing else since the last point
    assert metrics["train/overall_tokens_per_second"] == pytest.approx(metrics["train/tokens_per_second"])


def test_the_time_left_includes_what_comes_between_steps_but_not_the_first_one(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step compiles."""
    counted = made(monkeypatch)
    assert counted.seconds_a_sample() is None
    clock.now += 60
    counted.add(step(60.0))
    assert counted.seconds_a_sample() == pytest.approx(60 / SAMPLES)
    for _ in range(4):
        clock.now += 2
        counted.add(step(2.0))
    clock.now += 4  # an evaluation
    assert counted.seconds_a_sample() == pytest.approx(3 / SAMPLES)


def test_the_time_left_follows_a_machine_that_becomes_slower(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = made(monkeypatch)
    for seconds in [1.0] * 100 + [5.0] * (RECENT_POINTS - 1):
        clock.now += seconds
        counted.add(step(seconds))
        counted.read()
    assert counted.seconds_a_sample() == pytest.approx(5 / SAMPLES)


def test_a_rank_without_a_part_of_the_batches_reports_no_padding(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = made(monkeypatch)
    clock.now += 2
    counted.add(step(2.0)._replace(tokens=(0, 0)))
    assert "train/padding_share" not in counted.read()
    clock.now += 2
    counted.add(step(2.0)._replace(tokens=(TOKENS, 4 * TOKENS)))
    assert counted.read()["train/padding_share"] == pytest.approx(0.75)


def test_a_point_may_be_the_first_act_after_a_restart(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when training stopped within the evaluation of a step."""
    counted, resumed = made(monkeypatch), made(monkeypatch)
    for norm in (1.0, 2.0):
        clock.now += 2
        counted.add(step(2.0)._replace(norm=norm))
    resumed.restore(counted.state())
    metrics, expected = resumed.read(), counted.read()
    names = [f"train/{name}" for name in ("loss", "mlm_accuracy", "step_loss", "learning_rate", "gradient_norm")]
    assert [metrics[name] for name in names] == [expected[name] for name in names]
    assert metrics["train/gradient_norm"] == 2.0
