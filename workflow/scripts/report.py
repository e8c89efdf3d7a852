"""Write the report of one or several runs: a self-contained page, its tables as CSV, its figures as SVG.

example:
  python workflow/scripts/report.py demo,demo-short
  python workflow/scripts/report.py \\
    results/runs/demo/record-0123456789abcdef.json \\
    --directory results/report/0123456789abcdef
"""

from bertline.command_line import run_command
from bertline.reporting.choice import report_of

if __name__ == "__main__":
    run_command(report_of, __doc__)
