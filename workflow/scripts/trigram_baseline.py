"""Evaluate a trigram model of a phase's training tokens on the phase's held-out tokens."""

import argparse
from pathlib import Path

from bertline.console import HelpFormatter, run_command
from bertline.encoding.dataset import open_dataset
from bertline.encoding.masking import held_out_positions
from bertline.encoding.trigram import MAX_TOKENS, trigram_cross_entropy
from bertline.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/trigram_baseline.py --dataset results/runs/demo/dataset/dataset.json "
        "--sequence-length 128 --output trigram.json",
    )
    parser.add_argument("--dataset", type=Path, required=True, metavar="JSON", help="the dataset's dataset.json")
    parser.add_argument("--sequence-length", type=int, required=True, metavar="TOKENS", help="of the phase")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS, help="to train on (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="JSON", help="file for cross_entropy in nats per token"
    )
    arguments = parser.parse_args()
    train = open_dataset(arguments.dataset, arguments.sequence_length, "train")
    held_out = open_dataset(arguments.dataset, arguments.sequence_length, "held_out")
    # An imported dataset may have no held-out samples: then there is no loss to compare with.
    baseline = {"cross_entropy": None, "tokens": 0}
    if len(held_out):
        baseline = trigram_cross_entropy(train, held_out, held_out_positions(held_out), max_tokens=arguments.max_tokens)
    write_json(arguments.output, baseline)


if __name__ == "__main__":
    run_command(main)
