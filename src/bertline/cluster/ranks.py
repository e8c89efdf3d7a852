"""The ranks of a job, started on this node or by one srun over all nodes, with torchrun's environment for each."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from bertline.cluster.binding import Bind, bound
from bertline.cluster.processes import GRACE_SECONDS, start
from bertline.console import BertlineError


class NodeKind(NamedTuple):
    """Number of nodes of one kind, and processes on each."""

    nodes: int
    processes_per_node: int


def parse_node_kinds(text: str) -> list[NodeKind]:
    """Parse nodes and processes per node of several kinds, as in "1x2,4x8". Raises BertlineError for invalid text."""
    if not re.fullmatch(r"([1-9]\d*x[1-9]\d*(,|$))*", text):
        raise BertlineError(
            f"--additional-nodes: given '{text}', allowed are nodes and processes per node, as in 1x2,4x8"
        )
    return [NodeKind(int(nodes), int(processes)) for nodes, processes in re.findall(r"(\d+)x(\d+)", text)]


@dataclass(frozen=True)
class NodeRanks:
    """The ranks of one node of a job with uniform nodes."""

    nodes: int
    processes_per_node: int
    address: str  # of rank 0
    port: int
    node: int = 0
    bind: Bind = "none"

    def start(self, command: list[str]) -> dict[str, subprocess.Popen[bytes]]:
        """Start `command` once for each rank of this node. Returns the processes by name."""
        # Not torch.distributed.run: it changes every exit status to 1 (75 means "run again"), prints its own traceback
        # after the rank's one line, and puts each rank in a session of its own, which survives killing the group.
        shared = {
            "WORLD_SIZE": str(self.nodes * self.processes_per_node),
            "LOCAL_WORLD_SIZE": str(self.processes_per_node),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }
        first = self.node * self.processes_per_node
        return {
            f"rank {first + local_rank}": start(
                bound(command, self.bind, local_rank, self.processes_per_node),
                {**shared, "RANK": str(first + local_rank), "LOCAL_RANK": str(local_rank)},
            )
            for local_rank in range(self.processes_per_node)
        }


def free_port() -> int:
    """Return a TCP port that no process of this node listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def srun_command(kinds: list[NodeKind], threads: int, script: list[str], launcher: list[str], bind: Bind) -> list[str]:
    """Return the command that starts `script` in every rank of the job.

    Args:
        kinds: the nodes of the job; several kinds make a heterogeneous step.
        threads: of each process.
        script: a Python script and its arguments.
        launcher: the command that each task runs, with the option --within-srun.
        bind: of each process.
    """
    if len(kinds) == 1:
        return ["srun", *_tasks(kinds[0], threads, script, launcher, bind)]
    words = []
    for number, kind in enumerate(kinds):
        # The last --threads counts: the threads of this kind of node, which its processes divide equally.
        arguments = [*script, f"--threads={threads * kind.processes_per_node}"]
        words += [":", f"--het-group={number}", *_tasks(kind, threads, arguments, launcher, bind)]
    return ["srun", *words[1:]]


def _tasks(kind: NodeKind, threads: int, script: list[str], launcher: list[str], bind: Bind) -> list[str]:
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
        f"--bind={bind}",
        "--",
        *script,
    ]


def mpirun_command(hosts: list[str], processes_per_node: int, script: Path) -> list[str]:
    """Return Open MPI's command that starts the shell `script` in every rank on `hosts`."""
    return [
        "mpirun",
        *("--host", ",".join(f"{host}:{processes_per_node}" for host in hosts)),
        *("--map-by", f"ppr:{processes_per_node}:node"),
        *("--bind-to", "none"),  # `bind` does that
        *("sh", str(script)),
    ]


def become_rank_of_srun(script: list[str], processes_per_node: int, bind: Bind) -> NoReturn:
    """Replace this process, a task of an srun that was started on the node of rank 0, with the rank that runs `script`.

    Raises BertlineError outside such a task.
    """
    slurm = os.environ
    try:
        environment = {
            "RANK": slurm["SLURM_PROCID"],
            "LOCAL_RANK": slurm["SLURM_LOCALID"],
            "WORLD_SIZE": slurm["SLURM_NTASKS"],
            "LOCAL_WORLD_SIZE": str(processes_per_node),
            "MASTER_ADDR": slurm["SLURM_LAUNCH_NODE_IPADDR"],
            "MASTER_PORT": str(20000 + int(slurm["SLURM_JOB_ID"]) % 20000),
        }
    except KeyError as missing:
        raise BertlineError(
            f"{missing.args[0]} is not set; several nodes need a job of Slurm, PBS, LSF or Cobalt, or --hosts"
        ) from None
    _become_rank(script, environment, slurm.get("SLURMD_NODENAME", socket.gethostname()), bind)


def become_rank_of_mpirun(script: list[str], address: str, port: int, bind: Bind) -> NoReturn:
    """Replace this process, a task of Open MPI's mpirun, with the rank that runs `script`; rank 0 is at `address`.

    Raises BertlineError outside such a task.
    """
    try:
        environment = {
            "RANK": os.environ["OMPI_COMM_WORLD_RANK"],
            "LOCAL_RANK": os.environ["OMPI_COMM_WORLD_LOCAL_RANK"],
            "WORLD_SIZE": os.environ["OMPI_COMM_WORLD_SIZE"],
            "LOCAL_WORLD_SIZE": os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"],
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
        }
    except KeyError as missing:
        raise BertlineError(f"{missing.args[0]} is not set; --hosts needs the mpirun of Open MPI") from None
    _become_rank(script, environment, socket.gethostname(), bind)


def _become_rank(script: list[str], environment: Mapping[str, str], node: str, bind: Bind) -> NoReturn:
    processes = int(environment["LOCAL_WORLD_SIZE"])
    if environment["LOCAL_RANK"] == "0":
        last = int(environment["RANK"]) + processes - 1
        ranks = f"ranks {environment['RANK']} to {last} of {environment['WORLD_SIZE']}"
        print(f"{ranks} on {node}", file=sys.stderr, flush=True)
    command = bound([sys.executable, *script], bind, int(environment["LOCAL_RANK"]), processes)
    os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606
