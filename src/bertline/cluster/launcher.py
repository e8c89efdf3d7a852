"""Launcher of a training's ranks: on this node, through srun, on nodes of other schedulers, in Pods, or on hosts."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, NonNegativeInt, PositiveInt

from bertline.cluster import pods, remote, scheduler_jobs, schedulers, slurm
from bertline.cluster.binding import Bind
from bertline.cluster.failures import last_words
from bertline.cluster.processes import start, wait_for_all
from bertline.cluster.ranks import (
    SEVERAL_NODES,
    Host,
    NodeKind,
    NodeRanks,
    Program,
    check_script,
    free_port,
    mpirun_command,
    parse_hosts,
    parse_node_kinds,
    srun_command,
)
from bertline.console import BertlineError
from bertline.files import one_line_damage, read_object, write_json, write_text
from bertline.results import paths
from bertline.training.contract import STOPPED, TOKEN

# Maximum fraction of a job's remaining time reserved for saving: a job of a few minutes must still make progress.
MAX_SHARE_TO_SAVE = 0.8
MAX_ATTEMPTS = 3  # successive ones without progress

STARTER = "start_ranks.py"  # beside launch.py


def launch(
    *script: str,
    nodes: PositiveInt = 1,
    processes_per_node: PositiveInt = 1,
    additional_nodes: str = "",
    hosts: str = "",
    launcher: Literal["ssh", "mpirun"] = "ssh",
    port: NonNegativeInt = 0,
    bind: Bind = "none",
    threads: PositiveInt = 1,
    checkpoints: Path | None = None,
    attempt: int = 1,
    minutes_to_save: NonNegativeFloat = 5.0,
    deadline: bool = True,
    options: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
) -> NoReturn:
    """Run a script in all ranks, as a part of a scheduler's job if this process is in one, and exit.

    In a job the script also gets --stop-after-minutes, before the walltime ends. A Slurm job of Snakemake's executor
    whose ranks saved and stopped is requeued, except after Ctrl-C.

    Args:
        script: after `--`, a Python script and its arguments.
        nodes: of the first kind, that of this node; more than one only inside a job of a scheduler.
        processes_per_node: one per GPU.
        additional_nodes: nodes of other kinds in the same Slurm job, and processes per node, as in 1x2,4x8.
        hosts: separated by commas, optionally with processes of each, as in a,b or a:1,b:4. The processes are started
            on these hosts, which share this folder.
        launcher: what starts them on `hosts`: ssh, without a password, or Open MPI's mpirun.
        port: at which rank 0 listens; 0 for a free one, of `hosts` with mpirun one that is free here.
        bind: cores and memory of each process: those of its socket or its NUMA node, with numactl.
        threads: of a node, divided among its processes.
        checkpoints: folder in which progress is read and attempts are counted.
        attempt: 1 for a start by the user, which resets the count.
        minutes_to_save: time between the script's stop and the end of the job's walltime.
        deadline: --no-deadline for a script that does not save, and has no --stop-after-minutes.
        options: further options of the script, as one shell word.

    Raises:
        SystemExit: always, with the exit status of the first rank that failed, or 0.
        BertlineError: for nodes that the job does not have, or too many attempts without progress.
    """
    check_script(script)
    more = split_options(options)
    listed = parse_hosts(hosts, processes_per_node) if hosts else []
    if additional_nodes and (hosts or schedulers.own_scheduler() is not None or pods.own_pod() is not None):
        raise BertlineError("`additional_nodes` needs a job of Slurm on its own nodes; leave them out, see site.yaml")
    os.environ[TOKEN] = pods.shared_token(nodes) or secrets.token_hex(16)
    schedulers.export_own_job()
    job = slurm.own_job() if deadline else None
    pod = pods.own_pod()
    if pod is not None and nodes > 1:
        nodes = pods.wait_for_pods(pod, nodes, checkpoints)
    kinds = [NodeKind(nodes, processes_per_node), *parse_node_kinds(additional_nodes)]
    if checkpoints is not None and (pod is None or pod.is_first):
        restart = attempt == 1 and (job is None or job.restarts == 0)
        _count_attempt(checkpoints, restart=restart, job=pod.uid if pod else None)
    left = job.minutes_left if job else schedulers.minutes_left()
    stop = []
    if deadline and left is not None:
        stop_after = left - min(minutes_to_save, MAX_SHARE_TO_SAVE * left)
        stop = ["--stop-after-minutes", f"{stop_after:.3f}"]
    starter = [sys.executable, str(Path(sys.argv[0]).absolute().with_name(STARTER))]
    program = Program([*script, *stop, *more], starter, port, bind)
    with _recorded_signals() as received:
        status = _run_on_hosts(program, listed, launcher) if listed else _run_in_job(program, kinds, threads)
    # A person's own job also runs a notebook, a script, or other trainings.
    if status == STOPPED and job is not None and job.is_of_executor and signal.SIGINT not in received:
        slurm.requeue_own_job()
    # A Pod has no walltime: a stop of this one, or of another of its Job, is no failed attempt. Ranks that have just
    # started end by the signal.
    is_stopped = status == STOPPED or (signal.SIGTERM in received and status == 128 + signal.SIGTERM)
    if is_stopped and checkpoints is not None and pod is not None and pod.is_first:
        _take_back_attempt(checkpoints)
    sys.exit(status)


@contextmanager
def _recorded_signals() -> Iterator[set[int]]:
    """Yield a set that contains, after the block, the signals that this process received and handled in it."""
    received: set[int] = set()
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield received
    finally:
        signal.set_wakeup_fd(-1)
        os.close(writer)
        with open(reader, "rb") as numbers:
            received.update(numbers.read() or b"")


def split_options(options: str) -> list[str]:
    """Return the options in one shell word. Raises BertlineError for an open quotation mark."""
    try:
        return shlex.split(options)
    except ValueError as error:
        raise BertlineError(f"--options {options}: {error}; close each quotation mark") from None


def _run_in_job(program: Program, kinds: list[NodeKind], threads: int) -> int:
    """Run the ranks on the nodes of this process's job, or on this node outside one; return the exit status."""
    kind, *others = kinds
    scheduler, pod = schedulers.own_scheduler(), pods.own_pod()
    if kind.nodes == 1 and not others:
        port = program.port or free_port()
        ranks = NodeRanks(0, kind.processes_per_node, kind.processes_per_node, "127.0.0.1", port)
        status = wait_for_all(ranks.start(program))
        pods.report_status(status)
        return status
    if scheduler is not None:
        return wait_for_all(_start_on_nodes(program, scheduler, kind))
    if pod is not None:
        status = wait_for_all(pods.start_nodes(program, kind), includes_all_ranks=False)
        pods.report_status(status)
        return status
    if "SLURM_JOB_ID" not in os.environ:
        raise BertlineError(f"this process is in no job; {SEVERAL_NODES}")
    srun = srun_command(program, kinds, max(1, threads // kind.processes_per_node))
    # Slurm's only variable in a rule is the job's number; without this one, srun uses the first kind alone.
    heterogeneous = {"SLURM_HET_SIZE": str(len(kinds))} if others else {}
    return wait_for_all({"a rank": start(srun, heterogeneous)})


def _run_on_hosts(program: Program, hosts: list[Host], launcher: str) -> int:
    """Run the ranks on `hosts`; return the exit status."""
    return _run_with_mpirun(program, hosts) if launcher == "mpirun" else wait_for_all(_start_over_ssh(program, hosts))


def _count_attempt(checkpoints: Path, *, restart: bool, job: str | None) -> None:
    """Count one more attempt since the last durable step; `restart` resets the count, except in the same `job`."""
    phase = checkpoints.parent
    step = paths.durable_step(phase)
    path = phase / paths.ATTEMPTS
    before = read_object(path) if path.exists() else {}
    if restart and (job is None or before.get("job") != job):
        before = {}
    with one_line_damage(path):
        attempts = int(before.get("attempts", 0)) if before.get("step") == step else 0
    if attempts >= MAX_ATTEMPTS:
        log, given_up = phase / paths.TRAINING_LOG, f"{attempts} attempts in a row ended without a step beyond {step}"
        reason = last_words(log, f"error: {given_up}")  # a refusal is in the log, too
        raise BertlineError(f"{given_up} (the last: {reason}); see {log}; the same command tries again")
    checkpoints.mkdir(parents=True, exist_ok=True)
    write_json(path, {"step": step, "attempts": attempts + 1} | ({"job": job} if job else {}))


def _take_back_attempt(checkpoints: Path) -> None:
    """Do not count the last attempt."""
    path = checkpoints.parent / paths.ATTEMPTS
    counted = read_object(path)
    with one_line_damage(path):
        write_json(path, counted | {"attempts": int(counted["attempts"]) - 1})


def _start_over_ssh(program: Program, hosts: list[Host]) -> dict[str, subprocess.Popen[bytes]]:
    """Start the ranks of each host over ssh, with this process's folder, interpreter and job token."""
    program = replace(program, starter=[*program.starter, "--while-connected"])
    address = hosts[0].name
    port = program.port or remote.free_port_of(address)
    started, first, world_size = {}, 0, sum(host.processes for host in hosts)
    for host in hosts:
        ranks = NodeRanks(first, host.processes, world_size, address, port)
        last = first + host.processes - 1
        print(f"ranks {first} to {last} of {world_size} on {host.name}", file=sys.stderr, flush=True)
        started[f"the start on {host.name}"] = remote.start_on_host(host.name, ranks.start_command(program))
        first = last + 1
    return started


def _run_with_mpirun(program: Program, hosts: list[Host]) -> int:
    """Run the ranks on `hosts` with mpirun; return the exit status."""
    if shutil.which("mpirun") is None:
        raise BertlineError("--launcher mpirun: not installed; install Open MPI (Debian: apt install openmpi-bin)")
    address = "127.0.0.1" if hosts[0].name == "localhost" else hosts[0].name
    place = ["--within-mpirun", address, str(program.port or free_port()), "--bind", program.bind]
    with tempfile.TemporaryDirectory(prefix=".mpirun-", dir=".") as folder:
        # A file, because mpirun passes on few variables to other nodes.
        path = Path(folder).absolute() / "rank.sh"
        write_text(path, scheduler_jobs.node_script([*program.starter, *place, "--", *program.script]), mode=0o600)
        ranks = start(mpirun_command(hosts, path), own_group=True)
        # mpirun kills the ranks soon after SIGTERM and Ctrl-C; it passes SIGUSR1 on, on which they save.
        return wait_for_all({"a rank": ranks}, stop_with=signal.SIGUSR1)


def _start_on_nodes(
    program: Program, scheduler: schedulers.Scheduler, kind: NodeKind
) -> dict[str, subprocess.Popen[bytes]]:
    """Start the ranks of this node, the job's first, and those of each other node."""
    number = os.environ.get(scheduler.variable)
    if not number:
        raise BertlineError(
            f"{scheduler.hosts_file} is set, but not {scheduler.variable}; start this in a job of {scheduler.name}"
        )
    slots = scheduler.hosts()
    hosts = list(dict.fromkeys(slots))
    if len(hosts) < kind.nodes:
        raise BertlineError(f"the job has {len(hosts)} nodes ({', '.join(hosts)}), not {kind.nodes}; see site.yaml")
    each = kind.processes_per_node
    here = NodeRanks(0, each, kind.nodes * each, hosts[0], program.port or free_port())
    started = here.start(program)
    for node, host in enumerate(hosts[1 : kind.nodes], 1):
        command = replace(here, first=node * each).start_command(program)
        path = scheduler.logs.absolute() / f"start-{number}-{node}.sh"
        write_text(path, scheduler_jobs.node_script(command), mode=0o600)
        print(f"node {node} of {kind.nodes}: {host}", file=sys.stderr, flush=True)
        # The ranks here stop those there; the starter must not end before them, or a rank would be lost.
        started[f"the start on {host}"] = start(scheduler.start(slots, host, str(path)), for_another_node=True)
    return started
