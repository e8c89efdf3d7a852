"""A cluster for each module of tests, and a graph to run on it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "workflow"))

from graphs import prepare, trained_here
from slurm_cluster import Cluster, running_cluster, why_not

STEPS = 300


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
def graph(cluster: Cluster, prepared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared, tmp_path / "graph", symlinks=True)


@pytest.fixture(scope="session")
def undisturbed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """STEPS steps on this machine, by one process, never stopped."""
    return trained_here(prepared, tmp_path_factory.mktemp("undisturbed") / "graph", steps=STEPS)
