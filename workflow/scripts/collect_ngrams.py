"""Collect the 13-word sequences of evaluation sets, which documents should not contain."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.overlap import collect_ngrams


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/collect_ngrams.py --set squad_v1 dev-v1.1.json "
        "--set rte RTE/dev.tsv RTE/test.tsv --output ngrams.npz",
    )
    parser.add_argument(
        "--set",
        required=True,
        action="append",
        nargs="+",
        metavar=("NAME", "FILE"),
        help="an evaluation set's name and its .json or tab-separated files; once for each",
    )
    parser.add_argument("--output", required=True, help="the .npz to write")
    arguments = parser.parse_args()
    collect_ngrams({name: files for name, *files in arguments.set}, arguments.output)


if __name__ == "__main__":
    run_command(main)
