"""What a Slurm cluster makes of the demo graph: submissions, time, what each job costs; with and without grouping.

    python bench/slurm.py

It brings up the test cluster of tests/slurm (root; packages: tests/slurm/packages.txt), four nodes on this one machine,
and runs the whole demo graph through profiles/slurm, its pretraining on two nodes with two ranks each: once with every
job by itself, once grouped as the profile says, once with fine-tunings grouped as well. Then the three phases are
trained with four ranks on this machine alone, and the weights compared. About an hour on two cores; `--ways grouped`
does one of them. The last line is JSON.

CPU seconds of a job are Slurm's own; those of its rules are Snakemake's benchmark files; the difference is overhead.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from tabulate import tabulate

sys.path.extend(str(Path(__file__).parents[1] / "tests" / room) for room in ("slurm", "workflow"))

from graphs import MICRO_BATCH_TOKENS, last_job, submitted, write_site
from slurm_cluster import running_cluster, why_not
from snakemake_runs import copy_workflow, run_snakemake

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.sample.generate import generate

CONFIG = "config/demo.yaml"
PHASES = ("warm_up", "phase1", "phase2")
SECONDS = 3 * 3600
# What each way makes of the profile's groups, and how many jobs are in one of them.
WAYS: dict[str, Any] = {
    "one by one": lambda profile: profile.pop("groups"),
    "grouped": lambda profile: None,
    "fine-tunings grouped, too": lambda profile: (
        profile["groups"].update(finetune_task="scores"),
        profile["group-components"].update(scores=6),
    ),
}


def run_demo(folder: Path, way: str) -> dict[str, Any]:
    """The whole graph in `folder`, which is new; what Slurm and Snakemake tell of it."""
    folder.mkdir()
    copy_workflow(folder)
    generate(folder / "resources/sample", 1)
    path = folder / "profiles/slurm/config.yaml"
    profile = yaml.safe_load(path.read_text())
    WAYS[way](profile)
    path.write_text(yaml.safe_dump(profile))
    write_site(folder, {"nodes": 2, "gpus_per_node": 2})
    before, begun = last_job(), time.monotonic()
    with submitted(folder, config=CONFIG) as submission:
        output = submission.finish(seconds=SECONDS)
    took = time.monotonic() - begun
    jobs = finished_jobs(before)
    asked = set(re.findall(r"SLURM jobid (\d+)", output))
    if set(jobs.number) != asked or set(jobs.state) != {"COMPLETED"}:
        raise BertlineError(f"Slurm's accounting has other jobs than snakemake sent, or some failed:\n{jobs}")
    rules = rules_on_nodes(folder, output)
    return {
        "way": way,
        "submissions": len(jobs),
        "jobs": len(rules),
        "minutes": round(took / 60, 1),
        "cpu_seconds": round(jobs.cpu_seconds.sum()),
        "of_rules": round(rules.cpu_time.sum()),
        "overhead_per_submission": round((jobs.cpu_seconds.sum() - rules.cpu_time.sum()) / len(jobs), 1),
        "overhead_per_job": round((jobs.cpu_seconds.sum() - rules.cpu_time.sum()) / len(rules), 1),
        "ranks_on": {phase: ranks_of(folder, phase) for phase in PHASES},
    }


def finished_jobs(since: int) -> pd.DataFrame:
    """Every job after `since` in Slurm's accounting: number, state, cpu_seconds."""
    fields = ("--format=JobIDRaw,State,TotalCPU", "--parsable2", "--noheader", "--allocations", "--duplicates")
    command = ["sacct", *fields]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    rows = [line.split("|") for line in listed.stdout.splitlines()]
    jobs = pd.DataFrame(rows, columns=["number", "state", "cpu"])
    jobs["cpu_seconds"] = pd.to_timedelta(jobs.cpu.map(lambda time: time if time.count(":") == 2 else f"0:{time}"))
    jobs["cpu_seconds"] = jobs.cpu_seconds.dt.total_seconds()
    return jobs[jobs.number.astype(int) > since]


def rules_on_nodes(folder: Path, output: str) -> pd.DataFrame:
    """The benchmark of every job that ran on a node, as Snakemake measured it there."""
    local = set(re.findall(r"^localrule (\w+):", output, flags=re.MULTILINE))
    paths = [path for path in folder.glob("benchmarks/**/*.tsv") if path.relative_to(folder).parts[1] not in local]
    return pd.concat([pd.read_csv(path, sep="\t") for path in paths])


def ranks_of(folder: Path, phase: str) -> list[str]:
    """Which ranks the nodes of a phase's job had, as its log says."""
    log = (folder / "results/runs/demo" / phase / "checkpoints/training.log").read_text()
    return sorted(re.findall(r"^(ranks \d+ to \d+ of \d+ on \w+)$", log, flags=re.MULTILINE))


def train_here(demo: Path, folder: Path) -> list[bool]:
    """Train the phases of `demo` with four ranks on this machine; whether each has the same weights, to the bit."""
    folder.mkdir()
    copy_workflow(folder)
    shutil.copytree(demo / "resources", folder / "resources", symlinks=True)
    size = ("pretrain_phase:processes_per_node=4", f"pretrain_phase:micro_batch_tokens={MICRO_BATCH_TOKENS}")
    run_snakemake(folder, "pretrain", "--profile", "profiles/local", "--configfile", CONFIG, "--set-resources", *size)
    names = [Path("results/runs/demo") / phase / "model.safetensors" for phase in PHASES]
    return [(demo / name).read_bytes() == (folder / name).read_bytes() for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="which, in this order")
    given = parser.parse_args()
    reason = why_not(accounting=True)
    if reason:
        raise BertlineError(reason)
    with tempfile.TemporaryDirectory(prefix="bertline-bench-") as work:
        demo, found = Path(work) / "0", []
        with running_cluster(accounting=True):
            for number, way in enumerate(given.ways):
                found.append(run_demo(Path(work) / str(number), way))
                print(json.dumps(found[-1]), flush=True)
        same = train_here(demo, Path(work) / "here")
    columns = ("way", "jobs", "submissions", "minutes", "cpu_seconds", "of_rules", "overhead_per_job")
    print(tabulate([[row[column] for column in columns] for row in found], headers=columns))
    print(json.dumps({"ways": found, "same_bits_as_four_ranks_here": dict(zip(PHASES, same, strict=True))}))


if __name__ == "__main__":
    run_command(main)
