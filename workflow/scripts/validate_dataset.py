"""Check a whole dataset: its card, its tokenizer, and all digests and layout rules of its files.

example:
  python workflow/scripts/validate_dataset.py \\
    results/runs/demo/dataset/dataset.json
"""

from bertline.command_line import run_command
from bertline.encoding.validation import validate_dataset

if __name__ == "__main__":
    run_command(validate_dataset, __doc__)
