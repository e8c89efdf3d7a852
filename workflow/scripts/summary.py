"""Print the table of scores, the path of the report, and how to open MLflow."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.reporting.terminal import summary


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/summary.py --record results/runs/demo/record-0123456789abcdef.json "
        "--report results/report/0123456789abcdef/index.html",
    )
    parser.add_argument("--record", nargs="+", type=Path, required=True, help="record-*.json of each run to show")
    parser.add_argument("--report", type=Path, help="the report's index.html")
    arguments = parser.parse_args()
    sys.stdout.write(summary(arguments.record, arguments.report))


if __name__ == "__main__":
    run_command(main)
