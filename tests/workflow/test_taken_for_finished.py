"""Dry runs of a graph whose results are taken for finished: what runs again, and that a dry run changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from snakemake_runs import book_config, jobs_of, run_snakemake

from bertline.planning import targets
from bertline.planning.plan import Plan
from bertline.planning.resolve import plan_of_files
from bertline.results import paths

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "small.yaml")


def write_config(licence: str = "CC0", seed: int = 1) -> Plan:
    config = book_config(licence=licence)
    config["runs"]["first"]["seed"] = seed
    Path("small.yaml").write_text(yaml.safe_dump(config))
    return plan_of_files(["small.yaml"])


def write_results(plan: Plan) -> None:
    """Write a file in the place of everything that the report follows from."""
    (corpus,), (dataset,), (phase,) = plan.corpora, plan.datasets, plan.phases
    of_corpus = [paths.DOCUMENTS, paths.COUNTS, paths.SENTENCES, paths.SENTENCE_INDEX, f"{paths.PUNKT}/english.json"]
    files = [path.format(corpus=corpus, part="part-00000") for path in of_corpus]
    for shard in plan.datasets[dataset]["shards"]:
        templates = (paths.DATASET_SHARD, paths.DATASET_SAMPLES)
        files += [path.format(dataset=dataset, shard=shard, length=128) for path in templates]
    files += [path.format(dataset=dataset) for path in (paths.DATASET_CARD, paths.DATASET_TOKENIZER, paths.SHARD_PLAN)]
    files += [f"{paths.PHASE.format(phase=phase)}/{name}" for name in (*paths.PHASE_OUTPUTS, paths.TRIGRAM)]
    for path in map(Path, [*files, *targets.of_runs(paths.RECORD, plan.runs), targets.report_page(plan)]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


@pytest.fixture
def graph(workflow_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(workflow_folder)
    Path("text.txt").write_text("It rained.")
    write_results(write_config())
    run_snakemake(workflow_folder, "report", "--touch", "--forceall", *OPTIONS)
    return workflow_folder


def test_a_corrected_licence_is_in_the_report_and_a_dry_run_leaves_links(graph: Path) -> None:
    assert "Nothing to be done" in run_snakemake(graph, "report", "--dry-run", *OPTIONS).stdout
    write_config(licence="CC BY 4.0")
    jobs = jobs_of(run_snakemake(graph, "report", "--dry-run", *OPTIONS).stdout)
    assert jobs == {"describe_run": 1, "write_dataset_card": 1, "write_report": 1, "report": 1, "total": 4}

    link = Path("results/runs/first/phase1")
    before = link.resolve()
    write_results(write_config(seed=2))
    run_snakemake(graph, "report", "--dry-run", *OPTIONS)
    assert link.resolve() == before
    run_snakemake(graph, "report", "--touch", *OPTIONS)
    assert link.resolve() != before
