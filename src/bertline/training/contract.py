"""What a launcher and its ranks have agreed on: exit statuses, and the name of a variable. It imports nothing."""

# Exit statuses of a trainer's process, with names from sysexits.h. srun returns the highest status of its tasks.
LOST = 69  # lost the connection to another process, which failed: EX_UNAVAILABLE
FAILED = 70  # failed by itself and reported why: EX_SOFTWARE
STOPPED = 75  # stopped on request after saving its state, to be run again: EX_TEMPFAIL
# Environment variable: a random secret that the ranks of a job share.
TOKEN = "BERTLINE_JOB_TOKEN"  # noqa: S105
