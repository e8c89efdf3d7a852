"""Train a tokenizer, WordPiece or byte-level BPE, on a sample of the training shards."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.encoding.tokenizer import save_tokenizer
from bertline.encoding.vocabulary import train_byte_level, train_wordpiece

TRAINERS = {"wordpiece": train_wordpiece, "bpe": train_byte_level}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/train_tokenizer.py shards/*.txt.zst --vocab-size 30522 "
        "--lowercase --output tokenizer.json",
    )
    parser.add_argument("shards", nargs="+", type=Path, metavar="SHARD", help="training shards, {shard}.txt.zst")
    parser.add_argument("--kind", choices=TRAINERS, default="wordpiece")
    parser.add_argument(
        "--vocab-size", type=int, required=True, help="number of tokens, including special ones and characters"
    )
    parser.add_argument("--lowercase", action=argparse.BooleanOptionalAction, default=True, help="also strips accents")
    parser.add_argument("--seed", type=int, default=12345, help="of the sample (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, metavar="JSON", help="tokenizer.json")
    arguments = parser.parse_args()
    tokenizer = TRAINERS[arguments.kind](
        arguments.shards, vocab_size=arguments.vocab_size, lowercase=arguments.lowercase, seed=arguments.seed
    )
    save_tokenizer(tokenizer, arguments.output)


if __name__ == "__main__":
    run_command(main)
