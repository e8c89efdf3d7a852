"""How long the rest of a graph takes: its jobs, and a schedule of them on the cores or nodes at hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any

# Ready jobs that are tried for one that fits the free cores.
MAX_TRIED = 64


@dataclass(frozen=True)
class GraphJob:
    """A job of the graph that has not finished.

    `cores` are slots: of a cluster every job takes one, and so does every group of jobs, which run one after the other.
    `group` is the number of one of them. `needs` are the numbers of the jobs it waits for. A target such as `all` runs
    nothing and `is_target`; after a checkpoint, which `adds_jobs`, more jobs follow.
    """

    number: int
    rule: str
    wildcards: Mapping[str, str] = field(default_factory=dict)
    cores: int = 1
    priority: int = 0
    needs: Collection[int] = ()
    is_target: bool = False
    adds_jobs: bool = False
    group: int | None = None


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
    groups: dict[int, int] = {}  # the number of one job, by the identity of its group
    for job in unfinished:
        rule = job.rule
        group = None if is_local else dag.get_job_group(job)  # local runs have no groups
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
                group=None if group is None else groups.setdefault(id(group), numbers[job]),
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
    jobs: Collection[GraphJob],
    slots: int,
    seconds: Mapping[int, float],
    elapsed: Mapping[int, float],
    limits: Mapping[str, int] | None = None,
) -> float:
    """Return when the last job ends, if each starts as soon as those it needs have ended and enough slots are free.

    Args:
        seconds: that each job takes from its start to its end, by its number. Others take no time.
        elapsed: seconds since the start of each job that has started.
        limits: how many jobs of a rule can run at a time, where that is less than the slots.
    """
    group_of = {job.number: job.number if job.group is None else job.group for job in jobs}
    started = {group_of[number]: passed for number, passed in elapsed.items() if number in group_of}
    seconds = _sums(seconds, group_of)
    jobs = _with_groups_as_jobs(jobs, group_of)
    by_number = {job.number: job for job in jobs}
    followers, missing = defaultdict(list), {}
    for job in jobs:
        before = {number for number in job.needs if number in by_number}
        missing[job.number] = len(before)
        for number in before:
            followers[number].append(job)
    ends = [(max(0.0, seconds.get(number, 0.0) - passed), number) for number, passed in started.items()]
    free = slots - sum(by_number[number].cores for number in started)
    limits = limits or {}
    at_work = Counter(by_number[number].rule for number in started)
    ready = [(-job.priority, job.number) for job in jobs if not missing[job.number] and job.number not in started]
    heapify(ends)
    heapify(ready)
    now = 0.0
    while ends or ready:
        passed: list[tuple[int, int]] = []
        while ready and free > 0 and len(passed) < MAX_TRIED:
            entry = heappop(ready)
            job = by_number[entry[1]]
            if ends and (job.cores > free or at_work[job.rule] >= limits.get(job.rule, slots)):
                passed.append(entry)
                continue
            free -= job.cores
            at_work[job.rule] += 1
            heappush(ends, (now + seconds.get(job.number, 0.0), job.number))
        for entry in passed:
            heappush(ready, entry)
        now, number = heappop(ends)
        free += by_number[number].cores
        at_work[by_number[number].rule] -= 1
        for job in followers[number]:
            missing[job.number] -= 1
            if not missing[job.number] and job.number not in started:
                heappush(ready, (-job.priority, job.number))
    return now


def _sums(seconds: Mapping[int, float], group_of: Mapping[int, int]) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for number, time in seconds.items():
        sums[group_of[number]] += time
    return sums


def _with_groups_as_jobs(jobs: Collection[GraphJob], group_of: Mapping[int, int]) -> list[GraphJob]:
    """Return the jobs, with one for each group, which needs all that a job of the group needs from outside."""
    members = defaultdict(list)
    for job in jobs:
        members[group_of[job.number]].append(job)
    return [
        replace(
            group[0],
            number=number,
            needs={group_of[before] for job in group for before in job.needs if before in group_of} - {number},
        )
        for number, group in members.items()
    ]
