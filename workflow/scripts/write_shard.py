"""Make one shard by copying its ranges of the parts."""

from __future__ import annotations

import argparse

from bertline.console import HelpFormatter, run_command
from bertline.corpus.shards import write_shard


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/write_shard.py "
        "--plan plan.json --shard 00000 --output shards/00000.txt.zst",
    )
    parser.add_argument("--plan", required=True)
    parser.add_argument("--shard", required=True, help="00000, 00001, ... or held_out")
    parser.add_argument("--output", required=True, help="the .txt.zst to write")
    arguments = parser.parse_args()
    write_shard(arguments.plan, arguments.shard, arguments.output)


if __name__ == "__main__":
    run_command(main)
