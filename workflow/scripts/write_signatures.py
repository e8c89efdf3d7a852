"""Write the signatures of a part's documents, by which duplicates are found."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.signatures import write_signatures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/write_signatures.py --documents documents/part-00000.jsonl.zst "
        "--counts documents/part-00000.counts.json --output signatures/part-00000.npy",
    )
    parser.add_argument("--documents", required=True, help="a .jsonl.zst")
    parser.add_argument("--counts", required=True, help="its .counts.json")
    parser.add_argument("--output", required=True, help="the .npy to write")
    arguments = parser.parse_args()
    write_signatures(arguments.documents, arguments.counts, arguments.output)


if __name__ == "__main__":
    run_command(main)
