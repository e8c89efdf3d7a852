"""A folder of its own for every test of the graph."""

from __future__ import annotations

from pathlib import Path

import pytest
from snakemake_runs import copy_workflow


@pytest.fixture
def workflow_folder(tmp_path: Path) -> Path:
    return copy_workflow(tmp_path)
