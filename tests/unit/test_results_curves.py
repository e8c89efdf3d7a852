"""Pretraining by step, tokens and hours, and what it cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_run

from bertline.reporting.comparison import outcomes
from bertline.results.curves import cost_of, curve, hours_of
from bertline.results.records import JournalPoint, Phase, read_record

HOUR = 3_600_000


def phase(name: str, points: list[tuple[int, int, dict[str, float]]], world_size: int = 4) -> Phase:
    journal = [JournalPoint(step, timestamp, metrics) for step, timestamp, metrics in points]
    recipe = {"world_size": world_size, "settings": {"sequence_length": 128}}
    return Phase(name, name, Path(name), recipe, journal, finished=True)


def reading(tokens: float, speed: float, loss: float, **more: float) -> dict[str, float]:
    return {"train/tokens": tokens, "train/tokens_per_second": speed, "train/mlm_loss": loss, **more}


# Ten hours lie between the two points of the second phase, though its steps took two: it waited for a place.
FIRST = reading(3600, 1.0, 5.0, **{"held_out/mlm_loss": 6.0})
PHASES = [
    phase("phase1", [(0, 0, {"held_out/mlm_loss": 9.0}), (10, HOUR, FIRST)]),
    phase("phase2", [(5, 2 * HOUR, reading(7200, 2.0, 4.0)), (10, 12 * HOUR, reading(21600, 2.0, 3.0))]),
]


def test_phases_follow_each_other_and_pauses_do_not_count_as_training() -> None:
    places, values = curve(PHASES, "train/mlm_loss")
    assert values == [5.0, 4.0, 3.0]
    assert [place.step for place in places] == [10, 15, 20]
    assert [place.tokens for place in places] == [3600, 10800, 25200]
    assert [place.hours for place in places] == [1.0, 2.0, 4.0]
    places, values = curve(PHASES, "held_out/mlm_loss")
    assert [(place.tokens, value) for place, value in zip(places, values, strict=True)] == [(0, 9.0), (3600, 6.0)]
    assert hours_of(PHASES[1]) == 3.0


def test_steps_without_a_speed_of_their_own_take_the_time_of_those_before() -> None:
    unmeasured = {key: value for key, value in reading(10800, 0.0, 3.0).items() if key != "train/tokens_per_second"}
    points = [(1, 0, reading(3600, 1.0, 5.0)), (2, HOUR, unmeasured), (3, 2 * HOUR, reading(18000, 2.0, 2.0))]
    places, _ = curve([phase("phase1", points)], "train/mlm_loss")
    assert [place.hours for place in places] == [1.0, 3.0, 4.0]


def test_the_cost_counts_every_rank_and_the_power_between_two_points() -> None:
    cost = cost_of(PHASES)
    assert cost is not None
    assert (cost.process_hours, cost.on_gpus, cost.kilowatt_hours) == (16.0, False, None)
    gpu = {"system/gpu_power_watts": 500.0, "system/gpu_percent": 99.0}
    cost = cost_of([phase("gpu", [(1, 0, reading(3600, 1.0, 5.0, **gpu)), (2, 0, reading(7200, 1.0, 5.0, **gpu))], 8)])
    assert cost is not None
    assert (cost.process_hours, cost.on_gpus) == (16.0, True)
    assert cost.kilowatt_hours == pytest.approx(2 * 8 * 0.5)


def test_the_cost_counts_the_ranks_of_each_time_if_a_phase_was_resumed_on_another_number() -> None:
    def at(hour: int, speed: float, **processes: float) -> tuple[int, int, dict[str, float]]:
        gpu = {"system/gpu_power_watts": 300.0, "system/gpu_percent": 99.0}
        return hour, hour * HOUR, reading(3.6e9 * min(hour, 99) + 0.45e9 * (hour > 99), speed, 5.0, **gpu, **processes)

    processes = {1: {"system/processes": 8.0}, 100: {"system/processes": 1.0}}
    points = [at(hour, 1e6 if hour < 100 else 1.25e5, **processes.get(hour, {})) for hour in range(1, 101)]
    cost = cost_of([phase("phase1", points, world_size=1)])
    assert cost is not None
    assert cost.process_hours == pytest.approx(99 * 8 + 1)
    assert cost.kilowatt_hours == pytest.approx((99 * 8 + 1) * 0.3)


def test_an_unfinished_phase_has_no_cost_yet() -> None:
    started = Phase("phase1", "phase1", Path("phase1"), {}, PHASES[0].journal, finished=False)
    assert cost_of([started]) is None


def test_held_out_losses_of_other_samples_are_not_compared_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = read_record(write_run(tmp_path, tasks=("rte",), seeds=1))
    *before, last = record.phases
    assert last.held_out("mlm_loss") is not None

    def names_with(**recipe: Any) -> list[str]:
        other = replace(record, phases=[*before, replace(last, recipe=last.recipe | recipe)])
        return [row[0] for row in outcomes([record, other]) if row[0].startswith("held-out loss")]

    settings = last.recipe["settings"]
    assert names_with() == names_with(seed=7) == ["held-out loss (nats)"]
    unlike = ["held-out loss (nats); not comparable: the samples are others"]
    assert names_with(dataset_digest="f" * 64) == unlike
    assert names_with(settings=settings | {"sequence_length": 2 * settings["sequence_length"]}) == unlike


def test_scores_of_other_development_sets_are_not_compared_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = read_record(write_run(tmp_path, tasks=("rte",), seeds=1))

    def name_with(**result: Any) -> str:
        changed = [replace(one, result=one.result | result) for one in record.finetunings]
        return outcomes([record, replace(record, finetunings=changed)])[-1][0]

    assert name_with() == name_with(seconds=1.0) == name_with(digests={}) == "RTE accuracy (400 examples)"
    unlike = "RTE accuracy (400 examples); not comparable: the development sets are others"
    assert name_with(digests={"dev": "f" * 64}) == unlike
    assert name_with(digests={}, examples={"dev": 300}) == unlike.replace("400", "400, 300")


def test_the_time_of_all_ranks_is_compared_once_every_phase_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = read_record(write_run(tmp_path, tasks=("rte",), seeds=1))
    second, first = PHASES

    def time_of(*phases: Phase) -> str:
        rows = {row[0]: row[1] for row in outcomes([replace(record, phases=list(phases))])}
        return rows["time in steps"]

    assert time_of(first, second) == "4.0 h (16.0 h of all ranks)"
    assert time_of(first, replace(second, finished=False)) == "4.0 h"
