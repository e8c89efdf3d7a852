"""What launchers, schedulers' jobs and trainers agree on. It imports only the standard library."""

from __future__ import annotations

import os
import re

# Exit statuses of a trainer's process, with names from sysexits.h. srun returns the highest status of its tasks.
LOST = 69  # lost the connection to another process, which failed: EX_UNAVAILABLE
FAILED = 70  # failed by itself and reported why: EX_SOFTWARE
STOPPED = 75  # stopped on request after saving its state, to be run again: EX_TEMPFAIL

# Environment variables of a job's processes.
JOB = "BERTLINE_JOB"  # scheduler and number of the job, as in `slurm 4711`
JOB_ENDS = "BERTLINE_JOB_ENDS"  # Unix time, in seconds, at which its walltime ends
TOKEN = "BERTLINE_JOB_TOKEN"  # noqa: S105 - a random secret that the ranks share

# The last line of a trainer that stopped on request, and what finds it in a log.
STEP_IS_SAVED = "asked to stop: step {step} is saved; run the same command to resume"
SAVED_STEP = re.compile(r"asked to stop: (step \d+ is saved)")

# Prefix of the last log line of a training that waits for a GPU.
WAITS_FOR_GPU = "other trainings are on"


def is_rank_zero() -> bool:
    """Return whether this process is rank 0, by torchrun's variable, or runs alone."""
    return os.environ.get("RANK", "0") == "0"
