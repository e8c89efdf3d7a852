#!/usr/bin/env python3
"""Submit one of Snakemake's jobs to LSF, Cobalt or PBS, and print its number.

example:
  python workflow/scripts/submit_job.py jobscript.sh
"""

from pathlib import Path

from bertline.cluster.jobs import submit_job
from bertline.command_line import run_command


def submit(jobscript: Path) -> None:
    """Submit a job and print its number.

    Args:
        jobscript: as Snakemake writes it.
    """
    print(submit_job(jobscript))


if __name__ == "__main__":
    run_command(submit, __doc__)
