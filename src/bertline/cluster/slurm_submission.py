"""Submission of Slurm jobs while the controller is restarted or too busy to answer, or the queue of the user is full.

The executor (2.8) reports a job as failed when sbatch fails once, so a controller that is down for a minute would end a
run of weeks. `workflow/slurm/sbatch`, which the executor finds on the PATH before Slurm's own, waits instead.
"""

from __future__ import annotations

import argparse
import fcntl
import getpass
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from bertline.cluster.slurm import environment, output_of
from bertline.cluster.waiting import wait_for_answer
from bertline.console import BertlineError

# The executor captures the output of sbatch: messages for a person go through a pipe to snakemake's own log and output.
MESSAGES = "BERTLINE_MESSAGES"
# The beginning of one about a refused job. For a group of jobs the executor's own is lost.
REFUSED = "sbatch refused"
# A file with the numbers of the jobs that a run has submitted, one a line, and CLOSED when no more may be.
SUBMITTED = "BERTLINE_SUBMITTED"
CLOSED = "closed"
# Messages of Slurm (slurm_errno.c) when its controller is away or too busy. The request may have arrived all the same.
NO_ANSWER = re.compile(
    r"unable to contact slurm controller|socket timed out|zero bytes were transmitted|controller in standby mode"
    r"|connection (refused|reset|timed out)|no route to host|transport endpoint is not connected"
    r"|communication (connection|shutdown) failure|message (receive|send) failure|unexpected missing socket"
    r"|insane message length|protocol authentication error|rate limit exceeded|resource temporarily unavailable"
    r"|could not establish a configuration source",
    re.IGNORECASE,
)
# AssocMaxSubmitJobLimit, QOSGrpSubmitJobsLimit and the like, which end with a job of the user. Slurm prints the name of
# the limit above a message that is the same for limits of size and time, which do not end.
SUBMIT_LIMIT = re.compile(r"(Max|Grp)SubmitJob", re.IGNORECASE)
# The line of sbatch with the number of a new job; a site's own sbatch may print other lines, with other numbers.
ACCEPTED = re.compile(r"^(?:Submitted batch job )?(\d+)(?:;\S+| on cluster \S+)?[ \t\r]*$", re.MULTILINE)


class _NotYet(Exception):
    """Slurm did not accept a job and may accept it later. Arguments: the reason, and Slurm's own message."""


def use_waiting_sbatch(folder: Path) -> None:
    """Put `folder`, which contains the waiting sbatch, first on the PATH of this process and its children.

    From their environment remove a person's choices for Slurm's lists: the executor would wait for a job that squeue
    leaves out without end, and jobs would get them, too.

    After Ctrl-C nothing is submitted: the executor cancels its jobs in the queue, but still waits for its submissions.

    Call this in the main thread.
    """
    for name in set(os.environ) - set(environment()):
        del os.environ[name]
    # And this interpreter, because snakemake can be started without its environment on the PATH.
    os.environ["PATH"] = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    read, write = os.pipe()
    os.environ[MESSAGES] = f"/proc/{os.getpid()}/fd/{write}"
    submitted = os.memfd_create("submitted")
    os.environ[SUBMITTED] = f"/proc/{os.getpid()}/fd/{submitted}"
    threading.Thread(target=_print_lines, args=[read], daemon=True).start()
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # ignored, as in the background of a script
        return

    def close(number: int, frame: FrameType | None) -> None:
        # Opened anew for an offset of its own, and without the lock, which a submission has while it waits.
        with open(os.environ[SUBMITTED], "a", encoding="utf-8") as file:
            print(CLOSED, file=file)
        before(number, frame)

    signal.signal(signal.SIGINT, close)


def _print_lines(descriptor: int) -> None:
    logger = logging.getLogger("snakemake.logging")
    with open(descriptor, encoding="utf-8") as lines:
        for line in lines:
            record = logger.makeRecord(logger.name, logging.WARNING, __file__, 0, line.rstrip("\n"), (), None)
            logger.handle(record)
            if _is_left_out(record, logger):
                print(line, end="", file=sys.stderr, flush=True)


def _is_left_out(record: logging.LogRecord, logger: logging.Logger) -> bool:
    """Return whether snakemake's output leaves out a record, as with --quiet all. Our display shows all of them."""
    streams = [handler for handler in logger.handlers if isinstance(handler, logging.StreamHandler)]
    return any(not handler.filter(record) for handler in streams if not isinstance(handler, logging.FileHandler))


def submit(arguments: Sequence[str], *, wrapper: Path) -> int:
    """Run Slurm's sbatch until it accepts or refuses a job, print its output, and return its exit status.

    A request without an answer may have been accepted. Before it is repeated, the job is looked up in Slurm's list by
    its name, which the executor gives to all jobs of a run, and by its comment. Other groups of jobs of the same rules,
    and earlier attempts, have the same comment. So a run submits one job after the other and keeps their numbers: one
    that it does not have is the number of the lost answer.

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
    given = _parse(arguments)
    with _submitted_jobs() as submitted:
        try:
            done = _wait_for_answer([sbatch, *arguments], sys.stdin.read(), submitted, given)
        except BertlineError as error:
            print(error, file=sys.stderr)
            return 1
        except _NotYet as error:
            done = subprocess.CompletedProcess([sbatch], 1, "", f"{error.args[-1]}\n")
        number = _number_in(done.stdout) if done.returncode == 0 else None
        if number:
            submitted.write(f"{number}\n")
            submitted.flush()
        if done.returncode == 0 and _has_ended(submitted):
            unknown = f"may be in the queue; look for it there and cancel it (sbatch: {' '.join(done.stdout.split())})"
            job = f"new job {number} {_cancel(number)}" if number else f"new job {unknown}"
            print(f"snakemake has ended; its {job}", file=sys.stderr)
            return 1
    if done.returncode:
        _tell(f"{REFUSED} {given.comment}: {' '.join(done.stderr.split())}")
    # The executor would take other numbers for that of the job.
    sys.stdout.write(f"{number}\n" if number else done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def _number_in(output: str) -> str | None:
    """Return the number of the new job in sbatch's output, None if no line is one."""
    numbers = ACCEPTED.findall(output)
    return numbers[-1] if numbers else None


def _cancel(number: str) -> str:
    """Cancel a job; return how that ended, for a message."""
    done = subprocess.run(["scancel", number], capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        return f"was not canceled ({' '.join(done.stderr.split())}); cancel it with `scancel {number}`"
    return "was canceled"


@contextmanager
def _submitted_jobs() -> Iterator[IO[str]]:
    """Open the list of the jobs that this run has submitted, at its beginning; the run's other submissions wait."""
    path = os.environ.get(SUBMITTED)
    with open(path, "a+", encoding="utf-8") if path else tempfile.TemporaryFile("a+") as submitted:
        fcntl.flock(submitted, fcntl.LOCK_EX)
        submitted.seek(0)
        yield submitted


def _has_ended(submitted: IO[str]) -> bool:
    """Return whether snakemake has ended, or was interrupted."""
    submitted.seek(0)
    return CLOSED in submitted.read().split() or not os.path.exists(os.environ.get(SUBMITTED, "/"))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return name and comment of a job, given to sbatch."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--job-name", default="")
    parser.add_argument("--comment", default="")
    return parser.parse_known_args(arguments)[0]


def _wait_for_answer(
    command: list[str], script: str, submitted: IO[str], given: argparse.Namespace
) -> subprocess.CompletedProcess[str]:
    """Return sbatch's answer. Raises _NotYet if there is none for a day, BertlineError if snakemake has ended."""
    known = submitted.read().split()

    def find() -> subprocess.CompletedProcess[str] | None:
        job = _find_job(given.job_name, given.comment, known)
        return subprocess.CompletedProcess(command, 0, f"{job}\n", "") if job else None

    def attempt(repeated: bool) -> subprocess.CompletedProcess[str]:
        if repeated and (answer := find()):
            return answer
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)  # noqa: S603
        said = " ".join(done.stderr.split())
        if done.returncode and NO_ANSWER.search(said):
            raise _NotYet("Slurm's controller does not answer", said)
        # An account whose limit is 0 waits for nothing.
        if done.returncode and SUBMIT_LIMIT.search(said) and _has_jobs():
            raise _NotYet("no more jobs may be in the queue", said)
        return done

    return wait_for_answer(attempt, _NotYet, _announce, lambda: _has_ended(submitted), find, given.job_name)


def _has_jobs() -> bool:
    """Return whether this user has jobs in the queue, or squeue does not answer."""
    return output_of("squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i") != ""


def _find_job(name: str, comment: str, known: Collection[str]) -> str | None:
    """Return the number of a job with this name and comment that is not `known`, if there is one.

    Slurm lists a finished job for some more minutes (MinJobAge). A canceled one counts as not submitted. Raises _NotYet
    if squeue does not answer.
    """
    if not name:
        return None
    listed = output_of("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%i %T %k")
    if listed is None:
        raise _NotYet("Slurm's controller does not answer", "squeue fails")
    for line in listed.splitlines():
        number, state, its_comment = [*line.strip().split(" ", 2), "", ""][:3]
        number = number.partition("+")[0]  # a job on nodes of several kinds is listed as 123+0, 123+1
        if its_comment == comment and state != "CANCELLED" and number not in known:
            return number
    return None


def _announce(error: BaseException) -> None:
    """Say that the submission waits."""
    reason, said = error.args
    _tell(f"{reason}, a submission waits: {said}")


def _tell(line: str) -> None:
    """Print a line in snakemake's log and output."""
    with suppress(OSError, KeyError), open(os.environ[MESSAGES], "a", encoding="utf-8") as messages:
        print(line, file=messages)
