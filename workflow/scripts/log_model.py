"""Log the final model of a run and its kept fine-tuned models to MLflow, for `mlflow`'s load_model.

example:
  python workflow/scripts/log_model.py results/runs/demo/record.json \\
    --register my-bert
"""

from bertline.command_line import run_command
from bertline.tracking.models import log_model

if __name__ == "__main__":
    run_command(log_model, __doc__)
