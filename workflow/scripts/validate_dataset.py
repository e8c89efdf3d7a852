"""Check a whole dataset: its card, its tokenizer, and all digests and layout rules of its files.

example:
  python workflow/scripts/validate_dataset.py results/runs/demo/dataset/dataset.json
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.encoding.card import validate_dataset


def validate(card: Path) -> None:
    """Check a dataset.

    Args:
        card: the dataset's dataset.json.
    """
    print(validate_dataset(card))


if __name__ == "__main__":
    run_command(validate, __doc__)
