"""Check a whole dataset: its card, its tokenizer, and all digests and layout rules of its files."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.encoding.card import validate_dataset


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/validate_dataset.py results/runs/demo/dataset/dataset.json",
    )
    parser.add_argument("card", type=Path, metavar="DATASET_JSON", help="the dataset's dataset.json")
    arguments = parser.parse_args()
    print(validate_dataset(arguments.card))


if __name__ == "__main__":
    run_command(main)
