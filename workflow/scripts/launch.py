"""Start a trainer's processes: one here, several here, or one task per rank through srun.

Every process gets torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
The exit status is that of the first process that failed.
"""

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

EXAMPLE = """example:
  python workflow/scripts/launch.py --nodes 1 --processes-per-node 2 workflow/scripts/pretrain.py --help"""
STOPPED = 75  # a trainer that was told to stop and saved its state
# How long the other ranks have, after one was told to stop, to end by themselves.
GRACE_SECONDS = 30.0
PR_SET_PDEATHSIG = 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--processes-per-node", type=int, default=1)
    parser.add_argument("--within-srun", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="script [arguments]")
    given = parser.parse_args()
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command or given.nodes < 1 or given.processes_per_node < 1:
        parser.error("a script, and at least one node and process, are needed")
    command = [sys.executable, *command]
    if given.within_srun:
        become(command, slurm_environment(given.processes_per_node))
    elif given.nodes > 1:
        become(srun_command(given.nodes, given.processes_per_node, command[1:]), {})
    elif given.processes_per_node == 1:
        become(command, local_environment(0, 1, free_port()))
    else:
        sys.exit(run_local(command, given.processes_per_node))


def become(command: list[str], environment: dict[str, str]) -> None:
    """Replace this process by `command`."""
    sys.stdout.flush()
    os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606


def local_environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


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
        sys.exit(f"error: {missing.args[0]} is not set; several nodes need a Slurm job")


def srun_command(nodes: int, processes_per_node: int, command: list[str]) -> list[str]:
    return [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={nodes * processes_per_node}",
        f"--ntasks-per-node={processes_per_node}",
        "--kill-on-bad-exit=1",
        sys.executable,
        __file__,
        "--within-srun",
        f"--processes-per-node={processes_per_node}",
        "--",
        *command,
    ]


def run_local(command: list[str], count: int) -> int:
    """Run `count` ranks; SIGTERM and SIGINT are passed on to them."""
    # Not torch.distributed.run: it turns every exit status into 1 (75 means "run me again"), prints its own traceback
    # after the rank's one line, and puts the ranks into sessions of their own, where killing the group leaves them.
    port = free_port()
    ranks = [
        subprocess.Popen(  # noqa: S603
            command, env={**os.environ, **local_environment(rank, count, port)}, preexec_fn=die_with_parent
        )
        for rank in range(count)
    ]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: send(ranks, received))
    failed = first_failure(ranks)
    while not failed and any(rank.poll() is None for rank in ranks):
        time.sleep(0.1)
        failed = first_failure(ranks)
    deadline = time.monotonic() + (GRACE_SECONDS if failed == STOPPED else 0.0)
    while any(rank.poll() is None for rank in ranks):
        if time.monotonic() > deadline:
            # Nothing is lost: a rank without the others can only wait for them.
            send(ranks, signal.SIGKILL)
        time.sleep(0.1)
    return failed if failed >= 0 else 128 - failed


def first_failure(ranks: list[subprocess.Popen]) -> int:
    return next((rank.returncode for rank in ranks if rank.poll()), 0)


def send(ranks: list[subprocess.Popen], number: int) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(number)


def die_with_parent() -> None:
    """Linux kills the rank when the launcher dies, so that no orphan keeps the phase's lock."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
