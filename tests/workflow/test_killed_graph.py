"""The whole graph loses its power at random moments; the same command ends with the same bytes."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from fault_counts import TIMES, drawing
from finished_results import assert_same_results
from snakemake_runs import ROOT, SMALL_CONFIG, copy_workflow, environment, run_snakemake, start_snakemake

KILLS = 3 if TIMES == 1 else 10 * TIMES
OPTIONS = ("--profile", "profiles/local", "--configfile", "small.yaml")
# Snakemake (9.27) may miss what depends on a job that it repeats; then the workflow asks for the same command.
AGAIN = "is still to be made; run the same command again"
STARTED = re.compile(r"^(?:local)?rule (\w+):$", re.MULTILINE)


def kill_all(snakemake: psutil.Process) -> None:
    """End a process and all that it started, as a power cut does: without a signal that they could handle."""
    snakemake.suspend()  # starts nothing meanwhile
    for process in [*snakemake.children(recursive=True), snakemake]:
        with suppress(psutil.NoSuchProcess):  # it has just ended, or followed the one before
            process.kill()


def kill_later(folder: Path, draw: random.Random) -> str:
    """Run the graph, and kill it a moment after the start of a random one of the next jobs.

    Returns the name of the rule that was started last; empty if the graph was finished before; or AGAIN.
    """
    jobs, moment = draw.randrange(1, 8), draw.uniform(0, 3)
    output = folder / "output.txt"
    output.write_text("")
    process = start_snakemake(folder, *OPTIONS, output=str(output))
    while process.is_alive() and len(STARTED.findall(output.read_text())) < jobs:
        time.sleep(0.02)
    process.join(moment)
    if not process.is_alive():
        assert process.exitcode == 0 or AGAIN in output.read_text(), output.read_text()[-6000:]
        return AGAIN if process.exitcode else ""
    kill_all(psutil.Process(process.pid))
    process.join()
    return STARTED.findall(output.read_text())[-1]


def new_graph(folder: Path, sample: Path) -> Path:
    copy_workflow(folder)
    shutil.copytree(sample, folder / "resources/sample")
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL_CONFIG, sort_keys=False))
    return folder


@pytest.mark.slow
@pytest.mark.fault(row="killed")
def test_a_graph_killed_at_random_moments_ends_with_the_same_bytes(
    finished: Path, sample: Path, tmp_path: Path, record_property: Any
) -> None:
    draw, killed_in, graphs = drawing("moments of kills"), Counter[str](), 1
    graph = new_graph(tmp_path / "graph", sample)
    while killed_in.total() < KILLS:
        rule = kill_later(graph, draw)
        if rule == AGAIN:
            continue
        if not rule:
            assert_same_results(graph, finished)
            shutil.rmtree(graph)
            new_graph(graph, sample)
            graphs += 1
        else:
            killed_in[rule] += 1
            unlock = [sys.executable, ROOT / "workflow/scripts/unlock.py", "--configfile", "small.yaml"]
            subprocess.run(unlock, cwd=graph, check=True, env=environment())
    if AGAIN in run_snakemake(graph, *OPTIONS, check=False).stdout:
        run_snakemake(graph, *OPTIONS)
    assert_same_results(graph, finished)
    assert "Nothing to be done" in run_snakemake(graph, *OPTIONS).stdout
    record_property("faults", KILLS)
    record_property("graphs", graphs)
    record_property("killed in", json.dumps(killed_in))
