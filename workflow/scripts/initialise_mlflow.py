"""Create or upgrade MLflow's database before its first use.

example:
  python workflow/scripts/initialise_mlflow.py --uri sqlite:///mlflow.db
"""

from bertline.command_line import run_command
from bertline.tracking.store import initialise

if __name__ == "__main__":
    run_command(initialise, __doc__)
