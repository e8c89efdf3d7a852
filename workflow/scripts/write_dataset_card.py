"""Write dataset.json: a dataset's sources, the documents dropped, and its files with their digests.

example:
  python workflow/scripts/write_dataset_card.py \\
    --recipe results/recipes/0123456789abcdef.json \\
    --directory results/datasets/0123456789abcdef
"""

from bertline.command_line import run_command
from bertline.encoding.card import write_dataset_card

if __name__ == "__main__":
    run_command(write_dataset_card, __doc__)
