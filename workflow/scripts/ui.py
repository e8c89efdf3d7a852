"""Open MLflow on this machine, for you only, and keep it up to date with running trainings.

example:
  python workflow/scripts/ui.py --port 5000
"""

from bertline.command_line import run_command
from bertline.tracking.ui import open_ui

if __name__ == "__main__":
    run_command(open_ui, __doc__)
