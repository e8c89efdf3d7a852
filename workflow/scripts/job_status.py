#!/usr/bin/env python3
"""Print whether a job of LSF, Cobalt or PBS is running (or waiting), succeeded, or failed."""

import argparse

from bertline.cluster.jobs import job_status
from bertline.console import HelpFormatter, run_command


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/job_status.py 1234.server",
    )
    parser.add_argument("number", help="of the job")
    print(job_status(parser.parse_args().number))


if __name__ == "__main__":
    run_command(main)
