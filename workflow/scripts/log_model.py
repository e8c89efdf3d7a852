"""Log a run's final model to MLflow, for `mlflow.transformers.load_model`.

example:
  python workflow/scripts/log_model.py results/runs/demo/record.json --register my-bert
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.files import write_json
from bertline.tracking.models import log_model
from bertline.tracking.store import default_tracking_uri


def log(record: Path, *, uri: str | None = None, register: str | None = None, output: Path | None = None) -> None:
    """Log a model.

    Args:
        record: record.json of a run.
        uri: the tracking store (default: $MLFLOW_TRACKING_URI, or mlflow.db here).
        register: make it a version of the registered model of this name.
        output: write the model's id to this file.
    """
    result = log_model(record, uri or default_tracking_uri(), register)
    if output:
        write_json(output, result)
    print(result["load"] + (f"   {register} version {result['version']}" if register else ""))


if __name__ == "__main__":
    run_command(log, __doc__)
