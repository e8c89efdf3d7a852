"""Rankings through the graph: one tokenized collection for all seeds, scores, runs, and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import jobs_of, run_snakemake, write_external_weights

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "ranking.yaml")
TASK = {"seeds": 2, "precision": "fp32", "max_sequence_length": 64, "max_query_length": 24, "learning_rate": 1.0e-3}


def write_ranking(folder: Path) -> None:
    """Passages about ten people, of which one answers a query; candidates are all passages about the person."""
    names = ["ann", "bob", "cid", "dora", "eve", "fred", "gus", "hal", "ida", "joe"]
    verbs = ["sings", "was born in may", "runs", "reads"]
    lines: dict[str, list[str]] = {"collection": [], "queries": [], "candidates": [], "qrels": []}
    for query, name in enumerate(names):
        lines["queries"].append(f"q{query}\twhen was {name} born?")
        for place, verb in enumerate(verbs):
            passage = f"p{query}{place}"
            lines["collection"].append(f"{passage}\t{name} {verb}.")
            lines["candidates"].append(f"q{query}\t{passage}")
            if place == 1:
                lines["qrels"].append(f"q{query}\t0\t{passage}\t1")
    (folder / "data").mkdir()
    for kind, content in lines.items():
        (folder / f"data/{kind}.tsv").write_text("\n".join(content) + "\n")


def configuration(**task: Any) -> dict[str, Any]:
    lists = {kind: f"data/{kind}.tsv" for kind in ("queries", "candidates", "qrels")}
    test = {kind: lists[kind] for kind in ("queries", "candidates")}
    births = {"collection": "data/collection.tsv", "train": lists, "dev": lists, "test": test}
    return {
        "evaluation": {"ranking": {"births": births}},
        "predict": {
            "again": {"model": "results/runs/mine/ranking/births", "collection": "data/collection.tsv"}
            | {kind: lists[kind] for kind in ("queries", "candidates")}
        },
        "runs": {"mine": {"pretrained": "weights", "finetune": {"ranking": {"births": {**TASK, **task}}}}},
    }


@pytest.fixture
def graph(workflow_folder: Path) -> Path:
    write_ranking(workflow_folder)
    write_external_weights(workflow_folder / "weights")
    (workflow_folder / "ranking.yaml").write_text(yaml.safe_dump(configuration(predict_test=True)))
    return workflow_folder


def test_a_collection_is_tokenized_once_and_ranked_with_every_seed(graph: Path) -> None:
    jobs = jobs_of(run_snakemake(graph, "--dry-run", *OPTIONS).stdout)
    assert jobs["tokenize_collection"] == 1
    assert jobs["finetune_task"] == 2
    run_snakemake(graph, *OPTIONS)
    for seed in ("seed1", "seed2"):
        folder = graph / f"results/runs/mine/ranking/births/{seed}"
        metrics = json.loads((folder / "metrics.json").read_text())
        assert metrics["primary"] == "mrr_10"
        assert set(metrics["baselines"]) == {"bm25", "candidates"}
        for name in ("ranking.tsv", "run.trec", "ranking_test.tsv", "run_test.trec"):
            assert len((folder / name).read_text().splitlines()) == 40
    assert (graph / "results/runs/mine/ranking/births/model/model.safetensors").exists()
    run = (graph / "results/predictions/again.trec").read_text()
    choice = json.loads(next(graph.glob("results/kept/*/choice.json")).read_text())
    assert run == (graph / f"results/finetunings/{choice['best']}/run.trec").read_text()
    page = (graph / "results/report/latest/index.html").read_text()
    assert "births" in page
    assert "MRR@10" in page
    assert "BM25" in page
    # Another objective needs no other collection, and nothing else is made again.
    (graph / "ranking.yaml").write_text(yaml.safe_dump(configuration(objective="pairwise", seeds=1)))
    jobs = jobs_of(run_snakemake(graph, "--dry-run", *OPTIONS).stdout)
    assert "tokenize_collection" not in jobs
    assert jobs["finetune_task"] == 1
    run_snakemake(graph, "finetune", *OPTIONS)
    model = json.loads((graph / "results/runs/mine/ranking/births/model/config.json").read_text())
    assert len(model["id2label"]) == 1


def test_an_absent_file_skips_the_task_and_a_bad_one_is_a_line(graph: Path) -> None:
    (graph / "data/qrels.tsv").rename(graph / "data/elsewhere.tsv")
    skipped = run_snakemake(graph, "--dry-run", *OPTIONS).stdout
    assert "evaluation.ranking.births.train.qrels: data/qrels.tsv" in skipped
    (graph / "data/qrels.tsv").write_text("q0\t0\tp01\t1\n")
    (graph / "data/candidates.tsv").write_text("q0\tp99\n")
    failed = run_snakemake(graph, "finetune", "--retries", "0", *OPTIONS, check=False)
    assert failed.returncode != 0
    assert "data/candidates.tsv: line 1: passage 'p99' is not in the collection" in failed.stdout
    assert not list(graph.glob("results/finetunings/*/metrics.json"))
