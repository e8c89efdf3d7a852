"""Start a trainer's processes: here, through srun as one task per rank, or on each node of a job of PBS, LSF or Cobalt.

Every process gets torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
The exit status is that of the first process that failed. In a cluster's job the trainer is told to stop ahead of the
walltime, and a job of Slurm then asks to be run again; without progress in three attempts it gives up.
"""

import argparse
import ctypes
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import failures
import schedulers
import slurm_queue

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.files import read_json, write_json, write_text
from bertline.results.paths import durable_step
from bertline.training.stop import LOST, STOPPED

EXAMPLE = """example:
  python workflow/scripts/launch.py --nodes 1 --processes-per-node 2 workflow/scripts/pretrain.py --help"""
MOST_ATTEMPTS = 3  # in a row without progress
# How long the other ranks have, after one ended, to end by themselves.
GRACE_SECONDS = 30.0
PR_SET_PDEATHSIG = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("--nodes", type=int, default=1, help="more than one: inside a Slurm job, through srun")
    parser.add_argument("--processes-per-node", type=int, default=1, help="one a GPU")
    parser.add_argument(
        "--beside",
        type=nodes_beside,
        default=[],
        metavar="NODESxPROCESSES,...",
        help="nodes of other kinds in the same Slurm job, and the processes of each",
    )
    parser.add_argument("--threads", type=int, default=1, help="of a node, divided among its processes")
    parser.add_argument(
        "--checkpoints", type=Path, metavar="FOLDER", help="where progress is seen, and attempts counted"
    )
    parser.add_argument("--attempt", type=int, default=1, help="1 when a person asks: attempts are counted anew")
    parser.add_argument(
        "--minutes-to-save", type=float, default=5.0, help="how long before a job's walltime the trainer stops"
    )
    parser.add_argument("--options", default="", help="further options of the script, in one word")
    parser.add_argument("--within-srun", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--on-node", nargs=3, metavar=("NODE", "ADDRESS", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="script [arguments]")
    given = parser.parse_args()
    script = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not script or given.nodes < 1 or given.processes_per_node < 1:
        parser.error("a script, and at least one node and process, are needed")
    if given.within_srun:
        become([sys.executable, *script], slurm_environment(given.processes_per_node))
    if given.on_node:
        node, address, port = given.on_node
        place = Place(given.nodes, given.processes_per_node, address, int(port), int(node))
        sys.exit(wait_for(start_ranks([sys.executable, *script], place), knows_all=False))
    run_command(lambda: sys.exit(run_job(given, script)))


def nodes_beside(text: str) -> list[tuple[int, int]]:
    """Nodes, and processes on each of them, for every kind in a text as "1x2,4x8"."""
    if not re.fullmatch(r"([1-9]\d*x[1-9]\d*(,|$))*", text):
        raise argparse.ArgumentTypeError(f"given '{text}', allowed are nodes and processes as in 1x2,4x8")
    return [(int(nodes), int(processes)) for nodes, processes in re.findall(r"(\d+)x(\d+)", text)]


def run_job(given: argparse.Namespace, script: list[str]) -> int:
    """Run all processes, as a part of a Slurm job if this is one. Returns the exit status."""
    job = slurm_queue.own_job()
    if given.checkpoints is not None:
        count_attempt(given.checkpoints, anew=given.attempt == 1 and (job is None or job.restarts == 0))
    left = job.minutes_left if job else schedulers.minutes_left()
    if left is not None:
        # A job of a few minutes must still get somewhere.
        script = [*script, "--stop-after-minutes", f"{left - min(given.minutes_to_save, 0.8 * left):.3f}"]
    command = [sys.executable, *script, *shlex.split(given.options)]
    scheduler = schedulers.own_scheduler()
    if given.beside and scheduler is not None:
        raise BertlineError("nodes of several kinds (`beside` in site.yaml) need Slurm; leave them out")
    if given.nodes > 1 and scheduler is not None:
        status = wait_for(start_on_nodes(command, scheduler, given))
    elif given.nodes > 1 or given.beside:
        threads = max(1, given.threads // given.processes_per_node)
        kinds = [(given.nodes, given.processes_per_node), *given.beside]
        # Of Slurm's variables only the job's number reaches a rule; without this one srun sees the first kind alone.
        unlike = {"SLURM_HET_SIZE": str(len(kinds))} if given.beside else {}
        status = wait_for({"a rank": start(srun_command(kinds, threads, command[1:]), unlike)})
    else:
        status = wait_for(start_ranks(command, Place(1, given.processes_per_node, "127.0.0.1", free_port())))
    if status == STOPPED and job is not None:
        ask_for_the_next_job()
    return status


def count_attempt(checkpoints: Path, *, anew: bool) -> None:
    """Count one more attempt since the last durable step. Raises BertlineError when there were enough of them."""
    step = durable_step(checkpoints.parent)
    path = checkpoints / "attempts.json"
    before = {} if anew or not path.exists() else read_json(path)
    attempts = before.get("attempts", 0) if before.get("step") == step else 0
    if attempts >= MOST_ATTEMPTS:
        log = checkpoints / "training.log"
        raise BertlineError(
            f"{attempts} attempts in a row ended without a step beyond {step} (the last: {failures.last_words(log)}); "
            f"see {log}; the same command tries again"
        )
    checkpoints.mkdir(parents=True, exist_ok=True)
    write_json(path, {"step": step, "attempts": attempts + 1})


def ask_for_the_next_job() -> None:
    """Put this job back into the queue, unless someone else ends it or has already done so.

    Slurm starts the same job again, which then resumes. Where a site forbids it, Snakemake sends a new job.
    """
    job = slurm_queue.own_job()
    if job is None or job.state != "RUNNING":
        return
    asked = subprocess.run(  # noqa: S603
        ["scontrol", "requeue", job.number],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    told = "is back in the queue and goes on from there" if asked.returncode == 0 else asked.stderr.strip()
    print(f"job {job.number} {told}", file=sys.stderr, flush=True)


def become(command: list[str], environment: dict[str, str]) -> None:
    """Replace this process by `command`."""
    if environment["LOCAL_RANK"] == "0":
        node = os.environ.get("SLURMD_NODENAME", socket.gethostname())
        last = int(environment["RANK"]) + int(environment["LOCAL_WORLD_SIZE"]) - 1
        print(
            f"ranks {environment['RANK']} to {last} of {environment['WORLD_SIZE']} on {node}",
            file=sys.stderr,
            flush=True,
        )
    os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606


def slurm_environment(processes_per_node: int) -> dict[str, str]:
    """Torchrun's names for what srun tells its tasks. srun was started on the first node, where rank 0 is."""
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
        sys.exit(f"error: {missing.args[0]} is not set; several nodes need a job of Slurm, PBS, LSF or Cobalt")


def srun_command(kinds: list[tuple[int, int]], threads: int, command: list[str]) -> list[str]:
    """One step over all nodes of the job.

    Parameters
    ----------
    kinds: nodes, and processes on each of them, for every kind of nodes in the job.
    threads: of each process.
    command: the script and its arguments.
    """
    if len(kinds) == 1:
        return ["srun", *tasks_of_srun(*kinds[0], threads, command)]
    words = []
    for number, (nodes, processes) in enumerate(kinds):
        # The last word counts: threads of this kind of node, of which its processes take equal parts.
        tasks = tasks_of_srun(nodes, processes, threads, [*command, f"--threads={threads * processes}"])
        words += [":", f"--het-group={number}", *tasks]
    return ["srun", *words[1:]]


def tasks_of_srun(nodes: int, processes_per_node: int, threads: int, command: list[str]) -> list[str]:
    return [
        f"--nodes={nodes}",
        f"--ntasks={nodes * processes_per_node}",
        f"--ntasks-per-node={processes_per_node}",
        # The job's own number does not reach a step.
        f"--cpus-per-task={threads}",
        # Not at once: ranks that were told to stop end one after the other.
        "--kill-on-bad-exit=0",
        f"--wait={GRACE_SECONDS:.0f}",
        sys.executable,
        __file__,
        "--within-srun",
        f"--processes-per-node={processes_per_node}",
        "--",
        *command,
    ]


@dataclass(frozen=True)
class Place:
    """Where the ranks of a node stand among all."""

    nodes: int
    processes_per_node: int
    address: str  # of rank 0
    port: int
    node: int = 0

    def environment(self, local_rank: int) -> dict[str, str]:
        """Torchrun's, of a rank on this node."""
        return {
            "RANK": str(self.node * self.processes_per_node + local_rank),
            "LOCAL_RANK": str(local_rank),
            "WORLD_SIZE": str(self.nodes * self.processes_per_node),
            "LOCAL_WORLD_SIZE": str(self.processes_per_node),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }


def start_ranks(command: list[str], place: Place) -> dict[str, subprocess.Popen]:
    """Start the ranks of this node."""
    # Not torch.distributed.run: it turns every exit status into 1 (75 means "run me again"), prints its own traceback
    # after the rank's one line, and puts the ranks into sessions of their own, where killing the group leaves them.
    environments = [place.environment(rank) for rank in range(place.processes_per_node)]
    return {f"rank {environment['RANK']}": start(command, environment) for environment in environments}


def start_on_nodes(
    command: list[str], scheduler: schedulers.Scheduler, given: argparse.Namespace
) -> dict[str, subprocess.Popen]:
    """Start the ranks of this node, the job's first, and this script on each of the others."""
    slots = scheduler.hosts()
    hosts = list(dict.fromkeys(slots))
    if len(hosts) < given.nodes:
        raise BertlineError(f"the job has {len(hosts)} nodes ({', '.join(hosts)}), not {given.nodes}; see site.yaml")
    place = Place(given.nodes, given.processes_per_node, hosts[0], free_port())
    started = start_ranks(command, place)
    for node, host in enumerate(hosts[1 : given.nodes], 1):
        options = ["--nodes", given.nodes, "--processes-per-node", given.processes_per_node]
        options += ["--on-node", node, place.address, place.port, "--"]
        script = scheduler.logs.absolute() / f"start-{os.environ[scheduler.variable]}-{node}.sh"
        write_text(script, schedulers.script_for_a_node([sys.executable, __file__, *map(str, options), *command[1:]]))
        print(f"node {node} of {given.nodes}: {host}", file=sys.stderr, flush=True)
        # The ranks here tell those there to stop. What started them must not go first: a rank would be lost.
        starter = start(scheduler.start(slots, host, str(script)), ignores=(signal.SIGTERM, signal.SIGINT))
        started[f"the start on {host}"] = starter
    return started


def start(
    command: list[str], environment: dict[str, str] | None = None, ignores: Sequence[int] = ()
) -> subprocess.Popen:
    """Start `command`, which ends when this process ends and takes no notice of the signals in `ignores`."""

    def prepare() -> None:
        die_with_parent()
        for number in ignores:
            signal.signal(number, signal.SIG_IGN)

    return subprocess.Popen(command, env={**os.environ, **(environment or {})}, preexec_fn=prepare)  # noqa: S603


def wait_for(processes: dict[str, subprocess.Popen], *, knows_all: bool = True) -> int:
    """Wait for all; SIGTERM and SIGINT are passed on. Returns the status of the first that failed by itself, or 0.

    What cannot say itself why it ended is told here, as the last line of the log. That all only lost each other, one
    can tell who knows of all ranks. Of those that srun starts it tells itself.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: send(processes, received))
    while (failed := first_failure(processes)) is None and is_any_running(processes):
        time.sleep(0.1)
    if failed is None:
        return 0
    # Others may still save; and one that only lost the connection to another is seldom the last to end.
    deadline = time.monotonic() + (GRACE_SECONDS if failed[1] in (LOST, STOPPED) else 0.0)
    while is_any_running(processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    if failed[1] == LOST:
        failed = first_failure(processes) or failed
    while is_any_running(processes):
        # Nothing is lost: a rank without the others can only wait for them.
        send(processes, signal.SIGKILL)
        time.sleep(0.1)
    name, status = failed
    if status < 0:
        memory = "; the kernel does that when memory runs out" if status == -signal.SIGKILL else ""
        print(f"error: {name} was ended by {signal.Signals(-status).name}{memory}", file=sys.stderr)
    elif status == LOST and knows_all:
        print(f"error: {name} lost the connection to the other ranks: a node or the network failed", file=sys.stderr)
    return status if status >= 0 else 128 - status


def first_failure(processes: dict[str, subprocess.Popen]) -> tuple[str, int] | None:
    """The name and status of a process that failed; of one that only lost the others, if there is no other."""
    failed = [(name, process.returncode) for name, process in processes.items() if process.poll()]
    return min(failed, key=lambda one: one[1] == LOST, default=None)


def is_any_running(processes: dict[str, subprocess.Popen]) -> bool:
    return any(process.poll() is None for process in processes.values())


def send(processes: dict[str, subprocess.Popen], number: int) -> None:
    for process in processes.values():
        if process.poll() is None:
            process.send_signal(number)


def die_with_parent() -> None:
    """Linux kills the rank when the launcher dies, so that no orphan keeps the phase's lock."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
