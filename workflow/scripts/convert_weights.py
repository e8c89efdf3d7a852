"""Convert a BERT to Hugging Face's layout: Google's TensorFlow release, or a folder with pytorch_model.bin."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command

EXAMPLE = """example:
  python workflow/scripts/convert_weights.py uncased_L-12_H-768_A-12 --lowercase --output models/bert-base-uncased"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("source", type=Path, help="the folder with the weights, their configuration and vocabulary")
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="case of a vocab.txt, if no other file in the folder specifies it",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIRECTORY", help="the directory to write")
    given = parser.parse_args()

    from bertline.modeling.conversion import convert_weights

    convert_weights(given.source, given.output, lowercase=given.lowercase)


if __name__ == "__main__":
    run_command(main)
