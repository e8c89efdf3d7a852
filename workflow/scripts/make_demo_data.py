"""Generate the demo's synthetic sample: a Wikimedia mirror, books, SQuAD and GLUE files about an invented world."""

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.demo_data.generate import generate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/make_demo_data.py --output resources/sample --seed 1",
    )
    parser.add_argument("--output", required=True, help="the folder to make; an existing one is replaced")
    parser.add_argument("--seed", type=int, default=1, help="of the invented world")
    arguments = parser.parse_args()
    generate(arguments.output, arguments.seed)


if __name__ == "__main__":
    run_command(main)
