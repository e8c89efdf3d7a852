"""Check of site.yaml against the partitions and accounts of the Slurm cluster, at every start of Snakemake."""

from __future__ import annotations

import getpass
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bertline.cluster.slurm import output_of, parse_minutes
from bertline.cluster.walltimes import LongestJob
from bertline.console import BertlineError
from bertline.settings.site import Nodes, Site, Size


@dataclass(frozen=True)
class Partition:
    """A partition of the cluster."""

    nodes: int
    minutes: float | None  # the longest walltime; None without a limit
    gpus: int  # of the node with the most, as are CPUs and memory
    cpus: int
    memory_mb: int
    nodes_of_a_job: int | None = None  # at most; None without a limit
    state: str = "up"  # down, too, accepts jobs
    cancels: bool = False  # what it preempts


def check_site(site: Site, *, status_command: str | None, jobs: Sequence[LongestJob] = ()) -> None:
    """Check that this cluster has what a site file names. Raises BertlineError for the first missing item.

    Args:
        status_command: the executor's command for the state of jobs, sacct or squeue; None for the executor's choice.
        jobs: the longest ones of a run, whose walltimes the partitions have to allow.
    """
    if shutil.which("sbatch") is None:
        raise BertlineError("there is no Slurm here: sbatch is not on the PATH; start snakemake on a login node")
    uses_sacct = status_command != "squeue" and shutil.which("sacct") is not None
    partitions = _read_partitions()
    for purpose, name in site.partitions.items():
        _find(name, f"{site.path}: partitions.{purpose}", partitions)
    sizes = {f"phases.{name}": size for name, size in site.phases.items()}
    for name, size in (sizes | {f"finetunings.{name}": size for name, size in site.finetunings.items()}).items():
        for number, kind in enumerate(size.kinds):
            where = f"{site.path}: {name}" + f".additional_nodes.{number - 1}" * (number > 0)
            _check_nodes(kind, size, where, partitions)
        _check_sum_of_nodes(size, f"{site.path}: {name}", partitions)
        if size.additional_nodes and not uses_sacct:
            raise BertlineError(
                f"{site.path}: {name}.additional_nodes: the executor does not find such jobs in the output "
                "of squeue; let it use sacct, or use nodes of one kind"
            )
    for job in jobs:
        _check_walltime(job, site, partitions)
        _check_state(job, site, partitions)
    _check_account(site)
    _check_qos(site)
    for name in dict.fromkeys(name for job in jobs for name in job.partition.split(",")):
        if partitions[name].cancels:
            print(
                f"warning: partition '{name}' cancels the jobs that it preempts (PreemptMode), and snakemake waits for "
                "them without end; press Ctrl-C then, and run the same command",
                file=sys.stderr,
            )
    if uses_sacct and output_of("sacct", "--allocations", "--noheader") is None:
        raise BertlineError(
            "sacct does not answer here, and Snakemake would wait for it without end; try again, or, if it never "
            "answers, run with --slurm-status-command squeue, or write it into the profile"
        )


def _check_nodes(kind: Nodes, size: Size, where: str, partitions: dict[str, Partition]) -> None:
    found = _find(kind.partition, f"{where}.partition", partitions)
    problems = [_problem_of(kind, size, name, partition) for name, partition in found.items()]
    if all(problems):
        raise BertlineError(f"{where}.{problems[0]}")


def _check_sum_of_nodes(size: Size, where: str, partitions: dict[str, Partition]) -> None:
    """Raise BertlineError if the kinds of nodes of a job need more nodes of a partition than it has.

    Slurm's backfill scheduler, which alone starts such jobs, needs other nodes for each kind.
    """
    for name in dict.fromkeys(kind.partition for kind in size.kinds):
        needed = sum(kind.nodes for kind in size.kinds if kind.partition == name)
        # Of several partitions, with commas between, each kind may get another one.
        if name in partitions and needed > partitions[name].nodes:
            raise BertlineError(
                f"{where}.additional_nodes: given {needed} nodes of partition '{name}' in all, it has "
                f"{partitions[name].nodes}"
            )


def _problem_of(kind: Nodes, size: Size, name: str, partition: Partition) -> str | None:
    """Return what a partition does not have; None if it has what is asked for."""
    of = f"partition '{name}'"
    if kind.nodes > partition.nodes:
        return f"nodes: given {kind.nodes}, {of} has {partition.nodes}"
    if partition.nodes_of_a_job is not None and kind.nodes > partition.nodes_of_a_job:
        return f"nodes: given {kind.nodes}, {of} allows {partition.nodes_of_a_job} in a job"
    if kind.gpus_per_node > partition.gpus:
        return f"gpus_per_node: given {kind.gpus_per_node}, {of} has nodes with {partition.gpus}"
    if kind.cpus_per_node > partition.cpus:
        given = f"{kind.cpus_per_gpu}, {kind.cpus_per_node} on a node"
        return f"cpus_per_gpu: given {given}, {of} has nodes with {partition.cpus}"
    if size.memory_mb > partition.memory_mb > 1:  # 1 if slurm.conf does not say it
        return f"memory_mb: given {size.memory_mb}, {of} has nodes with {partition.memory_mb}"
    if partition.minutes is not None and size.walltime > partition.minutes:
        return f"walltime: given {size.walltime} minutes, {of} allows {partition.minutes:.0f}"
    return None


def _check_walltime(job: LongestJob, site: Site, partitions: dict[str, Partition]) -> None:
    """Raise BertlineError if no partition of a job allows its walltime."""
    rules = " and ".join(job.minutes)
    found = _find(job.partition, f"slurm_partition of {rules}", partitions)
    limits = [partition.minutes for partition in found.values() if partition.minutes is not None]
    if len(limits) < len(found) or job.walltime <= max(limits):
        return
    allowed, of_one = int(max(limits)), sum(job.minutes.values())
    given, options = f"{job.walltime} minutes", []
    if job.components > 1:
        given += f" ({job.components} of {of_one}, one after the other)"
        options.append(f"--group-components {job.group}={max(allowed // of_one, 1)}")
    if of_one > allowed:
        shorter = (f"{rule}:runtime={allowed // len(job.minutes)}" for rule in job.minutes)
        options += ["--set-resources", *shorter]
    raise BertlineError(
        f"{_place_of(job, site)}: a job of {rules} asks for {given}, partition '{job.partition}' allows {allowed}; "
        f"choose another partition, or give {' '.join(options)}"
    )


def _check_state(job: LongestJob, site: Site, partitions: dict[str, Partition]) -> None:
    """Raise BertlineError if none of a job's partitions accepts jobs."""
    states = {name: partitions[name].state for name in job.partition.split(",")}
    if all(state.startswith(("drain", "inact")) for state in states.values()):
        said = ", ".join(f"'{name}' is {state}" for name, state in states.items())
        raise BertlineError(
            f"{_place_of(job, site)}: a partition that accepts no jobs now ({said}, says sinfo); "
            "choose another one, or try again later"
        )


def _place_of(job: LongestJob, site: Site) -> str:
    """Return file and key that name the partition of a job; only the file if none does."""
    keys = [key for key, names in site.partitions.items() if names == job.partition]
    return f"{site.path}: partitions.{keys[0]}" if keys else site.path


def _find(names: str, where: str, partitions: dict[str, Partition]) -> dict[str, Partition]:
    """Return a partition, or several, with commas between, by name: Slurm takes the first that has room."""
    for name in names.split(","):
        if name not in partitions:
            raise BertlineError(f"{where}: given '{name}', this cluster has {', '.join(partitions) or 'none'}")
    return {name: partitions[name] for name in names.split(",")}


def _check_account(site: Site) -> None:
    if site.account is None or shutil.which("sacctmgr") is None:
        return
    fields = ("show", "associations", f"user={getpass.getuser()}", "format=account")
    listed = output_of("sacctmgr", "--noheader", "--parsable2", *fields)
    if listed is None:
        config = output_of("scontrol", "show", "config") or ""
        if re.search(r"^AccountingStorageType\s*=\s*(\(null\)|accounting_storage/none)\s*$", config, re.MULTILINE):
            raise BertlineError(f"{site.path}: account: this cluster keeps no accounts; leave it out")
        raise BertlineError(
            f"{site.path}: account: Slurm's accounting does not answer (sacctmgr fails); try again, or, if it never "
            "answers here, leave it out"
        )
    accounts = sorted({line.strip() for line in listed.splitlines() if line.strip()})
    if accounts and site.account.lower() not in accounts:
        raise BertlineError(f"{site.path}: account: given '{site.account}', yours are {', '.join(accounts)}")


def _check_qos(site: Site) -> None:
    if site.qos is None or shutil.which("sacctmgr") is None:
        return
    listed = (output_of("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name") or "").split()
    for name in site.qos.split(","):  # sbatch takes several, too
        if listed and name.lower() not in map(str.lower, listed):
            raise BertlineError(f"{site.path}: qos: given '{name}', this cluster has {', '.join(sorted(listed))}")


def _read_partitions() -> dict[str, Partition]:
    """Read the cluster's partitions, by name. Raises BertlineError if Slurm does not answer."""
    # Some are hidden from lists, and can be used nevertheless. Without --exact, sinfo prints the fewest CPUs of unlike
    # nodes, without --noconvert 1K for 1024.
    format = "--format=%R|%D|%l|%G|%c|%m|%s|%a|%M"
    listed = output_of("sinfo", "--all", "--exact", "--noconvert", "--noheader", format)
    if listed is None:
        raise BertlineError("Slurm does not answer (sinfo fails); try again when it does")
    partitions: dict[str, Partition] = {}
    for line in listed.splitlines():
        name, nodes, limit, gres, cpus, memory, job_size, state, preemption = line.split("|")
        before = partitions.get(name, Partition(0, None, 0, 0, 0))
        gpus = sum(int(count) for count in re.findall(r"\bgpu:(?:[^:(),]+:)*(\d+)", gres))
        partitions[name] = Partition(
            before.nodes + int(nodes),
            parse_minutes(limit),
            max(before.gpus, gpus),
            max(before.cpus, int(cpus)),
            max(before.memory_mb, int(memory)),
            int(most) if (most := job_size.rpartition("-")[2]).isdigit() else None,  # of 1, 1-8, 1-infinite
            state,
            "CANCEL" in preemption,
        )
    return partitions
