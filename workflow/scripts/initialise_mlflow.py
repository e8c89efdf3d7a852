"""Create or upgrade MLflow's database before its first use.

example:
  python workflow/scripts/initialise_mlflow.py --uri sqlite:///mlflow.db
"""

from bertline.command_line import run_command
from bertline.tracking.store import default_tracking_uri, initialise


def initialise_store(uri: str | None = None) -> None:
    """Create a database.

    Args:
        uri: the tracking store (default: $MLFLOW_TRACKING_URI, or mlflow.db here).
    """
    initialise(uri or default_tracking_uri())


if __name__ == "__main__":
    run_command(initialise_store, __doc__)
