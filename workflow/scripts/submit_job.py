#!/usr/bin/env python3
"""Send one of Snakemake's jobs to LSF, Cobalt or PBS, and print its number."""

import argparse
import os
import subprocess
from pathlib import Path

from schedulers import job_script, request_of, scheduler_here
from snakemake.utils import read_job_properties

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.files import write_text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/submit_job.py jobscript.sh",
    )
    parser.add_argument("jobscript", type=Path, help="as Snakemake writes it")
    jobscript = parser.parse_args().jobscript
    scheduler = scheduler_here()
    scheduler.ended.mkdir(parents=True, exist_ok=True)
    job = request_of(read_job_properties(str(jobscript)), scheduler.logs)
    command = scheduler.submit(job)
    write_text(job.script, job_script(scheduler, jobscript.read_text(), job.minutes))
    Path(job.script).chmod(0o755)
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    number = scheduler.number.search(done.stdout)
    if done.returncode or number is None:
        said = " ".join((done.stderr or done.stdout).split())
        raise BertlineError(f"{command[0]} refused the job {job.name}: {said}; see site.yaml")
    with Path(os.environ["SNAKEMAKE_CLUSTER_SIDECAR_VARS"]).open("a") as sent:
        sent.write(f"{number[1]}\n")
    print(number[1])


if __name__ == "__main__":
    run_command(main)
