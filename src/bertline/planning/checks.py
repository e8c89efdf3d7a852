"""What a run of Snakemake that would end badly is stopped for, before its first job; jobs are those of its graph."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.planning.plan import Plan
from bertline.results import paths
from bertline.results.kept import decided_by_any, kept_by_any, model_of
from bertline.settings.site import Site

# Machines of one cluster may differ by this much.
CLOCK_SKEW_SECONDS = 60
# Folders in which a run also writes without a job.
ALWAYS_WRITTEN = ("results", "resources", "logs", "benchmarks", "results/recipes")


def check_named_files(plan: Plan) -> None:
    """Raise BertlineError if files that the configuration names are absent. They are reported only once."""
    if plan.problems:
        first, *others = plan.problems
        plan.problems.clear()
        raise BertlineError(first + (f" (and {len(others)} more)" if others else ""))


def check_inputs_left_out(jobs: Iterable[Any], left_out: Mapping[str, str]) -> None:
    """Raise BertlineError if Snakemake, for a reason of its own, would make outputs again without their inputs.

    Args:
        jobs: that Snakemake will run. It deletes their outputs before.
        left_out: the absent input, by output, of jobs whose inputs the graph leaves out.
    """
    for job in jobs:
        if files := [file for file in job.output if file in left_out]:
            # Each output may have the marker of an interrupted job, a model that was deleted as well.
            raise BertlineError(
                f"Snakemake would delete {files[0]} to make it again, perhaps because it was interrupted at the end of "
                f"the job, but {left_out[files[0]]} is absent; to keep it, give the same command `--cleanup-metadata "
                f"{' '.join(job.output)}` once, or `--forcerun {files[0]}` to make both again"
            )


def check_layouts(plan: Plan, jobs: Iterable[Any]) -> None:
    """Raise BertlineError for a requested layout of samples of sentence order: its labels mean something else."""
    ordered = {
        key: entry["name"]
        for key, entry in plan.built_datasets.items()
        if entry["settings"]["pair_objective"] == "sentence_order"
    }
    for job in jobs if ordered else ():
        if job.rule.name in ("export_nvidia", "export_gpauloski") and job.wildcards.dataset in ordered:
            raise BertlineError(
                f"{job.output[0]}: datasets.{ordered[job.wildcards.dataset]}.pair_objective is sentence_order, which "
                "this layout does not have; export a dataset with another one"
            )


def check_disk(plan: Plan, jobs: Iterable[Any]) -> None:
    """Raise BertlineError where Snakemake would end in a traceback, or delete what a job has just made.

    That is, for a folder that cannot be written, and for an input with a time in the future.
    """
    jobs = list(jobs)
    written = {file for job in jobs for file in (*job.output, *job.log) if file}
    folders = {next(parent for parent in Path(file).parents if parent.exists()) for file in written}
    folders |= {*map(Path, ALWAYS_WRITTEN), *(Path(paths.RUN.format(run=run)) for run in plan.runs)}
    for folder in sorted(folder for folder in folders if folder.is_dir()):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BertlineError(f"{folder} cannot be written; allow it, or mount its disk for writing")
    now = time.time()
    for file in sorted({file for job in jobs for file in job.input if os.path.exists(file)}):
        ahead = os.path.getmtime(file) - now
        if ahead > CLOCK_SKEW_SECONDS:
            raise BertlineError(
                f"{file} is from a time {ahead / 3600:,.1f} hours ahead of this machine's clock; set the clock right, "
                "or, if it is right, give the files its time: find resources results -exec touch --no-dereference {} +"
            )


def check_made(jobs: Iterable[Any]) -> None:
    """Raise BertlineError if an output of the requested jobs is absent at the end, except models that no choice keeps.

    Snakemake (9.27) misses outputs downstream of a job that runs again while its dependents do not.
    """
    absent = [file for job in jobs for file in job.output or job.input if not Path(file).exists()]
    if not absent:
        return
    deleted = {str(model_of(key)) for key in decided_by_any() - kept_by_any()}
    if missed := next((file for file in absent if file not in deleted), None):
        raise BertlineError(f"{missed} is still to be made; run the same command again")


def unused_sizes(plan: Plan, site: Site) -> Iterator[str]:
    """Yield a line for each phase and task that `site` has a size for, and no run has.

    That is no error, because one site file may serve several configurations.
    """
    phases = {phase["phase"] for phase in plan.phases.values()}
    for name in sorted(site.phases.keys() - {"default", *phases}):
        yield f"{site.path}: phases.{name}: no run here has a phase of this name"
    tasks = {finetuning["task"] for finetuning in plan.finetunings.values()}
    known = f"its tasks are {', '.join(sorted(tasks))}" if tasks else "it has none"
    for name in sorted(site.finetunings.keys() - {"default", *tasks}):
        yield f"{site.path}: finetunings.{name}: no run here has this task; {known}"
