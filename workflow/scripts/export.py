"""Write a finished phase's model in Hugging Face's layout, with its tokenizer."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command

EXAMPLE = """example:
  python workflow/scripts/export.py --phase results/phases/0123456789abcdef \\
    --tokenizer results/datasets/0123456789abcdef/tokenizer.json --output my-bert"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("--phase", type=Path, required=True, help="the phase's folder")
    parser.add_argument("--tokenizer", type=Path, required=True, help="the dataset's tokenizer.json")
    parser.add_argument("--output", type=Path, required=True, help="the directory to write")
    given = parser.parse_args()

    from bertline.training.publishing import export_phase

    export_phase(given.phase, given.tokenizer, given.output)


if __name__ == "__main__":
    run_command(main)
