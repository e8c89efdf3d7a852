"""List the documents to leave out of a dataset: duplicates of earlier ones, and overlaps with evaluation sets.

example:
  python workflow/scripts/list_removed.py \\
    --recipe results/recipes/0123456789abcdef.json --output removed.jsonl.zst
"""

from bertline.command_line import run_command
from bertline.corpus.removal import list_removed

if __name__ == "__main__":
    run_command(list_removed, __doc__)
