"""Log the final model of a run and its kept fine-tuned models to MLflow, for `mlflow`'s load_model.

example:
  python workflow/scripts/log_model.py results/runs/demo/record.json \\
    --register my-bert
"""

import signal
import sys

from bertline.command_line import run_command
from bertline.console import handle_signals
from bertline.tracking.models import log_model

if __name__ == "__main__":
    # An exception, which removes the copies of models in the folder of temporary files.
    handle_signals((signal.SIGTERM, signal.SIGHUP), lambda number, _: sys.exit(128 + number))
    run_command(log_model, __doc__)
