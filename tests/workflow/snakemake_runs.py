"""A copy of the workflow in a folder of its own, and snakemake run in it as a person would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def copy_workflow(folder: Path) -> Path:
    """Copy what snakemake needs of the project into `folder`."""
    shutil.copy(ROOT / "Snakefile", folder)
    for part in ("workflow", "config", "profiles", "envs"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run_snakemake(folder: Path, *arguments: str, check: bool = True, live: bool = False) -> subprocess.CompletedProcess:
    """Run snakemake in `folder`; its output, both streams together, is in `.stdout`, or on the terminal if `live`."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    finished = subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=folder,
        env=environment,
        stdout=None if live else subprocess.PIPE,
        stderr=None if live else subprocess.STDOUT,
        text=True,
        check=False,
    )
    if check and finished.returncode != 0:
        pytest.fail(f"snakemake {' '.join(arguments)} failed:\n{(finished.stdout or '')[-6000:]}")
    return finished


def jobs_of(output: str) -> dict[str, int]:
    """The job counts that a dry run prints."""
    table = output.split("count", 1)[1]
    return {name: int(count) for name, count in re.findall(r"^(\w+)\s+(\d+)$", table, flags=re.MULTILINE)}
