"""Measure the demo workflow on a Slurm cluster: submissions, time, cost of each job, with and without grouping.

    python bench/slurm.py

It starts the test cluster of tests/slurm (root; packages: tests/slurm/packages.txt), four nodes on this machine, and
runs the whole demo workflow through profiles/slurm, its pretraining on two nodes with two ranks each: once without
groups, once with the profile's groups, once with fine-tunings grouped as well. Then the three phases are trained with
four ranks on this machine alone, and the weights are compared. This takes about an hour on two cores; `--ways grouped`
runs one of them. The last line is JSON.

CPU seconds are Slurm's. A submission costs its batch step, in which the executor's Snakemake starts the jobs one after
another, each as a step with its own Snakemake.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal, get_args

import pandas as pd
import yaml
from tabulate import tabulate

sys.path.extend(str(Path(__file__).parents[1] / "tests" / room) for room in ("", "slurm", "workflow"))

from graphs import MICRO_BATCH_TOKENS, last_job, submitted, write_site
from slurm_cluster import running_cluster, why_not
from snakemake_runs import copy_workflow, run_snakemake

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.demo_data.generate import generate

CONFIG = "config/demo.yaml"
PHASES = ("warm_up", "phase1", "phase2")
SECONDS = 3 * 3600
Way = Literal["one-by-one", "grouped", "finetunings-grouped"]
# How each way changes the profile's groups and the number of jobs in them.
WAYS: dict[Way, Any] = {
    "one-by-one": lambda profile: profile.pop("groups"),
    "grouped": lambda profile: None,
    "finetunings-grouped": lambda profile: (
        profile["groups"].update(finetune_task="scores"),
        profile["group-components"].update(scores=6),
    ),
}


def run_demo(folder: Path, way: Way) -> dict[str, Any]:
    """Run the whole workflow in the new `folder`; return the figures of Slurm and Snakemake."""
    folder.mkdir()
    copy_workflow(folder)
    generate(folder / "resources/sample", 1)
    path = folder / "profiles/slurm/config.yaml"
    profile = yaml.safe_load(path.read_text())
    WAYS[way](profile)
    path.write_text(yaml.safe_dump(profile))
    write_site(folder, {"nodes": 2, "gpus_per_node": 2})
    before, started = last_job(), time.monotonic()
    with submitted(folder, config=CONFIG) as submission:
        output = submission.finish(seconds=SECONDS)
    took = time.monotonic() - started
    steps = finished_steps(before)
    sent = dict(re.findall(r"SLURM jobid (\d+) \(log: \S*/logs/slurm/(\w+)/", output))
    if set(steps.job) != set(sent) or set(steps.state) != {"COMPLETED"}:
        raise BertlineError(f"Slurm's accounting has other jobs than snakemake sent, or some failed:\n{steps}")
    return {
        "way": way,
        "jobs": jobs_on_nodes(folder, sent),
        "submissions": len(sent),
        "minutes": round(took / 60, 1),
        "cpu_seconds": round(steps.cpu_seconds.sum()),
        "cpu_seconds_a_submission": round(steps[steps.step == "batch"].cpu_seconds.mean(), 2),
        "ranks_on": {phase: ranks_of(folder, phase) for phase in PHASES},
    }


def finished_steps(since: int) -> pd.DataFrame:
    """Return the steps of all jobs after `since` in Slurm's accounting: job, step, state, cpu_seconds."""
    command = ["sacct", "--format=JobIDRaw,State,TotalCPU", "--parsable2", "--noheader", "--duplicates"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    rows = [line.split("|") for line in listed.stdout.splitlines()]
    steps = pd.DataFrame(rows, columns=["id", "state", "time"])
    steps[["job", "step"]] = steps.id.str.split(".", n=1, expand=True)
    # [DD-[HH:]]MM:SS.mmm
    times = steps.time.str.replace("-", " days ").map(lambda time: time if time.count(":") == 2 else f"00:{time}")
    steps["cpu_seconds"] = pd.to_timedelta(times).dt.total_seconds()
    return steps[steps.step.notna() & (steps.job.astype(int) > since)]


def jobs_on_nodes(folder: Path, sent: dict[str, str]) -> int:
    """Return how many of Snakemake's jobs wrote a benchmark and ran on nodes; `sent` has each submission's rules."""
    rules = [path.relative_to(folder).parts[1] for path in folder.glob("benchmarks/*/**/*.tsv")]
    return sum(any(rule in name for name in sent.values()) for rule in rules)


def ranks_of(folder: Path, phase: str) -> list[str]:
    """Return the ranks of each node of a phase's job, from its log."""
    log = (folder / "results/runs/demo" / phase / "checkpoints/training.log").read_text()
    return sorted(re.findall(r"^(ranks \d+ to \d+ of \d+ on \w+)$", log, flags=re.MULTILINE))


def train_here(demo: Path, folder: Path) -> list[bool]:
    """Train the phases of `demo` with four ranks on this machine; return whether each has bit-identical weights."""
    folder.mkdir()
    copy_workflow(folder)
    shutil.copytree(demo / "resources", folder / "resources", symlinks=True)
    size = ("pretrain_phase:processes_per_node=4", f"pretrain_phase:micro_batch_tokens={MICRO_BATCH_TOKENS}")
    run_snakemake(folder, "pretrain", "--profile", "profiles/local", "--configfile", CONFIG, "--set-resources", *size)
    names = [Path("results/runs/demo") / phase / "model.safetensors" for phase in PHASES]
    return [(demo / name).read_bytes() == (folder / name).read_bytes() for name in names]


def main(*, ways: tuple[Way, ...] = get_args(Way)) -> None:
    """Run the benchmark.

    Args:
        ways: which, in this order.
    """
    reason = why_not(accounting=True)
    if reason:
        raise BertlineError(reason)
    with tempfile.TemporaryDirectory(prefix="bertline-bench-") as work:
        demo, found = Path(work) / "0", []
        with running_cluster(accounting=True):
            for number, way in enumerate(ways):
                found.append(run_demo(Path(work) / str(number), way))
                print(json.dumps(found[-1]), flush=True)
        same = train_here(demo, Path(work) / "here")
    columns = ("way", "jobs", "submissions", "minutes", "cpu_seconds", "cpu_seconds_a_submission")
    print(tabulate([[row[column] for column in columns] for row in found], headers=columns))
    print(json.dumps({"ways": found, "same_bits_as_four_ranks_here": dict(zip(PHASES, same, strict=True))}))


if __name__ == "__main__":
    run_command(main, __doc__)
