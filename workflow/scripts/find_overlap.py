"""Find the documents of a part that contain text of the evaluation sets."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.overlap import find_overlap


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/find_overlap.py --documents documents/part-00000.jsonl.zst "
        "--ngrams ngrams.npz --output overlap/part-00000.json",
    )
    parser.add_argument("--documents", required=True, help="a .jsonl.zst")
    parser.add_argument("--ngrams", required=True, help="the output of collect_ngrams.py")
    parser.add_argument("--output", required=True, help="the .json to write")
    arguments = parser.parse_args()
    find_overlap(arguments.documents, arguments.ngrams, arguments.output)


if __name__ == "__main__":
    run_command(main)
