"""What snakemake shows on a terminal: a line for each job by its name, progress, losses; everything with VERBOSE=1."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from snakemake_runs import SMALL_CONFIG, copy_workflow

pytestmark = pytest.mark.slow
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(folder: Path, *arguments: str, verbose: bool = False) -> str:
    """Run snakemake on a terminal of its own; return its output, without colours and movements of the cursor."""
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--configfile=small.yaml", *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"} | ({"VERBOSE": "1"} if verbose else {})
    with subprocess.Popen(command, cwd=folder, stdout=terminal, stderr=terminal, stdin=terminal, env=environment):
        os.close(terminal)
        shown = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError:  # the last process that had the terminal has ended
                break
            if not block:
                break
            shown += block
    os.close(master)
    return ESCAPES.sub("", shown.decode("utf-8", "replace")).replace("\r", "\n")


@pytest.fixture(scope="module")
def graph(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished graph whose first run trains anew, in a folder of its own."""
    folder = copy_workflow(tmp_path_factory.mktemp("display") / "graph")
    shutil.copytree(finished / "resources", folder / "resources")
    shutil.copytree(finished / "results/corpora", folder / "results/corpora", symlinks=True)
    shutil.copytree(finished / "results/datasets", folder / "results/datasets", symlinks=True)
    config = yaml.safe_load(yaml.safe_dump(SMALL_CONFIG))
    del config["runs"]["first"]["finetune"], config["runs"]["first"]["phases"]["phase2"]
    config["runs"]["first"]["phases"]["phase1"]["steps"] = 300
    (folder / "small.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return folder


def test_a_terminal_shows_a_line_for_each_job_progress_and_losses(graph: Path) -> None:
    shown = on_terminal(graph, "pretrain")
    assert re.search(r"\d\d:\d\d:\d\d  pretrain phase: first/phase1  (\d+ s|[\d:]+)\s", shown)
    assert re.search(r"step [\d,]+ of 300, loss \d+\.\d+", shown)
    assert re.search(r"\d+ of \d+ jobs", shown)
    assert not re.search(r"rule pretrain_phase:|resources: |Select jobs", shown)
    (log,) = (graph / ".snakemake/log").iterdir()
    assert "rule pretrain_phase:" in log.read_text()
    assert "loss" in next((graph / "logs/pretrain_phase").iterdir()).read_text()
    assert "Nothing to be done" in on_terminal(graph, "pretrain")
    # A dry run prints what Snakemake prints.
    assert "rule pretrain_phase:" in on_terminal(graph, "--dry-run", "--forcerun=pretrain_phase", "pretrain")


def test_verbose_shows_everything(graph: Path) -> None:
    shown = on_terminal(graph, "--forcerun=trigram_baseline", "--until=trigram_baseline", verbose=True)
    assert "rule trigram_baseline:" in shown
    assert "resources:" in shown


def test_the_reason_of_a_failure_is_on_the_terminal(graph: Path) -> None:
    for samples in graph.glob("results/datasets/*/seq128/00000.h5"):
        samples.write_bytes(samples.read_bytes()[:-1000])
    config = yaml.safe_load((graph / "small.yaml").read_text())
    config["runs"]["first"]["phases"]["phase1"]["learning_rate"] = 2e-3
    (graph / "small.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    shown = on_terminal(graph, "pretrain")
    assert re.search(r"pretrain phase: first/phase1  failed after", shown)
    assert re.search(r"pretrain_phase: error: .*00000.h5", shown)
