"""Collect the 13-word sequences of evaluation sets, which documents should not contain.

example:
  python workflow/scripts/collect_ngrams.py \\
    --recipe results/recipes/0123456789abcdef.json --output ngrams.npz
"""

from bertline.command_line import run_command
from bertline.corpus.overlap import collect_ngrams

if __name__ == "__main__":
    run_command(collect_ngrams, __doc__)
