"""The state of a running training: its recipe, its jobs, and the load of each of its nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer, journal, train

from bertline.files import read_json, sha256_of_file
from bertline.results.records import Record, read_record
from bertline.tracking.run_tree import lay_out
from bertline.training.contract import STOPPED

NAMES = {"system/cpu_percent", "system/memory_megabytes"}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def record_of(folder: Path, output: Path) -> Record:
    content = {
        **{
            "run": "r",
            "experiment": "e",
            "fingerprint": "f",
            "config": {},
            "dataset": None,
            "finetunings": [],
            "kept": {},
        },
        "phases": [{"name": "phase1", "fingerprint": "p", "path": str(output)}],
    }
    (folder / "record.json").write_text(json.dumps(content))
    return read_record(folder / "record.json")


def test_settings_and_jobs_are_known_from_the_start_and_all_jobs_at_the_end(card: Path, tmp_path: Path) -> None:
    given, output = recipe(steps=40), tmp_path / "phase"
    first = {"environment": {"BERTLINE_JOB": "slurm 11"}, "stop_after_minutes": 0.0}
    assert Trainer(given, card, output, **first).finish() == STOPPED
    started = lay_out(record_of(tmp_path, output)).children[0]
    assert not started.finished
    assert started.description.startswith("Still training. 40 steps of ")
    assert started.tags["bertline.jobs"] == "slurm 11"
    train(given, card, output, environment={"BERTLINE_JOB": "pbs 12.host"})
    ended = lay_out(record_of(tmp_path, output)).children[0]
    assert ended.finished
    assert ended.tags["bertline.jobs"] == "slurm 11, pbs 12.host"
    assert read_json(output / "recipe.json")["jobs"] == ["slurm 11", "pbs 12.host"]
    assert started.parameters == ended.parameters
    assert started.parameters["learning_rate"]
    assert started.started == ended.started
    assert "bertline.hardware" in started.tags


def test_a_damaged_record_of_the_start_may_be_deleted(card: Path, tmp_path: Path) -> None:
    given, output = recipe(steps=2), tmp_path / "phase"
    assert Trainer(given, card, output, stop_after_minutes=0.0).finish() == STOPPED
    started = output / "checkpoints/recipe.json"
    started.write_text("{")
    refused = Trainer(given, card, output)
    assert refused.finish() == 1
    line = refused.log.read_text().splitlines()[-1]
    assert line.startswith(f"error: {started} is not JSON")
    assert line.endswith("; delete it, and run the same command again, which writes it anew")
    started.unlink()
    assert "resuming" in train(given, card, output).log.read_text()


def test_each_node_s_load_is_in_the_journal_of_rank_0(card: Path, tmp_path: Path) -> None:
    together, apart = tmp_path / "together", tmp_path / "apart"
    options = {"ranks": 2, "log_every": 3}
    train(recipe(steps=6), card, together, **options)
    # As on two nodes, which get the threads that are theirs.
    train(recipe(steps=6), card, apart, environment={"LOCAL_WORLD_SIZE": "1"}, threads=1, **options)
    found = []
    for output in (together, apart):
        points = [point["metrics"] for point in journal(output) if "train/loss" in point["metrics"]]
        assert len(points) == 3
        found.append([{name for name in point if name.startswith("system/")} for point in points])
    of_nodes = {name.replace("system/", f"system/node{node}/") for name in NAMES for node in (0, 1)}
    of_all = NAMES | {"system/processes"}
    assert found == [[of_all] * 3, [of_all | of_nodes] * 3]
    memory = points[-1]
    assert memory["system/processes"] == 2
    both = [memory[f"system/node{node}/memory_megabytes"] for node in (0, 1)]
    assert memory["system/memory_megabytes"] == pytest.approx(sum(both) / 2)
    assert sha256_of_file(together / "model.safetensors") == sha256_of_file(apart / "model.safetensors")
