"""Compare site.yaml with what Slurm says of its partitions and accounts. Snakemake does so at every start."""

from __future__ import annotations

import argparse
import getpass
import re
import shutil
import subprocess
from dataclasses import dataclass

from slurm_queue import minutes_of

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.site import Nodes, Site, read_site


@dataclass(frozen=True)
class Partition:
    nodes: int
    minutes: float | None  # the longest walltime; None without a limit
    gpus: int  # of the node with the most


def check_site(site: Site, *, status_command: str | None) -> None:
    """Raise BertlineError for the first thing in `site` that this cluster does not have.

    Parameters
    ----------
    status_command: what the executor asks for the state of jobs, sacct or squeue; None where it chooses.
    """
    if shutil.which("sbatch") is None:
        raise BertlineError("there is no Slurm here: sbatch is not on the PATH; start snakemake on a login node")
    partitions = read_partitions()
    for kind, name in site.partitions.items():
        if name not in partitions:
            raise BertlineError(
                f"{site.path}: partitions.{kind}: given '{name}', this cluster has {', '.join(partitions) or 'none'}"
            )
    for name, size in site.phases.items():
        for number, kind in enumerate(size.kinds):
            where = f"{site.path}: phases.{name}" + f".beside.{number - 1}" * (number > 0)
            _check_nodes(kind, where, partitions, walltime=size.walltime)
        if size.beside and (status_command == "squeue" or shutil.which("sacct") is None):
            raise BertlineError(
                f"{site.path}: phases.{name}.beside: the executor does not find such jobs in what squeue says; "
                "let it ask sacct, or use nodes of one kind"
            )
    _check_account(site)
    if status_command != "squeue" and shutil.which("sacct") and _ask("sacct", "--allocations", "--noheader") is None:
        raise BertlineError(
            "sacct does not answer here, and Snakemake would wait for it without end; run with "
            "--slurm-status-command squeue, or write it into the profile"
        )


def _check_nodes(kind: Nodes, where: str, partitions: dict[str, Partition], *, walltime: int) -> None:
    if kind.partition not in partitions:
        raise BertlineError(
            f"{where}.partition: given '{kind.partition}', this cluster has {', '.join(partitions) or 'none'}"
        )
    partition, of = partitions[kind.partition], f"partition '{kind.partition}'"
    if kind.nodes > partition.nodes:
        raise BertlineError(f"{where}.nodes: given {kind.nodes}, {of} has {partition.nodes}")
    if kind.gpus_per_node > partition.gpus:
        raise BertlineError(f"{where}.gpus_per_node: given {kind.gpus_per_node}, {of} has nodes with {partition.gpus}")
    if partition.minutes is not None and walltime > partition.minutes:
        raise BertlineError(f"{where}.walltime: given {walltime} minutes, {of} allows {partition.minutes:.0f}")


def _check_account(site: Site) -> None:
    if site.account is None:
        return
    fields = ("show", "associations", f"user={getpass.getuser()}", "format=account")
    listed = _ask("sacctmgr", "--noheader", "--parsable2", *fields)
    if listed is None:
        raise BertlineError(f"{site.path}: account: this cluster keeps no accounts (sacctmgr fails); leave it out")
    accounts = sorted({line.strip() for line in listed.splitlines() if line.strip()})
    if accounts and site.account.lower() not in accounts:
        raise BertlineError(f"{site.path}: account: given '{site.account}', yours are {', '.join(accounts)}")


def read_partitions() -> dict[str, Partition]:
    """The cluster's partitions by name. Raises BertlineError when Slurm does not answer."""
    listed = _ask("sinfo", "--noheader", "--format=%R|%D|%l|%G")
    if listed is None:
        raise BertlineError("Slurm does not answer (sinfo fails); try again when it does")
    partitions: dict[str, Partition] = {}
    for line in listed.splitlines():
        name, nodes, limit, gres = line.split("|")
        before = partitions.get(name, Partition(0, None, 0))
        gpus = sum(int(count) for count in re.findall(r"\bgpu:(?:[^:(),]+:)?(\d+)", gres))
        partitions[name] = Partition(before.nodes + int(nodes), minutes_of(limit), max(before.gpus, gpus))
    return partitions


def _ask(*command: str) -> str | None:
    """What a command of Slurm's prints, or None when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/check_site.py site.yaml",
    )
    parser.add_argument("site", help="the site file")
    site = read_site(parser.parse_args().site, "config/site.schema.yaml")
    check_site(site, status_command=None)
    print(f"{site.path}: partitions, account and sizes are there")


if __name__ == "__main__":
    run_command(main)
