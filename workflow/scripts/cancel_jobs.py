#!/usr/bin/env python3
"""Wait for the end of snakemake, and cancel its unfinished jobs on LSF, PBS or Cobalt."""

import argparse

from bertline.cluster.jobs import cancel_jobs_at_the_end
from bertline.console import HelpFormatter, run_command


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/cancel_jobs.py & exec snakemake",
    ).parse_args()
    cancel_jobs_at_the_end()


if __name__ == "__main__":
    run_command(main)
