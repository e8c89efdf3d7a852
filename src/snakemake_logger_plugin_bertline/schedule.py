"""How long the rest of a graph takes: its jobs, and a schedule of them on the cores or nodes at hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

# Ready jobs that are tried for one that fits the free cores.
MAX_TRIED = 64


@dataclass(frozen=True)
class GraphJob:
    """A job of the graph that has not finished.

    `cores` are slots: of a cluster every job takes one. `needs` are the numbers of the jobs it waits for. A target such
    as `all` runs nothing and `is_target`; after a checkpoint, which `adds_jobs`, more jobs follow.
    """

    number: int
    rule: str
    wildcards: Mapping[str, str] = field(default_factory=dict)
    cores: int = 1
    priority: int = 0
    needs: Collection[int] = ()
    is_target: bool = False
    adds_jobs: bool = False


@dataclass(frozen=True)
class RemainingJobs:
    """The unfinished jobs of a graph, and how many cores, or nodes of a cluster, there are for them."""

    jobs: list[GraphJob]
    slots: int


def remaining_jobs(workflow: Any) -> RemainingJobs:
    """Return the jobs that Snakemake has still to run or is running.

    In a dry run, which counts jobs as finished, these are all. Snakemake may change its graph in another thread at the
    same time: this may raise a RuntimeError.
    """
    dag = workflow.dag
    is_local = workflow.local_exec
    slots = workflow.resource_settings.cores if is_local else workflow.nodes
    if not slots:  # in a dry run with the profile of a cluster
        return RemainingJobs([], 1)
    unfinished = list(dag.needrun_jobs(exclude_finished=not workflow.dryrun))
    numbers = {job: dag.jobid(job) for job in unfinished}
    jobs = []
    for job in unfinished:
        rule = job.rule
        cores = rule.resources["_cores"].evaluate(job.wildcards).value if is_local and not rule.norun else 1
        needs = [numbers[before] for before in list(dag.dependencies[job]) if before in numbers]
        priority = rule.priority if isinstance(rule.priority, int) else 0
        jobs.append(
            GraphJob(
                numbers[job],
                rule.name,
                dict(job.wildcards_dict),
                min(cores, slots) if isinstance(cores, int) else 1,
                priority,
                needs,
                is_target=rule.norun,
                adds_jobs=rule.is_checkpoint,
            )
        )
    return RemainingJobs(jobs, slots)


def without(failed: Collection[int], jobs: list[GraphJob]) -> list[GraphJob]:
    """Return the jobs but the failed ones and all that would follow them: Snakemake does not run these."""
    skipped = set(failed)
    followers = defaultdict(list)
    for job in jobs:
        for number in job.needs:
            followers[number].append(job.number)
    unseen = list(skipped)
    while unseen:
        new = [number for number in followers[unseen.pop()] if number not in skipped]
        skipped.update(new)
        unseen += new
    return [job for job in jobs if job.number not in skipped]


def seconds_left(
    jobs: Collection[GraphJob], slots: int, seconds: Mapping[int, float], running: Collection[int]
) -> float:
    """Return when the last job ends, if each starts as soon as those it needs have ended and enough slots are free.

    Args:
        seconds: of each job by its number: of running ones what is left, of waiting ones all. Others take no time.
        running: numbers of the jobs that have started.
    """
    by_number = {job.number: job for job in jobs}
    started = {number for number in running if number in by_number}
    followers, missing = defaultdict(list), {}
    for job in jobs:
        before = {number for number in job.needs if number in by_number}
        missing[job.number] = len(before)
        for number in before:
            followers[number].append(job)
    ends = [(seconds.get(number, 0.0), number) for number in started]
    free = slots - sum(by_number[number].cores for number in started)
    ready = [(-job.priority, job.number) for job in jobs if not missing[job.number] and job.number not in started]
    heapify(ends)
    heapify(ready)
    now = 0.0
    while ends or ready:
        passed: list[tuple[int, int]] = []
        while ready and free > 0 and len(passed) < MAX_TRIED:
            entry = heappop(ready)
            job = by_number[entry[1]]
            if job.cores > free and ends:
                passed.append(entry)
                continue
            free -= job.cores
            heappush(ends, (now + seconds.get(job.number, 0.0), job.number))
        for entry in passed:
            heappush(ready, entry)
        now, number = heappop(ends)
        free += by_number[number].cores
        for job in followers[number]:
            missing[job.number] -= 1
            if not missing[job.number] and job.number not in started:
                heappush(ready, (-job.priority, job.number))
    return now
