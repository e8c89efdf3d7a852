"""Import an existing tokenizer: a vocab.txt or a tokenizer.json."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.encoding.tokenizer import save_tokenizer, take_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/take_tokenizer.py vocab.txt --lowercase --output tokenizer.json",
    )
    parser.add_argument("vocabulary", type=Path, help="vocab.txt, one token per line, or tokenizer.json")
    parser.add_argument(
        "--lowercase",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="case of a vocab.txt; a tokenizer.json specifies it itself",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="JSON", help="tokenizer.json")
    arguments = parser.parse_args()
    save_tokenizer(take_tokenizer(arguments.vocabulary, lowercase=arguments.lowercase), arguments.output)


if __name__ == "__main__":
    run_command(main)
