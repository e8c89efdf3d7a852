"""Send the present results of runs to MLflow; a repeated call changes nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.files import write_json
from bertline.tracking.store import default_tracking_uri, follow, track


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/track.py results/runs/demo/record-0123456789abcdef.json "
        "--output results/tracked-demo.json",
    )
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="record-*.json of a run")
    parser.add_argument("--uri", default=default_tracking_uri(), help="the tracking store (default: %(default)s)")
    parser.add_argument("--report", type=Path, help="the report's index.html, kept with each run")
    parser.add_argument("--output", type=Path, help="write the number of points of each stage to this file")
    parser.add_argument("--follow", type=float, metavar="SECONDS", help="repeat at this interval until interrupted")
    arguments = parser.parse_args()
    if arguments.follow is not None:
        follow(arguments.records, arguments.uri, arguments.follow, arguments.report)
        return
    marker = track(arguments.records, arguments.uri, arguments.report)
    if arguments.output:
        write_json(arguments.output, marker)


if __name__ == "__main__":
    run_command(main)
