"""The graph of a run that fine-tunes external weights, up to MLflow and the report; with bad tasks among good ones."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import PHASE, SMALL_CONFIG, TASK, copy_workflow, jobs_of, run_snakemake, write_external_weights

from bertline.planning.resolve import plan_of_files
from bertline.results import paths

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "theirs.yaml")
CONFIG: dict[str, Any] = {
    "evaluation": {"glue": "resources/sample/glue"},
    "runs": {"theirs": {"pretrained": "models/theirs", "finetune": {"glue": {"cola": TASK, "rte": TASK}}}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """With the sample and the weights. The second test continues with the results of the first."""
    workflow_folder = copy_workflow(tmp_path_factory.mktemp("theirs"))
    shutil.copytree(sample, workflow_folder / "resources/sample")
    write_external_weights(workflow_folder / "models/theirs")
    return workflow_folder


def reasons_of(output: str) -> list[str]:
    """The text below everything that snakemake prints around failed jobs."""
    return output.split("Exiting because a job execution failed.")[1].splitlines()


def page_of(folder: Path, name: str) -> str:
    text = (folder / "results/report" / name / "index.html").read_text()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def test_tasks_without_a_file_are_reported_first_and_last_and_all_else_is_made(folder: Path, sample: Path) -> None:
    """Of SQuAD, of GLUE and of a table; with the retries of a cluster's profile, which would say it four times."""
    config = json.loads(json.dumps(CONFIG))
    squad = "resources/sample/squad"
    config["evaluation"]["squad_v1"] = {"train": f"{squad}/train-v1.1.json", "dev": f"{squad}/dev-v1.json"}
    config["evaluation"]["tables"] = {
        "mine": {"kind": "classification", "train": "mine.csv", "dev": "mine.csv", "texts": ["text"], "label": "label"}
    }
    squad_v1 = {**TASK, "max_sequence_length": 128, "doc_stride": 32}
    config["runs"]["theirs"]["finetune"] |= {"squad_v1": squad_v1, "tables": {"mine": TASK}}
    (folder / "theirs.yaml").write_text(yaml.safe_dump(config))
    dev = folder / "resources/sample/glue/RTE/dev.tsv"
    good = (sample / "glue/RTE/dev.tsv").read_text()
    dev.unlink()
    absent = {
        "squad_v1": f"{squad}/dev-v1.json",
        "glue.rte": "resources/sample/glue/RTE/dev.tsv",
        "tables.mine": "mine.csv",
    }

    dry = run_snakemake(folder, *OPTIONS, "--dry-run").stdout
    assert jobs_of(dry)["finetune_task"] == 1
    finished = run_snakemake(folder, *OPTIONS, "--retries", "3", check=False)
    assert finished.returncode != 0
    assert "Traceback (most recent call last)" not in finished.stdout
    lines = finished.stdout.splitlines()
    started = next(number for number, line in enumerate(lines) if line.startswith("Execute "))
    for task, file in absent.items():
        told = f"runs.theirs.finetune.{task} is left out: "
        assert (
            sum(told in line and f"{file} does not exist; put the file there" in line for line in lines[:started]) == 1
        )
        assert sum(told in line for line in reasons_of(finished.stdout)) == 1
        assert sum(told in line for line in dry.splitlines()[-len(absent) :]) == 1
        assert sum(line.startswith(f"error: {told}") for line in lines) == 1  # of one attempt
    assert list((folder / "results/runs/theirs").glob("tracked-complete-*.json"))
    page = page_of(folder, "latest")
    assert (
        "runs.theirs.finetune.glue.rte is left out: evaluation.glue: resources/sample/glue/RTE/dev.tsv does not exist"
        in page
    )
    assert "CoLA" in page

    # Said again as long as it is so; with them, and without them, nothing is wrong.
    assert run_snakemake(folder, "finetune", *OPTIONS, check=False).returncode != 0
    assert run_snakemake(folder, "report", *OPTIONS).returncode == 0
    dev.write_text(good)
    (folder / "theirs.yaml").write_text(yaml.safe_dump(CONFIG))
    assert jobs_of(run_snakemake(folder, *OPTIONS, "--dry-run").stdout)["finetune_task"] == 1
    config = json.loads(json.dumps(CONFIG))
    del config["runs"]["theirs"]["finetune"]["glue"]["rte"]
    (folder / "theirs.yaml").write_text(yaml.safe_dump(config))
    run_snakemake(folder, *OPTIONS)
    assert "left out" not in page_of(folder, "latest")
    run_snakemake(folder, "--report", "jobs.html", *OPTIONS)
    assert "results/report/" in (folder / "jobs.html").read_text()


def test_a_run_of_external_weights_and_another_with_a_bad_task(folder: Path, sample: Path) -> None:
    dev = folder / "resources/sample/glue/RTE/dev.tsv"
    good = (sample / "glue/RTE/dev.tsv").read_text()
    dev.write_text(good.replace("\tentailment", "\tperhaps", 1))
    (folder / "theirs.yaml").write_text(yaml.safe_dump(CONFIG))
    tracked = set((folder / "results/runs/theirs").glob("tracked-complete-*.json"))

    finished = run_snakemake(folder, *OPTIONS, "--retries", "0", check=False)
    assert finished.returncode != 0
    errors = {line.strip() for line in finished.stdout.splitlines() if line.strip().startswith("error: ")}
    assert len(errors) == 1, errors
    line = "RTE/dev.tsv: line 3: column 'label': given 'perhaps', allowed are entailment"
    assert line in errors.pop()
    assert any(line in last for last in reasons_of(finished.stdout))
    assert "Traceback (most recent call last)" not in finished.stdout
    scores = list((folder / "results/finetunings").glob("*/metrics.json"))
    assert [json.loads(path.read_text())["task"] for path in scores] == ["cola"]
    assert "Not finished: RTE (1 of 1 fine-tuning missing). " in page_of(folder, "unfinished")
    assert "CoLA" in page_of(folder, "unfinished")

    dev.write_text(good)
    run_snakemake(folder, *OPTIONS, "--retries", "0")
    assert not (folder / "results/report/unfinished").exists()
    page = page_of(folder, "latest")
    assert "Not finished" not in page
    assert "CoLA" in page
    assert "Starts from the weights in models/theirs." in page
    assert set((folder / "results/runs/theirs").glob("tracked-complete-*.json")) > tracked

    record = json.loads((folder / "results/runs/theirs/record.json").read_text())
    logged = folder / f"results/runs/theirs/logged-model-{record['fingerprint']}.json"
    models = json.loads(logged.read_text())["models"]
    assert [model["model"] for model in models] == ["theirs-glue/cola", "theirs-glue/rte"]

    # A name in the registry trains nothing and changes no run.
    config = json.loads(json.dumps(CONFIG))
    config["runs"]["theirs"]["register"] = "river"
    (folder / "theirs.yaml").write_text(yaml.safe_dump(config))
    assert jobs_of(run_snakemake(folder, *OPTIONS, "--dry-run").stdout) == {"all": 1, "log_model": 1, "total": 2}
    run_snakemake(folder, *OPTIONS)
    registered = json.loads(logged.read_text())["models"]
    assert [model["model_id"] for model in registered] == [model["model_id"] for model in models]
    assert [(model["registered"], model["version"]) for model in registered] == [
        ("river-cola", "1"),
        ("river-rte", "1"),
    ]


def test_moved_data_weights_and_datasets_train_nothing_again(
    workflow_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of results that are taken for finished."""
    monkeypatch.chdir(workflow_folder)
    write_external_weights(Path("models/theirs"))
    Path("data").mkdir()
    Path("data/t.csv").write_text("text,label\nabc abc,x\nxyz xyz,y\n")
    Path("dataset").mkdir()
    card = {"fingerprint": "0123456789abcdef", "sequence_lengths": {"128": {}}, "corpora": []}
    Path("dataset/dataset.json").write_text(json.dumps(card))
    Path("dataset/tokenizer.json").write_text("{}")

    def write_config(weights: str, data: str, dataset: str) -> None:
        table = {"kind": "classification", "train": data, "dev": data, "texts": ["text"], "label": "label"}
        phase = {**PHASE, "sequence_length": 128, "initial_weights": {"directory": weights}}
        ours = {"dataset": "d", "model": SMALL_CONFIG["runs"]["first"]["model"], "phases": {"phase1": phase}}
        runs = {"theirs": {"pretrained": weights, "finetune": {"tables": {"t": TASK}}}, "ours": ours}
        config = {"evaluation": {"tables": {"t": table}}, "datasets": {"d": {"path": dataset}}, "runs": runs}
        Path("theirs.yaml").write_text(yaml.safe_dump(config))

    write_config("models/theirs", "data/t.csv", "dataset")
    plan = plan_of_files(["theirs.yaml"])
    results = [Path(paths.PHASE.format(phase=key), name) for key in plan.phases for name in paths.PHASE_OUTPUTS]
    for key in plan.finetunings:
        folder = Path(paths.FINETUNING.format(finetuning=key))
        results += [folder / name for name in (*paths.FINETUNING_OUTPUTS, "huggingface/model.safetensors")]
    for path in results:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    targets = [str(path) for path in results if path.name in (paths.SCORES, paths.WEIGHTS)][:2]
    run_snakemake(workflow_folder, *targets, "--touch", "--forceall", *OPTIONS)
    assert "Nothing to be done" in run_snakemake(workflow_folder, *targets, "--dry-run", *OPTIONS).stdout
    for before in ("models/theirs", "data", "dataset"):
        Path(before).rename(f"moved-{Path(before).name}")
    write_config("moved-theirs", "moved-data/t.csv", "moved-dataset")
    assert "Nothing to be done" in run_snakemake(workflow_folder, *targets, "--dry-run", *OPTIONS).stdout
    printed = run_snakemake(workflow_folder, *targets, "--dry-run", "--forceall", "-p", *OPTIONS).stdout
    # Also to where the graph's own are, and by another spelling of the path.
    Path("results/datasets").mkdir()
    Path("moved-dataset").rename("results/datasets/0123456789abcdef")
    for place in ("results/datasets/0123456789abcdef", "./results/datasets/0123456789abcdef/"):
        for dataset in (place, str(Path(place).absolute())):
            write_config("moved-theirs", "moved-data/t.csv", dataset)
            assert "Nothing to be done" in run_snakemake(workflow_folder, *targets, "--dry-run", *OPTIONS).stdout
    for place in ("moved-dataset/dataset.json", "moved-theirs/model.safetensors", "moved-theirs/vocab.txt"):
        assert place in printed
