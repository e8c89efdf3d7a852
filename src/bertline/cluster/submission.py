"""Submission of Slurm jobs while the controller is restarted or too busy to answer.

The executor (2.8) reports a job as failed when sbatch fails once, so a controller that is down for a minute would end a
run of weeks. `workflow/slurm/sbatch`, which the executor finds on the PATH before Slurm's own, waits instead.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import tenacity

from bertline.cluster.slurm import output_of

MAX_SECONDS = 24 * 3600
# The executor captures the output of sbatch: messages for a person go through a pipe to snakemake's own output.
MESSAGES = "BERTLINE_MESSAGES"
# Messages of Slurm when no answer of the controller arrived. The request may have arrived all the same.
NO_ANSWER = re.compile(
    r"unable to contact slurm controller|socket timed out|zero bytes were transmitted|controller in standby mode"
    r"|connection (refused|reset|timed out)|no route to host|transport endpoint is not connected",
    re.IGNORECASE,
)


class _NoAnswer(Exception):
    """The controller did not answer."""


def use_waiting_sbatch(folder: Path) -> None:
    """Put `folder`, which contains the waiting sbatch, first on the PATH of this process and its children."""
    # And this interpreter, because snakemake can be started without its environment on the PATH.
    os.environ["PATH"] = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    read, write = os.pipe()
    os.environ[MESSAGES] = f"/proc/{os.getpid()}/fd/{write}"
    threading.Thread(target=_print_lines, args=[read], daemon=True).start()


def _print_lines(descriptor: int) -> None:
    with open(descriptor, encoding="utf-8") as lines:
        for line in lines:
            print(line, end="", file=sys.stderr, flush=True)


def submit(arguments: Sequence[str], *, wrapper: Path) -> int:
    """Run Slurm's sbatch until the controller answers, print its output, and return its exit status.

    A request without an answer may have been accepted. Before it is repeated, the job is looked up in the queue by its
    name and comment: the executor gives each run a name of its own, and each job of a run a comment of its own.

    Args:
        arguments: of sbatch.
        wrapper: the file on the PATH that precedes Slurm's sbatch.
    """
    folders = [
        folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder).resolve() != wrapper.parent.resolve()
    ]
    sbatch = shutil.which("sbatch", path=os.pathsep.join(folders))
    if sbatch is None:
        print("sbatch is not on the PATH", file=sys.stderr)
        return 127
    script = sys.stdin.read()

    def attempt(number: int) -> subprocess.CompletedProcess[str]:
        if number > 1 and (job := _job_in_queue(arguments)):
            return subprocess.CompletedProcess(sbatch, 0, f"{job}\n", "")
        done = subprocess.run([sbatch, *arguments], input=script, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode and NO_ANSWER.search(done.stderr):
            raise _NoAnswer(done.stderr.strip())
        return done

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_NoAnswer),
        wait=tenacity.wait_exponential(max=60),
        stop=tenacity.stop_after_delay(MAX_SECONDS),
        before_sleep=_announce,
        reraise=True,
    )
    try:
        for trial in retrying:
            with trial:
                done = attempt(trial.retry_state.attempt_number)
    except _NoAnswer as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def _job_in_queue(arguments: Sequence[str]) -> str | None:
    """Return the number of the queued or running job with the name and comment in sbatch's arguments, if there is one.

    Raises _NoAnswer if squeue does not answer.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--job-name", default="")
    parser.add_argument("--comment", default="")
    given, _ = parser.parse_known_args(arguments)
    if not given.job_name:
        return None
    listed = output_of("squeue", "--noheader", f"--name={given.job_name}", "--format=%i %k")
    if listed is None:
        raise _NoAnswer("squeue: no answer of the controller")
    numbers = (line.strip().partition(" ") for line in listed.splitlines())
    # A job on nodes of several kinds is listed as 123+0, 123+1.
    return next((number.partition("+")[0] for number, _, comment in numbers if comment == given.comment), None)


def _announce(state: tenacity.RetryCallState) -> None:
    """Print once, in snakemake's output, that the submission waits."""
    error = state.outcome.exception() if state.outcome else None
    if state.attempt_number == 1:
        with suppress(OSError, KeyError), open(os.environ[MESSAGES], "a", encoding="utf-8") as messages:
            print(f"Slurm's controller does not answer, a submission waits for it: {error}", file=messages)
