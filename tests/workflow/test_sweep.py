"""Sweeps with real steps on this machine's CPU, their files, and their run in MLflow."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from snakemake_runs import SMALL_CONFIG, environment, write_external_weights
from test_ranking import configuration, write_ranking

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(workflow_folder: Path, sample: Path) -> Path:
    shutil.copytree(sample, workflow_folder / "resources/sample")
    (workflow_folder / "small.yaml").write_text(yaml.safe_dump(SMALL_CONFIG, sort_keys=False))
    return workflow_folder


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "workflow/scripts/sweep.py", *arguments, "--configfile", "small.yaml"]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def test_a_sweep_of_a_phase_over_sizes_and_processes(folder: Path) -> None:
    done = sweep(folder, "first/phase1", "--to", "2", "--processes", "1,2", "--seconds", "0.1")
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "results/sweeps/first/phase1").iterdir()
    rows = list(csv.DictReader((made / "micro_batches.csv").open()))
    assert [row["micro_batch_size"] for row in rows] == ["1", "2"]
    for row in rows:
        assert float(row["sequences"]) / float(row["step_seconds"]) == pytest.approx(float(row["sequences_per_second"]))
    scaling = list(csv.DictReader((made / "scaling.csv").open()))
    assert [row["processes"] for row in scaling] == ["1", "2"]
    assert len({row["sequences"] for row in scaling}) == 1

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("bertline")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "sweep of first/phase1"
    history = client.get_metric_history(run.info.run_id, "micro_batches/sequences_per_second")
    assert [point.step for point in history] == [1, 2]
    assert [point.value for point in history] == [float(row["sequences_per_second"]) for row in rows]
    kept = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert kept == {"sweep.json", "micro_batches.csv", "micro_batches.svg", "scaling.csv", "scaling.svg"}


def test_a_sweep_of_a_fine_tuning(folder: Path) -> None:
    name = "first/glue/cola"
    done = sweep(folder, name, "--to", "2", "--seconds", "0.1", "--uri", "sqlite:///other.db")
    assert done.returncode == 0, done.stderr
    (table,) = (folder / "results/sweeps/first/glue/cola").glob("*/micro_batches.csv")
    assert [row["sequences"] for row in csv.DictReader(table.open())] == ["1", "2"]
    assert "micro_batch_tokens=" in done.stdout


def test_a_sweep_of_a_pairwise_ranking_from_external_weights(workflow_folder: Path) -> None:
    write_ranking(workflow_folder)
    write_external_weights(workflow_folder / "weights")
    (workflow_folder / "small.yaml").write_text(yaml.safe_dump(configuration(objective="pairwise")))
    given = ("--from", "4", "--to", "64", "--seconds", "0.1", "--uri", "sqlite:///other.db")
    done = sweep(workflow_folder, "mine/ranking/births", *given)
    assert done.returncode == 0, done.stderr
    (table,) = (workflow_folder / "results/sweeps/mine/ranking/births").glob("*/micro_batches.csv")
    rows = list(csv.DictReader(table.open()))
    assert [row["micro_batch_size"] for row in rows] == ["4", "8"]  # of 8 pairs a step
    fastest = max(rows, key=lambda row: float(row["sequences_per_second"]))["micro_batch_size"]
    assert f"micro_batch_tokens={2 * 64 * int(fastest)}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["first/phase3"], "error: there is no training called first/phase3; near it are first/phase"),
        (["first/phase1", "--from", "8", "--to", "4"], "error: FROM=8 TO=4: give 1 or more, and the larger one for TO"),
        (["first/phase1", "--processes", "two"], "error: --processes two: give numbers from 1 separated by commas"),
        (["first/phase1", "--options=--no-such"], "error: a trial of some steps failed: "),
    ],
)
def test_a_mistake_is_one_line(folder: Path, arguments: list[str], line: str) -> None:
    done = sweep(folder, *arguments)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(line)
    assert not (folder / "results/sweeps").exists()
