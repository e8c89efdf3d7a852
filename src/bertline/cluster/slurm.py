"""Slurm's queue: its jobs, this process's job, and requeueing it."""

from __future__ import annotations

import functools
import getpass
import itertools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

import tenacity

# Fields of squeue's output, and the bytes of each, because --Format truncates at 20 characters by default.
FIELDS = {
    "JobID": 40,
    "State": 40,
    "TimeLeft": 40,
    "RestartCnt": 40,
    "WorkDir": 4096,  # the longest path on Linux
    "Comment": 1000,
    "Reason": 400,
}
# Variables by which a person limits what these programs list, or changes its form.
CHOICES = ("SQUEUE_", "SINFO_", "SACCT_")
PATIENCE = 120.0  # seconds in which a busy controller is asked again, PAUSE seconds after each time
PAUSE = 2.0


@dataclass(frozen=True)
class Job:
    """A job in the queue."""

    number: str
    state: str
    minutes_left: float | None  # of its walltime; None without a limit
    restarts: int
    folder: str
    comment: str  # the executor writes the rule and its wildcards here
    reason: str  # why it waits; empty if it does not

    @property
    def is_of_executor(self) -> bool:
        """Whether Snakemake's executor submitted this job, and not a person, as an allocation or a batch script."""
        return self.comment.startswith("rule_")


def environment() -> dict[str, str]:
    """Return this process's environment without what a person has chosen for the lists of Slurm's programs."""
    return {name: value for name, value in os.environ.items() if not name.startswith(CHOICES)}


def output_of(*command: str) -> str | None:
    """Return the output of one of Slurm's commands; None if it fails."""
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
            check=True,
            env=environment(),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _queue(*options: str) -> str | None:
    """Return what squeue prints; None if it does not answer."""
    fields = ",".join(f"{field}:{width}" for field, width in FIELDS.items())
    return output_of("squeue", "--noheader", f"--Format={fields}", *options)


def _jobs_in(listed: str) -> list[Job]:
    jobs = []
    ends = list(itertools.accumulate(FIELDS.values()))
    for line in listed.splitlines():
        columns = line.encode(errors="surrogateescape")  # squeue pads to a number of bytes
        number, state, left, restarts, folder, comment, reason = (
            columns[end - width : end].decode(errors="replace").strip()
            for end, width in zip(ends, FIELDS.values(), strict=True)
        )
        reason = "" if reason == "None" else reason
        jobs.append(Job(number, state, parse_minutes(left), int(restarts or 0), folder, comment, reason))
    return jobs


def own_job(patience: float = PATIENCE) -> Job | None:
    """Return this process's job; None outside a Slurm job, or if Slurm does not answer for `patience` seconds.

    A training that does not get its job's time left cannot save before the walltime ends.
    """
    number = os.environ.get("SLURM_JOB_ID")
    if number is None:
        return None
    if shutil.which("squeue") is None:
        print(
            f"no squeue is on the PATH; nothing is known of job {number}, as its time left", file=sys.stderr, flush=True
        )
        return None
    asking = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda listed: listed is None),
        wait=tenacity.wait_fixed(PAUSE),
        stop=tenacity.stop_after_delay(patience),
        retry_error_callback=lambda state: None,
    )
    listed = asking(_queue, f"--jobs={number}")
    if listed is None:
        print(f"squeue does not answer; nothing is known of job {number}", file=sys.stderr, flush=True)
        return None
    # A job on nodes of several kinds has a line for each kind.
    job = next((job for job in _jobs_in(listed) if job.number == number), None)
    if job is None:
        print(f"squeue does not list job {number}; its time left is not known", file=sys.stderr, flush=True)
    return job


def requeue_own_job() -> None:
    """Requeue this process's job, unless it is being ended or was already requeued.

    Slurm starts the same job again, which then resumes. If a site forbids this, Snakemake submits a new job.
    """
    job = own_job(patience=10)
    if job is None or job.state != "RUNNING":
        return
    command = ["scontrol", "requeue", job.number]
    requeued = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    outcome = "was requeued and will resume" if requeued.returncode == 0 else requeued.stderr.strip()
    print(f"job {job.number} {outcome}", file=sys.stderr, flush=True)


def parse_minutes(duration: str) -> float | None:
    """Convert Slurm's [days-][hours:]minutes:seconds to minutes; None for a word, such as that for no limit."""
    days, _, clock = duration.rpartition("-")
    if not clock.replace(":", "").isdigit():
        return None
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return 24 * 60 * int(days or 0) + seconds / 60


@functools.cache
def jobs_of_this_folder() -> list[Job]:
    """Return this user's jobs that were submitted from this folder, as of the first call; none without Slurm."""
    if shutil.which("squeue") is None:
        return []
    listed = _queue(f"--user={getpass.getuser()}")
    if listed is None:
        print("squeue does not answer; this folder's jobs in the queue are not known", file=sys.stderr, flush=True)
    here = os.path.realpath(os.getcwd())
    return [job for job in _jobs_in(listed or "") if os.path.realpath(job.folder) == here]


def numbers_of_jobs(comment: str) -> list[str]:
    """Return the numbers of this folder's jobs with the executor's `comment`, except this process's own."""
    own = os.environ.get("SLURM_JOB_ID")
    return [job.number for job in jobs_of_this_folder() if job.comment == comment and job.number != own]
