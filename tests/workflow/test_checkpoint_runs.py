"""Runs that fine-tune a checkpoint of another run's pretraining: it is kept for them, exported and compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import PHASE, SMALL_CONFIG, TASK, jobs_of, run_snakemake

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "small.yaml")


def write_config(folder: Path, **runs: Any) -> None:
    (folder / "small.yaml").write_text(yaml.safe_dump({**SMALL_CONFIG, "runs": {**SMALL_CONFIG["runs"], **runs}}))


def from_checkpoint(name: str) -> dict[str, Any]:
    return {"pretrained": f"results/runs/{name}", "finetune": {"glue": {"cola": TASK}}}


def test_a_checkpoint_is_kept_exported_fine_tuned_and_drawn(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "graph", symlinks=True)
    folder = tmp_path / "graph"
    other = {**SMALL_CONFIG["runs"]["first"], "seed": 7, "phases": {"phase1": {**PHASE, "sequence_length": 128}}}
    write_config(folder, other=other, early=from_checkpoint("other/phase1@step-2"))
    planned = jobs_of(run_snakemake(folder, "finetune", *OPTIONS, "--dry-run").stdout)
    assert (planned["pretrain_phase"], planned["export_checkpoint"], planned["finetune_task"]) == (1, 1, 2)
    run_snakemake(folder, "finetune", "report", *OPTIONS)
    (export,) = folder.glob("results/phases/*/exports/step-2")
    assert (export / "model.safetensors").read_bytes() != (
        export.parents[1] / "huggingface/model.safetensors"
    ).read_bytes()
    recipe = json.loads((folder / "results/runs/early/glue/cola/seed1/recipe.json").read_text())
    assert recipe["initial_weights"] == {"phase": export.parents[1].name, "step": 2}
    table = (folder / "results/report/latest/tables/scores-by-step.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in table[1:]] == ["2", "4"]
    assert "Nothing to be done" in run_snakemake(folder, "finetune", "report", *OPTIONS).stdout
    # What is finished needs the checkpoint no more; a fine-tuning that is to run again does.
    shutil.rmtree(export.parent)
    shutil.rmtree(export.parents[1] / "checkpoints")
    shutil.rmtree(folder / "results/report")
    run_snakemake(folder, "report", *OPTIONS)
    (folder / "results/runs/early/glue/cola/seed1/metrics.json").unlink()
    done = run_snakemake(folder, "finetune", *OPTIONS, check=False)
    assert [line for line in done.stdout.splitlines() if line.startswith("error: ") and "has passed step 2" in line]


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        ("nobody/phase1@step-2", "given 'nobody', allowed are the runs that pretrain a model: first"),
        ("first/phase9@step-2", "given 'phase9', allowed are the phases of first: phase1, phase2"),
        ("first/phase1@step-5", "given step 5, allowed are 0 to 4"),
        ("early/phase1@step-2", "given 'early', allowed are the runs that pretrain a model: first"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_one_line(workflow_folder: Path, checkpoint: str, message: str) -> None:
    write_config(workflow_folder, early=from_checkpoint(checkpoint))
    done = run_snakemake(workflow_folder, "finetune", *OPTIONS, "--dry-run", check=False)
    assert any(line.startswith("error: configuration: ") and message in line for line in done.stdout.splitlines())


def test_a_checkpoint_that_a_finished_training_did_not_keep_is_one_line(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "graph", symlinks=True)
    write_config(tmp_path / "graph", early=from_checkpoint("first/phase1@step-2"))
    done = run_snakemake(tmp_path / "graph", "finetune", *OPTIONS, check=False)
    message = "has passed step 2 and keeps no checkpoint of it; name one of its checkpoints: 4"
    assert [line for line in done.stdout.splitlines() if line.startswith("error: ") and message in line]
