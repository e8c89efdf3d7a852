"""Sweeps with real steps on this machine's CPU, their files, and their run in MLflow."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from snakemake_runs import environment

pytestmark = pytest.mark.slow


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "workflow/scripts/sweep.py", *arguments, "--configfile", "config/demo.yaml"]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def test_a_sweep_of_a_phase_over_sizes_and_processes(workflow_folder: Path) -> None:
    done = sweep(workflow_folder, "demo/phase1", "--to", "2", "--processes", "1,2", "--seconds", "0.1")
    assert done.returncode == 0, done.stderr
    (folder,) = (workflow_folder / "results/sweeps/demo/phase1").iterdir()
    rows = list(csv.DictReader((folder / "micro_batches.csv").open()))
    assert [row["micro_batch_size"] for row in rows] == ["1", "2"]
    for row in rows:
        assert float(row["sequences"]) / float(row["step_seconds"]) == pytest.approx(float(row["sequences_per_second"]))
    scaling = list(csv.DictReader((folder / "scaling.csv").open()))
    assert [row["processes"] for row in scaling] == ["1", "2"]
    assert len({row["sequences"] for row in scaling}) == 1

    client = MlflowClient(f"sqlite:///{workflow_folder}/mlflow.db")
    experiment = client.get_experiment_by_name("bertline-demo")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "sweep of demo/phase1"
    history = client.get_metric_history(run.info.run_id, "micro_batches/sequences_per_second")
    assert [point.step for point in history] == [1, 2]
    assert [point.value for point in history] == [float(row["sequences_per_second"]) for row in rows]
    kept = {one.path for one in client.list_artifacts(run.info.run_id)}
    assert kept == {"sweep.json", "micro_batches.csv", "micro_batches.svg", "scaling.csv", "scaling.svg"}


def test_a_sweep_of_a_fine_tuning(workflow_folder: Path) -> None:
    name = "demo/squad_v1"
    done = sweep(workflow_folder, name, "--to", "2", "--seconds", "0.1", "--uri", "sqlite:///other.db")
    assert done.returncode == 0, done.stderr
    (table,) = (workflow_folder / "results/sweeps/demo/squad_v1").glob("*/micro_batches.csv")
    assert [row["sequences"] for row in csv.DictReader(table.open())] == ["1", "2"]
    assert "micro_batch_tokens=" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["demo/phase3"], "error: there is no training called demo/phase3; near it are demo/phase"),
        (["demo/phase1", "--from", "8", "--to", "4"], "error: FROM=8 TO=4: give 1 or more, and the larger one for TO"),
        (["demo/phase1", "--processes", "two"], "error: --processes two: give numbers from 1 with commas between"),
        (["demo/phase1", "--options=--no-such"], "error: a trial of some steps failed: "),
    ],
)
def test_a_mistake_is_one_line(workflow_folder: Path, arguments: list[str], line: str) -> None:
    done = sweep(workflow_folder, *arguments)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(line)
    assert not (workflow_folder / "results/sweeps").exists()
