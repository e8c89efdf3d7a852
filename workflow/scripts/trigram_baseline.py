"""Evaluate a trigram model of a phase's training tokens on the phase's held-out tokens.

example:
  python workflow/scripts/trigram_baseline.py --sequence-length 128 \\
    --dataset results/runs/demo/dataset/dataset.json --output trigram.json
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.encoding.dataset import open_dataset
from bertline.encoding.masking import held_out_positions
from bertline.encoding.trigram import MAX_TOKENS, trigram_cross_entropy
from bertline.files import write_json


def evaluate(dataset: Path, sequence_length: int, output: Path, *, max_tokens: int = MAX_TOKENS) -> None:
    """Evaluate the model.

    Args:
        dataset: the dataset's dataset.json.
        sequence_length: of the phase, in tokens.
        output: file for cross_entropy in nats per token.
        max_tokens: to train on.
    """
    train = open_dataset(dataset, sequence_length, "train")
    held_out = open_dataset(dataset, sequence_length, "held_out")
    # An imported dataset may have no held-out samples: then there is no loss to compare with.
    baseline = {"cross_entropy": None, "tokens": 0}
    if len(held_out):
        baseline = trigram_cross_entropy(train, held_out, held_out_positions(held_out), max_tokens=max_tokens)
    write_json(output, baseline)


if __name__ == "__main__":
    run_command(evaluate, __doc__)
