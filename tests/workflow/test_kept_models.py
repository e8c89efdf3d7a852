"""The models that fine-tunings leave: the best is kept and has a name, the others are deleted until needed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import TASK, jobs_of, run_snakemake, write_external_weights

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "theirs.yaml")
GOOD, BAD = 1e-3, 1e-12  # the second learns nothing; of equals, the first is chosen


def write_config(folder: Path, **settings: Any) -> None:
    table = {"kind": "classification", "train": "t.csv", "dev": "t.csv", "texts": ["text"], "label": "label"}
    finetune = {"tables": {"t": {**TASK, "epochs": 3, "batch_size": 4, **settings}}}
    config = {
        "evaluation": {"tables": {"t": table}},
        "runs": {"theirs": {"pretrained": "models/theirs", "finetune": finetune}},
    }
    (folder / "theirs.yaml").write_text(yaml.safe_dump(config))


def models_on_disk(folder: Path) -> set[str]:
    """Return the settings with a model."""
    return {path.parts[-3] for path in folder.glob("results/runs/theirs/table/t/*/seed1/huggingface")}


def test_the_best_model_is_kept_under_a_name_and_one_that_is_needed_again_is_trained_again(
    workflow_folder: Path,
) -> None:
    folder = workflow_folder
    write_external_weights(folder / "models/theirs")
    (folder / "t.csv").write_text("text,label\n" + "abc abc,x\nxyz xyz,y\n" * 12)
    write_config(folder, grid={"learning_rate": [GOOD, BAD]})
    run_snakemake(folder, "finetune", *OPTIONS)
    model = folder / "results/runs/theirs/table/t/model"
    assert model.resolve().parent == (model.parent / f"learning_rate-{GOOD:g}/seed1").resolve()
    assert models_on_disk(folder) == {f"learning_rate-{GOOD:g}"}
    assert "Nothing to be done" in run_snakemake(folder, "finetune", *OPTIONS).stdout

    # The model of the other setting was deleted, and is the best of the rest.
    write_config(folder, grid={"learning_rate": [BAD]})
    planned = jobs_of(run_snakemake(folder, "finetune", *OPTIONS, "--dry-run").stdout)
    assert (planned["finetune_task"], planned["keep_models"]) == (1, 1)
    run_snakemake(folder, "finetune", *OPTIONS)
    assert model.resolve().parent == (model.parent / f"learning_rate-{BAD:g}/seed1").resolve()

    # The first choice and its model are still there; to keep all, nothing has to be trained.
    write_config(folder, grid={"learning_rate": [GOOD, BAD]})
    assert "Nothing to be done" in run_snakemake(folder, "finetune", *OPTIONS).stdout
    assert model.resolve().parent == (model.parent / f"learning_rate-{GOOD:g}/seed1").resolve()
    write_config(folder, grid={"learning_rate": [GOOD, BAD]}, keep="all")
    assert jobs_of(run_snakemake(folder, "finetune", *OPTIONS, "--dry-run").stdout) == {
        "finetune": 1,
        "keep_models": 1,
        "total": 2,
    }
    run_snakemake(folder, "finetune", *OPTIONS)
    assert models_on_disk(folder) == {f"learning_rate-{GOOD:g}", f"learning_rate-{BAD:g}"}
