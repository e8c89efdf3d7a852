"""Pods of an Indexed Job of Kubernetes: one for each node of a training, by the Job's completion index.

Either the launcher is the program of every Pod (deploy/kubernetes/multi-node), or a job of Snakemake runs in the first
Pod (deploy/kubernetes/graph), and its launcher leaves a script for each of the others in a folder on the shared volume.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from bertline.cluster.ranks import NodeKind, NodeRanks, Program
from bertline.cluster.scheduler_jobs import node_script
from bertline.console import BertlineError
from bertline.files import write_text
from bertline.results import paths
from bertline.training.contract import LOST, STOPPED, TOKEN

# Folder of the scripts for the other Pods of this job.
SCRIPTS = "BERTLINE_NODE_SCRIPTS"
# A wait that is longer is reported.
REPORTED_AFTER = 60.0
POLL_SECONDS = 1.0
STATUS, OVER = "status", "over"


@dataclass(frozen=True)
class Pod:
    """This Pod."""

    job: str  # name of its Job
    uid: str  # of the Job; a deleted and repeated Job has another
    index: int

    @property
    def is_first(self) -> bool:
        """Whether rank 0 runs here."""
        return self.index == 0


def own_pod() -> Pod | None:
    """Return this process's Pod; None outside an Indexed Job made from deploy/kubernetes.

    Raises BertlineError if its index is no number.
    """
    if not {"KUBERNETES_JOB", "KUBERNETES_JOB_UID", "JOB_COMPLETION_INDEX"} <= os.environ.keys():
        return None
    index = _number_in("JOB_COMPLETION_INDEX")
    return Pod(os.environ["KUBERNETES_JOB"], os.environ["KUBERNETES_JOB_UID"], index)


def _number_in(variable: str) -> int:
    """Return the number in an environment variable. Raises BertlineError if it is none."""
    if not os.environ[variable].isdecimal():
        raise BertlineError(
            f"{variable} is '{os.environ[variable]}', not a number; in a Job of deploy/kubernetes it is one"
        )
    return int(os.environ[variable])


def shared_token(nodes: int) -> str | None:
    """Return the token that the Job's manifest gives to all its Pods; None if this launcher hands one out.

    Raises BertlineError if several nodes need one and there is none.
    """
    if own_pod() is None or SCRIPTS in os.environ or nodes == 1:
        return None
    if not os.environ.get(TOKEN):
        raise BertlineError(f"{TOKEN} is not set in this Pod; use the Job of deploy/kubernetes/multi-node")
    return os.environ[TOKEN]


def start_nodes(program: Program, kind: NodeKind) -> dict[str, subprocess.Popen[bytes]]:
    """Start the ranks of this Pod, and have those of the other Pods started if they wait for it.

    Raises BertlineError without the variables that deploy/kubernetes/multi-node sets, or with a port that is none.
    """
    pod = own_pod()
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT", "POD_IP") if not os.environ.get(name)]
    if pod is None or missing:
        raise BertlineError(f"not set in this Pod: {', '.join(missing)}; use the Job of deploy/kubernetes/multi-node")
    address, port, each = os.environ["MASTER_ADDR"], _number_in("MASTER_PORT"), kind.processes_per_node
    ranks = NodeRanks(pod.index * each, each, kind.nodes * each, address, port)
    if SCRIPTS in os.environ:
        for node in range(1, kind.nodes):
            command = replace(ranks, first=node * each).start_command(program)
            write_text(Path(os.environ[SCRIPTS], f"start-{node}.sh"), node_script(command), mode=0o600)
    print(f"node {pod.index} of {kind.nodes}: {socket.gethostname()}", file=sys.stderr, flush=True)
    # Rank 0 listens at its own address; its name may be known later.
    return replace(ranks, address=os.environ["POD_IP"] if pod.is_first else address).start(program)


def wait_for_pods(pod: Pod, nodes: int, checkpoints: Path | None) -> int:
    """Wait until all Pods of this training have addresses; return the number of nodes whose ranks are to be started.

    A Pod may wait long for a node. Once ranks have started, they wait for each other for a limited time, and the start
    counts as an attempt. If the phase is finished, the number is 1: the other Pods may have completed, and those never
    run again. The first Pod's rank then reports the phase as finished.

    Raises SystemExit, with status 0, in each other Pod of a finished phase.
    """
    # Process 1 of a container ignores a signal without a handler.
    before = signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    missing, report_at = _names_of_pods(nodes), time.monotonic() + REPORTED_AFTER
    while missing := [name for name in missing if not _has_address(name)]:
        if _is_finished(checkpoints):
            break
        if time.monotonic() >= report_at:
            report_at = math.inf
            found = "waiting for Pods without an address: " + ", ".join(missing)
            print(f"{found}; kubectl describe pod says why they do not run", file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)
    signal.signal(signal.SIGTERM, before)
    if not _is_finished(checkpoints):
        return nodes
    if not pod.is_first:
        sys.exit(0)
    return 1


def _is_finished(checkpoints: Path | None) -> bool:
    return checkpoints is not None and paths.is_finished(checkpoints.parent, paths.PHASE_OUTPUTS)


def _names_of_pods(nodes: int) -> list[str]:
    """Return the names of this training's Pods in the network; only the first one's if it does not end with -0."""
    first = os.environ.get("MASTER_ADDR", "")
    host, dot, domain = first.partition(".")
    if host.endswith("-0"):
        return [f"{host.removesuffix('0')}{index}{dot}{domain}" for index in range(nodes)]
    return [first] if first else []


def _has_address(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror:
        return False
    return True


def report_status(status: int) -> None:
    """Leave the status of a training that was stopped, or lost a rank, for `run_in_pod`, as Snakemake ends with 1."""
    if SCRIPTS in os.environ and status in (LOST, STOPPED):
        write_text(Path(os.environ[SCRIPTS], STATUS), str(status))


def run_in_pod(script: Path, folder: Path) -> NoReturn:
    """Run the script of a job of Snakemake in its first Pod, and the launcher's script in each other Pod; exit.

    Args:
        script: a shell script.
        folder: of this job, on the shared volume.

    Raises:
        SystemExit: always, with the exit status of the script, or that of a training in it that was stopped or lost a
            rank, with which the Job starts this Pod again.
    """
    pod = own_pod()
    if pod is None:
        raise BertlineError("JOB_COMPLETION_INDEX is not set; this is the program of a Pod of deploy/kubernetes/graph")
    if pod.is_first:
        # What an earlier Pod of this number left.
        for path in (folder / STATUS, folder / OVER, *folder.glob("start-*.sh")):
            path.unlink(missing_ok=True)
        status = _run(script, {SCRIPTS: str(folder.absolute())})
        if status == 0:
            (folder / OVER).touch()
        elif (folder / STATUS).exists():
            status = int((folder / STATUS).read_text())
        sys.exit(status)
    status = 0
    # Also after its ranks have ended well: the first Pod may be evicted before its job has ended, and then needs this
    # one, which never runs again once it is complete.
    while status == 0 and (own := _wait_for_script(folder, pod.index)) is not None:
        status = _run(own, {})
    sys.exit(status)


def _wait_for_script(folder: Path, index: int) -> Path | None:
    """Wait for this Pod's script, and take it; None if the job ended without one."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
    waiting, taken = folder / f"start-{index}.sh", folder / f"started-{index}.sh"
    while True:
        list(folder.iterdir())  # refreshes NFS's cache
        with suppress(FileNotFoundError):
            return waiting.rename(taken)
        if (folder / OVER).exists():
            return None
        time.sleep(POLL_SECONDS)


def _run(script: Path, environment: dict[str, str]) -> int:
    """Run a shell script in a process group of its own; return its exit status. Signals reach all its processes."""
    process = subprocess.Popen(["/bin/sh", str(script)], env={**os.environ, **environment}, start_new_session=True)  # noqa: S603

    def pass_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            # As the first process of a container, signal all others, whatever their group.
            os.kill(-1, number) if os.getpid() == 1 else os.killpg(process.pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    status = process.wait()
    return status if status >= 0 else 128 - status
