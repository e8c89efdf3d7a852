"""How far a training is, and what nothing needs any more, from the files that trainings leave."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bertline.plan import Plan
from bertline.pruning import not_asked_for, prunable
from bertline.status import phase_statuses

KEY = "0" * 16
PHASE = Path("results/phases", KEY)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """One run with one phase of 100 steps; its folder is where the test works."""
    monkeypatch.chdir(tmp_path)
    plan = Plan({}, {}, Path("models"))
    plan.phases[KEY] = {"settings": {"steps": 100}}
    plan.runs["first"] = {"name": "first", "phases": {"phase1": KEY}}
    return plan


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_journal(steps: range, milliseconds: int) -> None:
    points = [{"step": step, "timestamp": 5000 + milliseconds * step, "metrics": {}} for step in steps]
    write(PHASE / "checkpoints/journal.jsonl", "".join(json.dumps(point) + "\n" for point in points) + '{"step": 9')


def test_a_training_at_work(plan: Plan) -> None:
    write_journal(range(0, 41, 10), 250)
    write(PHASE / "checkpoints/durable.json", '{"step": 30}')
    lock = write(PHASE / "checkpoints/lock.json", json.dumps({"pid": 7, "host": "gpu1", "job": "12"}))
    (status,) = phase_statuses(plan)
    assert (status.state, status.step, status.saved_step) == ("trains", 40, 30)
    assert status.owner == "process 7 on gpu1, job 12"
    assert status.steps_per_second == pytest.approx(4)
    assert status.time_left() == timedelta(seconds=15)
    # A lock without a heartbeat is that of a dead trainer.
    os.utime(lock, (time.time() - 1000, time.time() - 1000))
    (status,) = phase_statuses(plan)
    assert (status.state, status.owner, status.time_left()) == ("stopped", "", None)


def test_before_and_after_training(plan: Plan) -> None:
    assert phase_statuses(plan)[0].state == "to be trained"
    write(PHASE / "recipe.json", "{}")
    (status,) = phase_statuses(plan)
    assert (status.state, status.step) == ("finished", 100)


def test_only_what_a_finished_result_does_not_need_is_prunable(plan: Plan) -> None:
    for step in (10, 20, 30):
        write(PHASE / f"checkpoints/step-{step:08d}/model.safetensors", "x" * step)
    write(PHASE / "checkpoints/durable.json", '{"step": 30}')
    shard = write(Path("results/datasets/a/shards/00000.txt.zst"), "text")
    write(Path("results/datasets/b/shards/00000.txt.zst"), "text")
    assert prunable() == []
    write(PHASE / "recipe.json", "{}")
    write(Path("results/datasets/a/dataset.json"), "{}")
    found = {entry.path: entry.size for entry in prunable()}
    older = {PHASE / f"checkpoints/step-{step:08d}": step for step in (10, 20)}
    assert found == {shard: 4, **older}


def test_results_of_other_configurations_are_told_apart(plan: Plan) -> None:
    write(PHASE / "recipe.json", "{}")
    write(Path("results/phases/other/recipe.json"), "{}")
    assert [entry.path for entry in not_asked_for(plan)] == [Path("results/phases/other")]
