#!/usr/bin/env python3
"""Submit one of Snakemake's jobs to LSF, Cobalt, PBS or Grid Engine, and print its number. Only snakemake calls this.

example, as snakemake calls it:
  python workflow/scripts/submit_job.py jobscript.sh
"""

from bertline.cluster.scheduler_jobs import submit_job
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(submit_job, __doc__)
