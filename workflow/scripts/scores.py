"""Print the table of scores of runs, where their models are, and how to open MLflow.

example:
  python workflow/scripts/scores.py results/runs
"""

from bertline.command_line import run_command
from bertline.reporting.terminal import summary

if __name__ == "__main__":
    run_command(summary, __doc__)
