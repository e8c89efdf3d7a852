#!/usr/bin/env python3
"""Print whether a job of LSF, Cobalt or PBS is running (or waits), ended with success, or failed."""

import argparse
import subprocess
import sys
import time

from schedulers import STOPPED, Scheduler, scheduler_here

from bertline.console import HelpFormatter, run_command

# A network file system shows late what a job wrote on another node.
LATENCY_SECONDS = 30.0


def status_of(scheduler: Scheduler, number: str) -> str:
    """running, success or failed."""
    ended = scheduler.ended / number
    # One that does not answer has not lost the job.
    if not ended.exists() and not is_over(scheduler, number):
        return "running"
    deadline = time.monotonic() + LATENCY_SECONDS
    while not ended.exists() and time.monotonic() < deadline:
        time.sleep(1)
        list(ended.parent.iterdir())  # makes NFS look again
    status = int(ended.read_text()) if ended.exists() else STOPPED
    if status == STOPPED:
        reasons = "walltime, memory, a dead node, or someone cancelled it"
        print(f"job {number} was ended from outside ({reasons}); its log is in {scheduler.logs}", file=sys.stderr)
    return "failed" if status else "success"


def is_over(scheduler: Scheduler, number: str) -> bool:
    asked = subprocess.run([*scheduler.query, number], capture_output=True, text=True, check=False)  # noqa: S603
    return scheduler.over.search(asked.stdout + asked.stderr) is not None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/job_status.py 1234.server",
    )
    parser.add_argument("number", help="of the job")
    print(status_of(scheduler_here(), parser.parse_args().number))


if __name__ == "__main__":
    run_command(main)
