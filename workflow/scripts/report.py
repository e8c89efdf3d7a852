"""Write the report of one or several runs: a self-contained page, its tables as CSV, its figures as SVG."""

from __future__ import annotations

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.reporting.page import write_report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/report.py --record results/runs/demo/record-0123456789abcdef.json "
        "--output-directory results/report/0123456789abcdef",
    )
    parser.add_argument("--record", nargs="+", type=Path, required=True, help="record-*.json of each run to show")
    parser.add_argument(
        "--output-directory", type=Path, required=True, help="folder for index.html, tables/ and figures/"
    )
    arguments = parser.parse_args()
    write_report(arguments.record, arguments.output_directory)


if __name__ == "__main__":
    run_command(main)
