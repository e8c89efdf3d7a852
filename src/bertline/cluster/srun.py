"""One srun over all nodes of a Slurm job, with one task per rank."""

from __future__ import annotations

import os
import socket
import sys
from typing import NoReturn

from bertline.cluster.processes import GRACE_SECONDS
from bertline.cluster.ranks import NodeKind
from bertline.console import BertlineError


def srun_command(kinds: list[NodeKind], threads: int, script: list[str], launcher: list[str]) -> list[str]:
    """Return the command that starts `script` in every rank of the job.

    Args:
        kinds: the nodes of the job; several kinds make a heterogeneous step.
        threads: of each process.
        script: a Python script and its arguments.
        launcher: the command that each task runs, with the option --within-srun.
    """
    if len(kinds) == 1:
        return ["srun", *_tasks(kinds[0], threads, script, launcher)]
    words = []
    for number, kind in enumerate(kinds):
        # The last --threads counts: the threads of this kind of node, which its processes divide equally.
        arguments = [*script, f"--threads={threads * kind.processes_per_node}"]
        words += [":", f"--het-group={number}", *_tasks(kind, threads, arguments, launcher)]
    return ["srun", *words[1:]]


def _tasks(kind: NodeKind, threads: int, script: list[str], launcher: list[str]) -> list[str]:
    return [
        f"--nodes={kind.nodes}",
        f"--ntasks={kind.nodes * kind.processes_per_node}",
        f"--ntasks-per-node={kind.processes_per_node}",
        # A step does not inherit the job's value.
        f"--cpus-per-task={threads}",
        # Ranks that were signalled to stop end one after another, so the first must not end the others.
        "--kill-on-bad-exit=0",
        f"--wait={GRACE_SECONDS:.0f}",
        *launcher,
        "--within-srun",
        f"--processes-per-node={kind.processes_per_node}",
        "--",
        *script,
    ]


def become_rank(script: list[str], processes_per_node: int) -> NoReturn:
    """Replace this process, a task of srun, with the rank that runs `script`."""
    environment = torchrun_environment(processes_per_node)
    if environment["LOCAL_RANK"] == "0":
        node = os.environ.get("SLURMD_NODENAME", socket.gethostname())
        last = int(environment["RANK"]) + processes_per_node - 1
        ranks = f"ranks {environment['RANK']} to {last} of {environment['WORLD_SIZE']}"
        print(f"{ranks} on {node}", file=sys.stderr, flush=True)
    os.execve(sys.executable, [sys.executable, *script], {**os.environ, **environment})  # noqa: S606


def torchrun_environment(processes_per_node: int) -> dict[str, str]:
    """Return torchrun's variables for a task of an srun that was started on the node of rank 0.

    Raises BertlineError outside such a task.
    """
    slurm = os.environ
    try:
        return {
            "RANK": slurm["SLURM_PROCID"],
            "LOCAL_RANK": slurm["SLURM_LOCALID"],
            "WORLD_SIZE": slurm["SLURM_NTASKS"],
            "LOCAL_WORLD_SIZE": str(processes_per_node),
            "MASTER_ADDR": slurm["SLURM_LAUNCH_NODE_IPADDR"],
            "MASTER_PORT": str(20000 + int(slurm["SLURM_JOB_ID"]) % 20000),
        }
    except KeyError as missing:
        raise BertlineError(
            f"{missing.args[0]} is not set; several nodes need a job of Slurm, PBS, LSF or Cobalt"
        ) from None
