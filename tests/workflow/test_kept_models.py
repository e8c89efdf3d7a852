"""The models that fine-tunings leave: the best is kept and has a name, the others are deleted until needed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import TASK, jobs_of, run_snakemake, write_external_weights

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "theirs.yaml")
GOOD, BAD = 1e-3, 1e-12  # the second learns nothing; of equals, the first is chosen


def write_config(
    folder: Path, *, predict: dict[str, Any] | None = None, features: dict[str, Any] | None = None, **settings: Any
) -> None:
    table = {"kind": "classification", "train": "t.csv", "dev": "t.csv", "texts": ["text"], "label": "label"}
    finetune = {"tables": {"t": {**TASK, "epochs": 3, "batch_size": 4, **settings}}}
    config = {
        "evaluation": {"tables": {"t": table}},
        "runs": {"theirs": {"pretrained": "models/theirs", "finetune": finetune}},
        "predict": predict or {},
        "features": features or {},
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
    run_snakemake(folder, "results/runs/theirs/table/t", *OPTIONS)
    model = folder / "results/runs/theirs/table/t/model"
    assert model.resolve().parent == (model.parent / f"learning_rate-{GOOD:g}/seed1").resolve()
    assert models_on_disk(folder) == {f"learning_rate-{GOOD:g}"}
    of_other_recipe = folder / "results/runs/theirs/glue/cola/seed1"
    of_other_recipe.parent.mkdir(parents=True)
    of_other_recipe.symlink_to("../../../../finetunings/0123456789abcdef")
    assert "Nothing to be done" in run_snakemake(folder, "finetune", *OPTIONS).stdout
    assert not of_other_recipe.is_symlink()

    # The model of the other setting was deleted, and is the best of the rest.
    write_config(folder, grid={"learning_rate": [BAD]})
    planned = jobs_of(run_snakemake(folder, "finetune", *OPTIONS, "--dry-run").stdout)
    assert (planned["finetune_task"], planned["keep_models"]) == (1, 1)
    assert model.with_name(f"learning_rate-{GOOD:g}").exists()
    run_snakemake(folder, "finetune", *OPTIONS)
    assert model.resolve().parent == (model.parent / f"learning_rate-{BAD:g}/seed1").resolve()
    assert not model.with_name(f"learning_rate-{GOOD:g}").exists()
    described = json.loads((folder / "results/runs/theirs/record.json").read_text())
    assert [one["learning_rate"] for one in described["finetunings"]] == [BAD]  # `make scores` shows it

    # The first choice and its model are still there; to keep all, nothing has to be trained.
    write_config(folder, grid={"learning_rate": [GOOD, BAD]})
    assert "Nothing to be done" in run_snakemake(folder, "finetune", *OPTIONS).stdout
    assert model.resolve().parent == (model.parent / f"learning_rate-{GOOD:g}/seed1").resolve()
    write_config(folder, grid={"learning_rate": [GOOD, BAD]}, keep="all")
    assert jobs_of(run_snakemake(folder, "finetune", *OPTIONS, "--dry-run").stdout) == {
        "describe_run": 1,
        "finetune": 1,
        "keep_models": 1,
        "total": 3,
    }
    run_snakemake(folder, "finetune", *OPTIONS)
    assert models_on_disk(folder) == {f"learning_rate-{GOOD:g}", f"learning_rate-{BAD:g}"}


def test_predictions_follow_their_model_and_their_inputs(workflow_folder: Path) -> None:
    folder = workflow_folder
    write_external_weights(folder / "models/theirs")
    (folder / "t.csv").write_text("text,label\n" + "abc abc,x\nxyz xyz,y\n" * 12)
    (folder / "new.jsonl").write_text('{"text": "abc"}\n{"text": "xyz"}\n')
    predict = {"model": "results/runs/theirs/table/t", "inputs": ["new.jsonl"]}
    write_config(folder, predict={"new": predict})
    run_snakemake(folder, "predict", *OPTIONS)
    output = folder / "results/predictions/new.jsonl"
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["prediction"] in {"x", "y"} for row in rows] == [True, True]
    assert "Nothing to be done" in run_snakemake(folder, "predict", *OPTIONS).stdout

    (folder / "new.jsonl").write_text('{"text": "abc"}\n')
    run_snakemake(folder, "predict", *OPTIONS)
    assert len(output.read_text().splitlines()) == 1
    write_config(folder, seeds=2, predict={"new": predict})
    assert jobs_of(run_snakemake(folder, "predict", *OPTIONS, "--dry-run").stdout) == {
        "finetune_task": 1,
        "keep_models": 1,
        "predict": 1,
        "predict_files": 1,
        "total": 4,
    }


def test_a_model_is_deleted_after_the_prediction_with_it(workflow_folder: Path) -> None:
    folder = workflow_folder
    write_external_weights(folder / "models/theirs")
    (folder / "t.csv").write_text("text,label\n" + "abc abc,x\nxyz xyz,y\n" * 12)
    names = {f"seed{seed}": f"results/runs/theirs/table/t/seed{seed}" for seed in (1, 2)}
    predict = {name: {"model": model, "inputs": ["t.csv"], "columns": ["text"]} for name, model in names.items()}
    write_config(folder, seeds=2, predict=predict)
    run_snakemake(folder, "finetune", "predict", *OPTIONS)
    assert {path.stem for path in (folder / "results/predictions").iterdir()} == set(names)
    assert len(list(folder.glob("results/finetunings/*/huggingface"))) == 1
    assert "Nothing to be done" in run_snakemake(folder, "finetune", "predict", *OPTIONS).stdout


def test_features_of_a_model_are_a_target(workflow_folder: Path) -> None:
    folder = workflow_folder
    write_external_weights(folder / "models/theirs")
    (folder / "t.csv").write_text("text,label\nabc abc,x\nxyz xyz,y\n")
    (folder / "new.txt").write_text("abc\nabc ||| xyz\n")
    entry = {"model": "models/theirs", "inputs": ["*.txt"], "layers": [-1], "pooling": "mean"}
    write_config(folder, features={"new": entry})
    run_snakemake(folder, "features", *OPTIONS)
    rows = [json.loads(line) for line in (folder / "results/features/new.jsonl").read_text().splitlines()]
    assert [len(row["features"][0]["layers"][0]["values"]) for row in rows] == [16, 16]
    assert "Nothing to be done" in run_snakemake(folder, "features", *OPTIONS).stdout
