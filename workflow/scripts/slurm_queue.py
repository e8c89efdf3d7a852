"""What Slurm's queue and partitions say. Imported by other scripts, by the rules, and by nothing in src/."""

from __future__ import annotations

import functools
import getpass
import os
import subprocess
from dataclasses import dataclass

# What squeue is asked for, in the fields' own names. Widths, because --Format cuts at 20 characters without.
FIELDS = ("JobID", "State", "TimeLeft", "RestartCnt", "WorkDir", "Comment")
WIDTH = 400


@dataclass(frozen=True)
class Job:
    """A job in the queue."""

    number: str
    state: str
    minutes_left: float | None  # of its walltime; None where it has no limit
    restarts: int
    folder: str
    comment: str  # the executor writes the rule and its wildcards here


def read_queue(*options: str) -> list[Job]:
    """Jobs in the queue by squeue's `options`; none where there is no Slurm or the job is not known."""
    fields = ",".join(f"{field}:{WIDTH}" for field in FIELDS)
    try:
        listed = subprocess.run(  # noqa: S603
            ["squeue", "--noheader", f"--Format={fields}", *options],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    jobs = []
    for line in listed.stdout.splitlines():
        number, state, left, restarts, folder, comment = (
            line[WIDTH * i : WIDTH * (i + 1)].strip() for i in range(len(FIELDS))
        )
        jobs.append(Job(number, state, minutes_of(left), int(restarts or 0), folder, comment))
    return jobs


def own_job() -> Job | None:
    """The job that this process runs in."""
    number = os.environ.get("SLURM_JOB_ID")
    jobs = read_queue(f"--jobs={number}") if number else []
    # A job on unlike nodes has a line for each kind.
    return next((job for job in jobs if job.number == number), None)


def minutes_of(duration: str) -> float | None:
    """Minutes of Slurm's [days-][hours:]minutes:seconds; None for a word, as where there is no limit."""
    days, _, clock = duration.rpartition("-")
    if not clock.replace(":", "").isdigit():
        return None
    seconds = 0
    for part in clock.split(":"):
        seconds = 60 * seconds + int(part)
    return 24 * 60 * int(days or 0) + seconds / 60


@functools.cache
def jobs_here() -> list[Job]:
    """This user's jobs that were submitted from this folder, as they stand when first asked for."""
    here = os.path.realpath(os.getcwd())
    return [job for job in read_queue(f"--user={getpass.getuser()}") if os.path.realpath(job.folder) == here]


def jobs_of(comment: str) -> list[str]:
    """The numbers of this folder's jobs with the executor's `comment`, apart from the one that asks."""
    own = os.environ.get("SLURM_JOB_ID")
    return [job.number for job in jobs_here() if job.comment == comment and job.number != own]
