"""A cluster for each module of tests, and a graph to run on it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "workflow"))

from graphs import accounted, last_job, prepare, resumptions, trained_here
from slurm_cluster import Cluster, running_cluster, why_not

STEPS = 300
SEEN = pytest.StashKey[list[str]]()  # what became of every test's jobs, told at the end


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four nodes with accounting."""
    reason = why_not(accounting=True)
    if reason:
        pytest.skip(reason)
    with running_cluster(accounting=True) as started:
        yield started


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Encoded once; every test works on a copy."""
    return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def graph(cluster: Cluster, prepared: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    before = last_job() if cluster.accounting else 0
    yield shutil.copytree(prepared, tmp_path / "graph", symlinks=True)
    if cluster.accounting and (jobs := accounted(before)):
        seen = request.config.stash.setdefault(SEEN, [])
        seen.append(request.node.name)
        seen.append("    jobs: " + ", ".join(f"{job} {state} on {nodes}" for job, state, nodes, _ in jobs))
        if lost := [str(last - resumed) for last, resumed in resumptions(tmp_path / "graph")]:
            seen.append(f"    steps lost: {', '.join(lost)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if SEEN in config.stash:
        terminalreporter.section("what Slurm's accounting says")
        for line in config.stash[SEEN]:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def undisturbed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """STEPS steps on this machine, by one process, never stopped."""
    return trained_here(prepared, tmp_path_factory.mktemp("undisturbed") / "graph", steps=STEPS)
