"""Zip predictions for GLUE's test sets for its server, from each task's fine-tuning with the best dev score."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.finetuning.glue import choose_submissions, zip_submission


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/glue_submission.py results/finetunings/*/metrics.json --output x.zip",
    )
    parser.add_argument("metrics", nargs="+", type=Path, help="metrics.json of each fine-tuning with predict_test")
    parser.add_argument("--output", required=True, type=Path, help="the zip to write")
    arguments = parser.parse_args()
    zip_submission(choose_submissions([path.parent for path in arguments.metrics]), arguments.output)


if __name__ == "__main__":
    run_command(main)
