"""The ranks of a job, started on this node, by srun or by mpirun, with torchrun's environment for each."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from bertline.cluster.binding import Bind, bound
from bertline.cluster.processes import GRACE_SECONDS, start
from bertline.cluster.schedulers import is_in_job
from bertline.console import BertlineError

SEVERAL_NODES = (
    "several nodes need a job of Slurm, PBS, LSF, Cobalt or Grid Engine, or a list of hosts: --hosts a,b; "
    'see docs/cluster.md, "By hand"'
)
# A host's name or IPv4 address, and processes. No word that ssh or mpirun takes for an option.
HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)(?::([1-9]\d*))?")


# libgomp, in PyTorch's CPU builds, spins 300,000 times (milliseconds) before a waiting thread sleeps. On a shared
# machine this takes the core from the thread it waits for. See bench/threads.py.
THREAD_WAITING = {"GOMP_SPINCOUNT": "1000"}
USERS_OWN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


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


class Host(NamedTuple):
    """A host of a list, and processes on it."""

    name: str
    processes: int


def parse_hosts(text: str, processes_per_node: int) -> list[Host]:
    """Parse names separated by commas, optionally with a number of processes each, as in a,b:4.

    Raises BertlineError for anything else.
    """
    words = [HOST.fullmatch(word) for word in text.split(",")]
    hosts = [Host(found[1], int(found[2] or processes_per_node)) for found in words if found]
    names = {host.name for host in hosts}
    if len(names) < len(words):
        raise BertlineError(
            f"--hosts: given '{text}', allowed are different names separated by commas, as in a,b, or with processes, "
            "as in a:1,b:4"
        )
    if "localhost" in names and len(names) > 1:
        raise BertlineError("--hosts: localhost is another machine on each host; give this one's name")
    return hosts


@dataclass(frozen=True)
class Program:
    """What every rank of a job runs, and how.

    Attributes:
        script: a Python script and its arguments.
        starter: the command that starts ranks on a node; the options of its place, `--` and `script` are appended.
            Empty in ranks' own starter.
        port: of rank 0; 0 for a free one, within srun for one by the job's number.
        bind: of each process.
    """

    script: list[str]
    starter: list[str] = field(default_factory=list)
    port: int = 0
    bind: Bind = "none"


def check_script(script: Sequence[str]) -> None:
    """Raise BertlineError for a command line without a script."""
    if not script:
        raise BertlineError("no script is given; put it and its arguments after `--`")


@dataclass(frozen=True)
class NodeRanks:
    """The ranks of one node of a job."""

    first: int
    processes: int
    world_size: int
    address: str  # of rank 0
    port: int

    def start(self, program: Program) -> dict[str, subprocess.Popen[bytes]]:
        """Start the program once for each rank here. Returns the processes by name."""
        # Not torch.distributed.run: it changes every exit status to 1 (75 means "run again"), prints its own traceback
        # after the rank's one line, and puts each rank in a session of its own, which survives killing the group.
        shared = {
            **_thread_waiting(),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.processes),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }
        return {
            f"rank {self.first + local_rank}": start(
                bound([sys.executable, *program.script], program.bind, local_rank, self.processes),
                {**shared, "RANK": str(self.first + local_rank), "LOCAL_RANK": str(local_rank)},
            )
            for local_rank in range(self.processes)
        }

    def start_command(self, program: Program) -> list[str]:
        """Return the command that starts these ranks if it is run on their node."""
        size = ["--processes-per-node", str(self.processes), "--bind", program.bind]
        place = ["--on-node", str(self.first), str(self.world_size), self.address, str(self.port)]
        return [*program.starter, *size, *place, "--", *program.script]


def _thread_waiting() -> Mapping[str, str]:
    """Return the variables that set how a rank's threads wait for each other.

    There are none if the user has set them, or within a scheduler's job, which has its cores for itself: there the
    longer loop is faster.
    """
    return {} if is_in_job() or any(name in os.environ for name in USERS_OWN) else THREAD_WAITING


def free_port() -> int:
    """Return a TCP port that no process of this node listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def srun_command(program: Program, kinds: list[NodeKind], threads: int) -> list[str]:
    """Return the command that starts every rank of the job; without a port, rank 0 has one by the job's number.

    Args:
        program: what they run.
        kinds: the nodes of the job; several kinds make a heterogeneous step.
        threads: of each process.
    """
    if len(kinds) == 1:
        return ["srun", *_tasks(program, kinds[0], threads)]
    words = []
    for number, kind in enumerate(kinds):
        # The last --threads counts: the threads of this kind of node, which its processes divide equally.
        script = [*program.script, f"--threads={threads * kind.processes_per_node}"]
        words += [":", f"--het-group={number}", *_tasks(replace(program, script=script), kind, threads)]
    return ["srun", *words[1:]]


def _tasks(program: Program, kind: NodeKind, threads: int) -> list[str]:
    return [
        f"--nodes={kind.nodes}",
        f"--ntasks={kind.nodes * kind.processes_per_node}",
        f"--ntasks-per-node={kind.processes_per_node}",
        # A step does not inherit the job's value.
        f"--cpus-per-task={threads}",
        # Ranks that were signalled to stop end one after another, so the first must not end the others.
        "--kill-on-bad-exit=0",
        f"--wait={GRACE_SECONDS:.0f}",
        # Each rank is bound by its number among those of the node: not within cores that Slurm chose for it.
        *(["--cpu-bind=none"] if program.bind != "none" else []),
        *program.starter,
        f"--port={program.port}",
        "--within-srun",
        f"--launch-node={socket.gethostname()}",
        f"--processes-per-node={kind.processes_per_node}",
        f"--bind={program.bind}",
        "--",
        *program.script,
    ]


def mpirun_command(hosts: list[Host], script: Path) -> list[str]:
    """Return Open MPI's command that starts the shell `script` in every rank on `hosts`."""
    return [
        "mpirun",
        *("--host", ",".join(f"{host.name}:{host.processes}" for host in hosts)),
        *("--map-by", "slot"),  # the ranks of a host one after the other
        *("--bind-to", "none"),  # `bind` does that
        *("sh", str(script)),
    ]


def become_rank_of_srun(
    script: list[str], processes_per_node: int, bind: Bind, port: int, launch_node: str
) -> NoReturn:
    """Replace this process, a task of an srun that was started on the node of rank 0, with the rank that runs `script`.

    Raises BertlineError outside such a task.
    """
    slurm = os.environ
    try:
        address = slurm["SLURM_LAUNCH_NODE_IPADDR"]
        if launch_node and (address.startswith("127.") or address == "::1"):
            address = launch_node  # where its name is that of a loopback address on it, as on Debian
        environment = {
            "RANK": slurm["SLURM_PROCID"],
            "LOCAL_RANK": slurm["SLURM_LOCALID"],
            "WORLD_SIZE": slurm["SLURM_NTASKS"],
            "LOCAL_WORLD_SIZE": str(processes_per_node),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port or 20000 + int(slurm["SLURM_JOB_ID"]) % 20000),
        }
    except KeyError as missing:
        raise BertlineError(f"{missing.args[0]} is not set; {SEVERAL_NODES}") from None
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
        raise BertlineError(f"{missing.args[0]} is not set; only the mpirun of Open MPI sets it") from None
    _become_rank(script, environment, socket.gethostname(), bind)


def _become_rank(script: list[str], environment: Mapping[str, str], node: str, bind: Bind) -> NoReturn:
    processes = int(environment["LOCAL_WORLD_SIZE"])
    if environment["LOCAL_RANK"] == "0":
        last = int(environment["RANK"]) + processes - 1
        ranks = f"ranks {environment['RANK']} to {last} of {environment['WORLD_SIZE']}"
        print(f"{ranks} on {node}", file=sys.stderr, flush=True)
    command = bound([sys.executable, *script], bind, int(environment["LOCAL_RANK"]), processes)
    os.execvpe(command[0], command, {**os.environ, **_thread_waiting(), **environment})  # noqa: S606
