#!/usr/bin/env python3
"""Print whether a job of LSF, Cobalt, PBS or Grid Engine is running (or waiting), succeeded, or failed.

example:
  python workflow/scripts/job_status.py 1234.server
"""

from bertline.cluster.scheduler_jobs import job_status
from bertline.command_line import run_command

if __name__ == "__main__":
    run_command(job_status, __doc__)
