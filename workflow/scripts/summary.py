"""Print the table of scores, the path of the report, and how to open MLflow.

example:
  python workflow/scripts/summary.py results/runs/demo/record-0123456789abcdef.json \\
    --report results/report/0123456789abcdef/index.html
"""

from bertline.command_line import run_command
from bertline.reporting.terminal import summary

if __name__ == "__main__":
    run_command(summary, __doc__)
