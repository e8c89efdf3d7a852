"""Print the table of scores, the path of the report, and how to open MLflow.

example:
  python workflow/scripts/summary.py results/runs/demo/record-0123456789abcdef.json \\
    --report results/report/0123456789abcdef/index.html
"""

import sys
from pathlib import Path

from bertline.command_line import run_command
from bertline.reporting.terminal import summary


def print_summary(records: list[Path], *, report: Path | None = None) -> None:
    """Print a summary.

    Args:
        records: record-*.json of each run to show.
        report: the report's index.html.
    """
    sys.stdout.write(summary(records, report))


if __name__ == "__main__":
    run_command(print_summary, __doc__)
