"""Train a Punkt model for sentence splitting on a sample of a corpus."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.sentences import train_punkt


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/train_punkt.py "
        "--documents documents/*.jsonl.zst --counts documents/*.counts.json "
        "--output punkt",
    )
    parser.add_argument("--documents", required=True, nargs="+", help="all parts of the corpus, in order")
    parser.add_argument("--counts", required=True, nargs="+", help="their .counts.json")
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--sample-bytes", type=int, default=4_000_000, help="approximate size of the sample")
    parser.add_argument("--output", required=True, help="the folder to make")
    arguments = parser.parse_args()
    train_punkt(
        arguments.documents,
        arguments.counts,
        arguments.output,
        seed=arguments.seed,
        sample_bytes=arguments.sample_bytes,
    )


if __name__ == "__main__":
    run_command(main)
