#!/usr/bin/env python3
"""Submit one of Snakemake's jobs to LSF, Cobalt or PBS, and print its number."""

import argparse
from pathlib import Path

from bertline.cluster.jobs import submit_job
from bertline.console import HelpFormatter, run_command


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/submit_job.py jobscript.sh",
    )
    parser.add_argument("jobscript", type=Path, help="as Snakemake writes it")
    print(submit_job(parser.parse_args().jobscript))


if __name__ == "__main__":
    run_command(main)
