"""Encode one shard: its text once to token ids, and these to samples for every sequence length."""

import argparse
from pathlib import Path

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.encoding.encoder import encode_shard
from bertline.encoding.samples import PAIR_OBJECTIVES


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/encode_shard.py shards/00000.txt.zst --plan plan.json "
        "--tokenizer tokenizer.json --fingerprint 0123456789abcdef --sequence-lengths 128 512 "
        "--outputs seq128/00000.h5 seq512/00000.h5",
    )
    parser.add_argument("shard", type=Path, help="{shard}.txt.zst; its name also seeds the random choices")
    parser.add_argument("--plan", type=Path, required=True, metavar="JSON", help="the plan of the shard")
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="JSON", help="tokenizer.json")
    parser.add_argument("--fingerprint", required=True, help="of the dataset")
    parser.add_argument("--seed", type=int, default=12345, help="of the dataset (default: %(default)s)")
    parser.add_argument("--pair-objective", choices=PAIR_OBJECTIVES, default=PAIR_OBJECTIVES[0])
    parser.add_argument("--passes", type=int, default=1, help="passes of pairing over the text (default: %(default)s)")
    parser.add_argument(
        "--short-sequence-probability", type=float, default=0.1, help="share of samples of random length"
    )
    parser.add_argument("--sequence-lengths", type=int, nargs="+", required=True, metavar="TOKENS")
    parser.add_argument("--outputs", type=Path, nargs="+", required=True, metavar="H5", help="one for each length")
    arguments = parser.parse_args()
    if len(arguments.outputs) != len(arguments.sequence_lengths):
        raise BertlineError("--outputs: give one file for each of --sequence-lengths, in the same order")
    encode_shard(
        arguments.shard,
        arguments.tokenizer,
        arguments.plan,
        dict(zip(arguments.sequence_lengths, arguments.outputs, strict=True)),
        shard_name=arguments.shard.name.removesuffix(".txt.zst"),
        fingerprint=arguments.fingerprint,
        seed=arguments.seed,
        pair_objective=arguments.pair_objective,
        passes=arguments.passes,
        short_sequence_probability=arguments.short_sequence_probability,
    )


if __name__ == "__main__":
    run_command(main)
