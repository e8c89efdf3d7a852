"""The whole graph on real files: dumps of two languages, ten books, SQuAD, GLUE, tags, Google's vocabulary."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest
import real_input
import yaml

from bertline.results.describe import is_official

sys.path.insert(0, str(Path(__file__).parents[1] / "workflow"))
from snakemake_runs import copy_workflow, run_snakemake

# Untrained, the loss is log(30522) = 10.3 nats; 120 steps of a two-layer model on real text take it well below that.
LOSS_MARGIN = 1.5
DEV_SENTENCES = 100
TASKS = ("squad_v1", "glue/cola", "glue/mrpc", "glue/rte", "table/names")


@pytest.fixture(scope="module")
def finished(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the whole graph ran."""
    folder = copy_workflow(tmp_path_factory.mktemp("real"))
    mirror = folder / "mirror"
    real_input.make_mirror(test_data, mirror)
    for name, sentences, seed in (("train", 400, 1), ("dev", DEV_SENTENCES, 2)):
        real_input.write_conll(folder / f"{name}.conll", sentences, seed)
    config = real_input.configuration(test_data, mirror)
    (folder / "real.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    profile = yaml.safe_load((folder / "profiles/local/config.yaml").read_text())
    profile["set-resources"] = {
        "pretrain_phase": {"evaluate_every": 40, "micro_batch_tokens": 4096},
        "finetune_task": {"processes_per_node": 2},
    }
    profile["set-threads"] = {"finetune_task": 2}
    (folder / "profiles/local/config.yaml").write_text(yaml.safe_dump(profile))
    run_snakemake(folder, "--profile", "profiles/local", "--configfile", "real.yaml", live=True)
    return folder


def corpus_folder(finished: Path, name: str) -> Path:
    (folder,) = (finished / "results/corpora").glob(f"{name}-*")
    return folder


def read(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.mark.parametrize(("corpus", "wiki"), [("english", "enwiki"), ("latgalian", "ltgwiki")])
def test_every_page_of_every_dump_is_accounted_for(finished: Path, corpus: str, wiki: str) -> None:
    """Against an independent pass over the XML: articles in, redirects and other namespaces skipped."""
    parts = sorted((finished / "resources/wikimedia" / wiki / real_input.DUMP).glob("*.bz2"))
    assert parts
    for part in parts:
        counts = read(corpus_folder(finished, corpus) / f"documents/{part.name.split('.')[0]}.counts.json")
        expected = real_input.count_pages(part)
        assert {key: counts[key] for key in expected} == expected
        assert counts["articles"] == counts["kept"] + sum(counts["dropped"].values())
        assert counts["kept"] > 0


def test_every_document_is_in_exactly_one_shard(finished: Path) -> None:
    for run in ("english", "latgalian"):
        card = read(finished / f"results/runs/{run}/dataset/dataset.json")
        kept = sum(
            read(path)["kept"]
            for corpus in card["corpora"]
            for path in corpus_folder(finished, corpus["name"]).glob("documents/*.counts.json")
        )
        assert card["documents"] + card["held_out_documents"] == kept


@pytest.mark.parametrize("run", ["english", "latgalian"])
def test_the_hdf5_files_pass_the_validator(finished: Path, run: str) -> None:
    import subprocess

    card = finished / f"results/runs/{run}/dataset/dataset.json"
    subprocess.run([sys.executable, "workflow/scripts/validate_dataset.py", str(card)], cwd=finished, check=True)


def test_the_held_out_loss_falls_over_three_points(finished: Path) -> None:
    journal = finished / "results/runs/english/phase1/metrics.jsonl"
    points = [json.loads(line) for line in journal.read_text().splitlines()]
    losses = {p["step"]: p["metrics"]["held_out/mlm_loss"] for p in points if "held_out/mlm_loss" in p["metrics"]}
    assert list(losses) == [0, 40, 80, 120]
    assert losses[0] > losses[40] > losses[80] > losses[120]
    assert losses[0] - losses[120] > LOSS_MARGIN


@pytest.mark.parametrize("task", TASKS)
def test_two_processes_trained_each_task(finished: Path, task: str) -> None:
    folder = finished / "results/runs/english" / task / "seed1"
    assert read(folder / "recipe.json")["world_size"] == 2
    metrics = read(folder / "metrics.json")
    # CoLA's is a correlation, which may be zero.
    assert task == "glue/cola" or 0 < metrics["scores"][metrics["primary"]] <= 100


def test_all_of_the_official_set_of_mrpc_is_scored(finished: Path) -> None:
    metrics = read(finished / "results/runs/english/glue/mrpc/seed1/metrics.json")
    assert metrics["examples"]["dev"] == 408
    assert is_official("glue/mrpc", metrics["primary"], metrics)


def test_names_that_were_trained_on_are_tagged(finished: Path, tmp_path: Path) -> None:
    folder = finished / "results/runs/english/table/names/seed1"
    assert read(folder / "metrics.json")["scores"]["f1"] > 80
    predicted = (folder / "predictions.conll").read_text().split("\n")
    assert sum(bool(line) for line in predicted) == real_input.write_conll(tmp_path / "dev.conll", DEV_SENTENCES, 2)


def test_there_is_an_answer_to_every_question(finished: Path, test_data: Path) -> None:
    dev = read(test_data / "squad/dev-v1.1.json")
    questions = {
        question["id"]
        for article in dev["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }
    answers = read(finished / "results/runs/english/squad_v1/seed1/predictions.json")
    assert answers.keys() == questions
    assert len(questions) == 10570


@pytest.mark.parametrize(("task", "rows"), [("cola", 1043), ("mrpc", 408), ("rte", 277)])
def test_there_is_a_prediction_for_every_row(finished: Path, task: str, rows: int) -> None:
    with (finished / f"results/runs/english/glue/{task}/seed1/predictions.tsv").open() as file:
        assert len(list(csv.reader(file, delimiter="\t"))) - 1 == rows


def test_mlflow_holds_point_for_point_what_the_journals_hold(finished: Path) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{finished}/mlflow.db")
    experiment = client.get_experiment_by_name("real-input")
    runs = client.search_runs([experiment.experiment_id], max_results=1000)
    by_fingerprint = {
        run.data.tags["bertline.fingerprint"]: run for run in runs if "bertline.fingerprint" in run.data.tags
    }
    journals = [*finished.glob("results/phases/*/metrics.jsonl"), *finished.glob("results/finetunings/*/metrics.jsonl")]
    assert len(journals) == 3 + len(TASKS)
    for journal in journals:
        run = by_fingerprint[journal.parent.name]
        expected: dict[str, set] = {}
        for line in journal.read_text().splitlines():
            point = json.loads(line)
            for key, value in point["metrics"].items():
                expected.setdefault(key, set()).add((point["step"], point["timestamp"], value))
        for key, points in expected.items():
            history = client.get_metric_history(run.info.run_id, key)
            assert {(metric.step, metric.timestamp, metric.value) for metric in history} == points
            assert len(history) == len(points)


def test_nothing_is_left_to_do(finished: Path) -> None:
    output = run_snakemake(finished, "--profile", "profiles/local", "--configfile", "real.yaml").stdout
    assert "Nothing to be done" in output
