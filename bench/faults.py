"""Try faults on all parts: kills, disks, servers, clusters, damaged files, hostile configurations; print what held.

    python bench/faults.py                           # the short form, as in CI: about 20 minutes on two cores
    python bench/faults.py --times 10 --seed 7       # ten times as many, with other random numbers
    python bench/faults.py --only killed elastic
    python bench/faults.py --show faults.jsonl       # of tests that ran with BERTLINE_FAULTS_FILE=faults.jsonl

The faults are tests with the mark `fault`; each fails if its promise is not kept once. What cannot be done on a machine
(small disks and a Slurm cluster need root) is skipped, with the reason below the table.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from tabulate import tabulate

from bertline.command_line import run_command
from bertline.console import BertlineError

TESTS = Path(__file__).parents[1] / "tests"
ROOMS = ("workflow", "unit", "services", "slurm")  # one after another: each has fixtures of its own
Row = Literal["killed", "elastic", "slurm", "disk", "tracker", "inputs", "configurations"]
ROWS: dict[Row, tuple[str, str]] = {
    "killed": (
        "SIGKILL to every process at a random moment of the whole graph, then the same command until it is done",
        "the same bytes in the end",
    ),
    "elastic": (
        "a training in fp32, killed and resumed as 1, 2, 4, 3 and 1 ranks",
        "the same samples in each global batch, losses within 1e-5",
    ),
    "slurm": (
        "a real Slurm: requeued, preempted, a dead node, cancelled, no snakemake, walltimes too short, different nodes",
        "the weights of a training on one machine",
    ),
    "disk": (
        "full, over a quota or read-only at a random stage; a clock set back",
        "one line, no half-written file, the same command continues after the repair, the same bytes",
    ),
    "tracker": (
        "MLflow: killed server, killed trackers, two trackers, four people, slow, failing and lost answers",
        "every point once, no run of another user lost",
    ),
    "inputs": ("mutated files, for every reader", "right or one line; none above 20 s"),
    "configurations": (
        "hostile values and names in the shipped configurations",
        "one line, or plain text; no command run",
    ),
}


def main(*, only: tuple[Row, ...] = get_args(Row), seed: int = 1, times: int = 1, show: Path | None = None) -> None:
    """Run the tests of faults, and print the table.

    Args:
        only: the rows to run.
        seed: of all random numbers.
        times: multiplies the number of random faults.
        show: run nothing, and print the table of this file.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = show or Path(folder) / "faults.jsonl"
        failed = False
        if show is None:
            chosen = " or ".join(f"fault(row='{row}')" for row in only)
            given = {
                "BERTLINE_FAULT_SEED": str(seed),
                "BERTLINE_FAULT_TIMES": str(times),
                "BERTLINE_FAULTS_FILE": str(file),
            }
            for room in ROOMS:
                command = [sys.executable, "-m", "pytest", "-m", chosen, "-q", "--no-header", str(TESTS / room)]
                done = subprocess.run(command, check=False, env=os.environ | given)  # noqa: S603
                failed |= done.returncode not in (0, NO_TESTS)
        if not file.exists():
            raise BertlineError(f"{file}: does not exist; run the tests with BERTLINE_FAULTS_FILE={file} first")
        results = [json.loads(line) for line in file.read_text().splitlines()]
        print(table_of(results))
        sys.exit(failed or any(result["outcome"] == "failed" for result in results))


NO_TESTS = 5  # pytest's exit status


def table_of(results: list[dict[str, Any]]) -> str:
    """Return the table, what was measured, and what failed or was skipped, as text."""
    rows, notes = [], []
    for row, (fault, promise) in ROWS.items():
        found = [result for result in results if result["row"] == row]
        held = [result for result in found if result["outcome"] == "passed"]
        tried = sum(result["faults"] for result in found if result["outcome"] != "skipped")
        minutes = sum(result["seconds"] for result in found) / 60
        if tried:
            rows.append((row, fault, promise, f"{sum(result['faults'] for result in held):,} of {tried:,}", minutes))
        for result in found:
            name = result["test"].partition("::")[2]
            notes += [f"{row}: {name}: {key} {value}" for key, value in result["measured"].items()]
            if result["outcome"] == "failed":
                notes.append(f"{row}: FAILED: {result['test']}")
        reasons = Counter(result["reason"] for result in found if result["outcome"] == "skipped")
        notes += [f"{row}: {number} tests skipped: {reason}" for reason, number in reasons.items()]
    machine = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, PyTorch {torch.__version__}"
    )
    head = ("", "fault", "promise", "held", "minutes")
    widths = [None, 44, 34, None, None]
    return "\n".join(
        [machine, tabulate(rows, head, floatfmt=".1f", maxcolwidths=widths, tablefmt="simple_grid"), *notes]
    )


if __name__ == "__main__":
    run_command(main, __doc__)
