"""A folder of its own for every test of the graph, the demo data, and a graph that ran once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from snakemake_runs import SMALL_CONFIG, copy_workflow, run_snakemake

from bertline.demo_data import generate


@pytest.fixture
def workflow_folder(tmp_path: Path) -> Path:
    return copy_workflow(tmp_path)


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo data, to be copied; its dump in two parts instead of four, which are as many jobs of each kind."""
    folder = tmp_path_factory.mktemp("demo-data") / "sample"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "PARTS", 2)
        generate.generate(folder, 1)
    return folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Path:
    """A graph that ran to its end: a small dump and a book, a very small model. Tests work on copies.

    The processes of pytest-xdist share one.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, done = shared / "finished-graph", shared / "graph-is-finished"
    with FileLock(shared / "finished-graph.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            copy_workflow(folder)
            shutil.copytree(sample, folder / "resources/sample")
            (folder / "small.yaml").write_text(yaml.safe_dump(SMALL_CONFIG, sort_keys=False))
            run_snakemake(folder, "--profile", "profiles/local", "--configfile", "small.yaml")
            done.touch()
    return folder
