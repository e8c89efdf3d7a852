"""Assign every document to one shard or to the held-out set, using the parts' indexes."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.shards import write_plan


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/plan_shards.py "
        "--corpus wikipedia a/part-00000.txt.zst a/part-00001.txt.zst "
        "--corpus books b/part-00000.txt.zst --shards 8 --held-out 0.005 --output plan.json",
    )
    parser.add_argument(
        "--corpus",
        required=True,
        action="append",
        nargs="+",
        metavar=("NAME", "PART"),
        help="a corpus's name and the .txt.zst of its parts, in order; once for each corpus",
    )
    parser.add_argument("--shards", required=True, type=int, help="number of shards")
    parser.add_argument("--held-out", required=True, type=float, help="fraction of documents to hold out")
    parser.add_argument("--removed", help="the list of documents to leave out, from list_removed.py")
    parser.add_argument("--output", required=True, help="the plan to write")
    arguments = parser.parse_args()
    corpora = [(name, parts) for name, *parts in arguments.corpus]
    write_plan(corpora, arguments.shards, arguments.held_out, arguments.output, arguments.removed)


if __name__ == "__main__":
    run_command(main)
