"""Create or upgrade MLflow's database before its first use."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.tracking.store import default_tracking_uri, initialise


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/initialise_mlflow.py --uri sqlite:///mlflow.db",
    )
    parser.add_argument("--uri", default=default_tracking_uri(), help="the tracking store (default: %(default)s)")
    initialise(parser.parse_args().uri)


if __name__ == "__main__":
    run_command(main)
