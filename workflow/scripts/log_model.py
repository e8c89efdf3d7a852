"""Log a run's final model to MLflow, for `mlflow.transformers.load_model`; --register makes it a version."""

from __future__ import annotations

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.files import write_json
from bertline.tracking.models import log_model
from bertline.tracking.store import default_tracking_uri


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/log_model.py results/runs/demo/record.json --register my-bert",
    )
    parser.add_argument("record", type=Path, help="record.json of a run")
    parser.add_argument("--uri", default=default_tracking_uri(), help="the tracking store (default: %(default)s)")
    parser.add_argument("--register", metavar="NAME", help="make it a version of this registered model")
    parser.add_argument("--output", type=Path, help="write the model's id to this file")
    arguments = parser.parse_args()
    result = log_model(arguments.record, arguments.uri, arguments.register)
    if arguments.output:
        write_json(arguments.output, result)
    print(result["load"] + (f"   {arguments.register} version {result['version']}" if arguments.register else ""))


if __name__ == "__main__":
    run_command(main)
