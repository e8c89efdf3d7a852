#!/usr/bin/env python3
"""Wait for the end of snakemake, and cancel its unfinished jobs on LSF, PBS, Cobalt or Grid Engine.

example:
  python workflow/scripts/cancel_jobs.py & exec snakemake
"""

from bertline.cluster.scheduler_jobs import cancel_jobs_at_the_end
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(cancel_jobs_at_the_end, __doc__)
