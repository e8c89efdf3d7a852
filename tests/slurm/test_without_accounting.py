"""A cluster without accounting: the error, and the options with which it works."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from graphs import ONE_NODE, SLURM, submitted, write_site
from slurm_cluster import Cluster, running_cluster, why_not
from snakemake_runs import run_snakemake

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    reason = why_not(accounting=False)
    if reason:
        pytest.skip(reason)
    with running_cluster(accounting=False) as started:
        yield started


def test_it_is_refused_in_one_line_where_it_would_wait_for_ever_and_works_with_squeue(graph: Path) -> None:
    shutil.rmtree(next(graph.glob("results/datasets/*")) / "seq128")
    write_site(graph, ONE_NODE)
    assert "error: site.yaml: account: this cluster keeps no accounts" in refused(graph)
    site = yaml.safe_load((graph / "site.yaml").read_text())
    del site["account"]
    (graph / "site.yaml").write_text(yaml.safe_dump(site))
    assert "error: sacct does not answer here" in refused(graph, "--slurm-status-command", "sacct")
    site["phases"]["default"]["additional_nodes"] = [{"partition": "old"}]
    (graph / "site.yaml").write_text(yaml.safe_dump(site))
    assert "phases.default.additional_nodes: the executor does not find" in refused(
        graph, "--slurm-status-command", "squeue"
    )
    del site["phases"]["default"]["additional_nodes"]
    (graph / "site.yaml").write_text(yaml.safe_dump(site))
    with submitted(graph, "encode", "--slurm-status-command", "squeue") as submission:
        submission.finish()
    assert next(graph.glob("results/datasets/*/seq128/00000.h5")).exists()


def refused(graph: Path, *options: str) -> str:
    finished = run_snakemake(graph, "encode", *SLURM, *options, check=False)
    assert finished.returncode != 0
    return finished.stdout
