"""A folder of its own for every test of the graph, and the demo data."""

from __future__ import annotations

from pathlib import Path

import pytest
from snakemake_runs import copy_workflow

from bertline.demo_data.generate import generate


@pytest.fixture
def workflow_folder(tmp_path: Path) -> Path:
    return copy_workflow(tmp_path)


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo data, to be copied."""
    folder = tmp_path_factory.mktemp("demo-data") / "sample"
    generate(folder, 1)
    return folder
