"""Child processes that end with their parent: starting, waiting for all, and reporting the first that failed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from bertline.console import handle_signals
from bertline.training.contract import LOST, STOPPED
from bertline.training.stop import print_that_ctrl_c_saves

# Time for the other processes to end by themselves after one has ended.
GRACE_SECONDS = 30.0
POLL_SECONDS = 0.1
PR_SET_PDEATHSIG = 1
# Why the kernel ends a process by a signal, and what to do.
REASONS = {
    signal.SIGKILL: "; the kernel does that when memory runs out: then lower micro_batch_tokens, give "
    "--activation-checkpointing, or raise mem_mb",
    signal.SIGBUS: "; a file that it maps, such as the dataset's, was cut or cannot be read: check it with "
    "validate_dataset.py, and the disk",
}
# Signals to stop, and what the ranks get instead, which handle SIGTERM and SIGUSR1.
PASSED_ON = {
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGINT: signal.SIGTERM,  # on a terminal they get both; a second SIGINT ends them
    signal.SIGHUP: signal.SIGTERM,  # a terminal that is closed
    signal.SIGUSR1: signal.SIGUSR1,  # Slurm's, before the walltime ends
    signal.SIGUSR2: signal.SIGUSR1,  # Grid Engine's and LSF's
}

Processes = Mapping[str, "subprocess.Popen[bytes]"]


def start(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    for_another_node: bool = False,
    own_group: bool = False,
    text: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that is killed when this one ends.

    Args:
        environment: variables in addition to those of this process.
        for_another_node: the process starts ranks there and must not end before them: it ignores signals to stop.
        own_group: the process gets a terminal's Ctrl-C only from `wait_for_all`.
        text: for its standard input, which then stays open: `wait_for_all` writes signals to it, one number a line.
    """

    def prepare() -> None:
        # Otherwise an orphan could keep the phase's lock.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in PASSED_ON if for_another_node else ():
            signal.signal(number, signal.SIG_IGN)

    process = subprocess.Popen(  # noqa: S603
        command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        preexec_fn=prepare,
        process_group=0 if own_group else None,
    )
    if text is not None and process.stdin is not None:
        with suppress(BrokenPipeError):  # it has ended, and printed the reason
            process.stdin.write(text.encode())
            process.stdin.flush()
    return process


def wait_for_all(
    processes: Processes,
    *,
    includes_all_ranks: bool = True,
    stop_with: int | None = None,
    while_connected: bool = False,
) -> int:
    """Wait for all processes, passing on the signals to stop. A second SIGINT ends them at once.

    When a process fails, the others are killed: at once, or after GRACE_SECONDS if it saved its state or only lost the
    connection to another. The reason is printed here if the process could not print it.

    Args:
        processes: by the name for error messages.
        includes_all_ranks: whether all ranks of the job are started here. Otherwise a lost connection is not reported:
            the rank that failed is on another node.
        stop_with: the signal that is passed on instead of any other.
        while_connected: read signals from standard input, one number a line, and end the processes when it ends.

    Returns:
        The exit status of the first process that failed by itself, 128 plus the signal's number for one ended by a
        signal or for all after the second SIGINT, or 0.
    """
    interrupts = 0

    def receive(number: int, frame: object) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if number != signal.SIGINT or interrupts == 1:
            _send(processes, stop_with or PASSED_ON[signal.Signals(number)])
        else:
            # SIGKILL would leave the ranks of mpirun; on SIGTERM it kills them. On other hosts the ranks end first.
            end = signal.SIGTERM if stop_with and interrupts == 2 else signal.SIGKILL
            _send(processes, end, directly=interrupts > 2)
        if number == signal.SIGINT and interrupts == 1:
            print_that_ctrl_c_saves()

    handle_signals(PASSED_ON, receive)
    if while_connected:
        threading.Thread(target=_follow_input, args=[processes], daemon=True).start()
    while (failed := _first_failure(processes)) is None and _is_any_running(processes):
        time.sleep(POLL_SECONDS)
    if failed is None:
        return 0
    # Others may still be saving. A process that only lost the connection to another is seldom the last to end.
    deadline = time.monotonic() + (GRACE_SECONDS if failed[1] in (LOST, STOPPED) else 0.0)
    while _is_any_running(processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if failed[1] == LOST:
        failed = _first_failure(processes) or failed
    while _is_any_running(processes):
        # A rank without the others can only wait for them, so killing it loses nothing.
        _send(processes, signal.SIGKILL, directly=True)
        time.sleep(POLL_SECONDS)
    name, status = failed
    if interrupts > 1:
        return 128 + signal.SIGINT
    if status < 0:
        number = signal.Signals(-status)
        print(f"error: {name} was ended by {number.name}{REASONS.get(number, '')}", file=sys.stderr)
    elif status == LOST and includes_all_ranks:
        print(f"error: {name} lost the connection to the other ranks: a node or the network failed", file=sys.stderr)
    return status if status >= 0 else 128 - status


def _follow_input(processes: Processes) -> None:
    for line in sys.stdin:
        _send(processes, int(line))
    # The connection is over: the ranks may save if all of them are asked to, as when the launcher was killed.
    _send(processes, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    _send(processes, signal.SIGKILL, directly=True)


def _first_failure(processes: Processes) -> tuple[str, int] | None:
    """Return name and status of a failed process, preferring those that did not just lose the connection."""
    failed = [(name, process.returncode) for name, process in processes.items() if process.poll()]
    return min(failed, key=lambda failure: failure[1] == LOST, default=None)


def _is_any_running(processes: Processes) -> bool:
    return any(process.poll() is None for process in processes.values())


def _send(processes: Processes, number: int, *, directly: bool = False) -> None:
    """Signal all; a launcher on another host signals its ranks instead, unless it is signalled `directly`."""
    for process in processes.values():
        if process.stdin is None or directly:
            process.send_signal(number)
        elif process.poll() is None:
            with suppress(OSError):  # it is ending
                os.write(process.stdin.fileno(), f"{int(number)}\n".encode())
