"""How far a training is, and what nothing needs any more, from the files that trainings leave."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bertline.estimate import estimates
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


def test_what_is_left_is_judged_by_what_is_on_record(plan: Plan) -> None:
    settings = {
        "sequence_length": 128,
        "global_batch_size": 8,
        "precision": "fp32",
        "packing": False,
        "optimizer": "lamb",
    }
    plan.config["sequence_lengths"] = [128]
    plan.phases[KEY] = {"phase": "phase1", "model": {"hidden_size": 16}, "settings": {**settings, "steps": 100}}
    plan.datasets["d"] = {"name": "books", "shards": ["00000", "00001"]}
    unknown = estimates(plan)
    assert [(left.what, left.jobs, left.hours, left.size) for left in unknown] == [
        ("dataset books, its shards", 4, None, None),
        (f"phase1 ({KEY})", 1, None, None),
    ]
    # Half an hour of four processes for 50 steps of the same kind, and jobs of 1800 and 3600 CPU seconds.
    times = {"started": 0, "finished": 1_800_000, "world_size": 4}
    recipe = {"model": {"hidden_size": 16, "more": 1}, "settings": {**settings, "steps": 50}, **times}
    write(Path("results/phases/before/recipe.json"), json.dumps(recipe))
    write(Path("benchmarks/write_shard/x/00000.tsv"), "s\tcpu_time\n1\t1800\n1\tNA\n")
    write(Path("benchmarks/encode_shard/x/00000.tsv"), "s\tcpu_time\n1\t3600\n")
    write(Path("results/datasets/e/seq128/00000.h5"), "x" * 10)
    data, training = estimates(plan)
    assert data.hours == pytest.approx(2 * 0.5 + 2 * 1)
    assert data.size == 20
    assert training.hours == pytest.approx(100 * 4 * 0.5 / 50)
    # A quarter of it is done.
    write(PHASE / "checkpoints/durable.json", '{"step": 25}')
    assert estimates(plan)[1].hours == pytest.approx(0.75 * training.hours)
    # Another network says nothing about this one.
    write(Path("results/phases/before/recipe.json"), json.dumps({**recipe, "model": {"hidden_size": 32}}))
    assert estimates(plan)[1].hours is None
