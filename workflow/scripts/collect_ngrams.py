"""Collect the 13-word sequences of evaluation sets, which documents should not contain.

example:
  python workflow/scripts/collect_ngrams.py \\
    --recipe results/recipes/0123456789abcdef.json --output ngrams.npz
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.corpus.overlap import collect_ngrams
from bertline.files import Recipe


def collect(recipe: Recipe, output: Path) -> None:
    """Collect the sequences of all sets.

    Args:
        recipe: a JSON file with `sets`: the name of each evaluation set, and its .json or tab-separated files.
        output: the .npz to write.
    """
    collect_ngrams(recipe["sets"], output)


if __name__ == "__main__":
    run_command(collect, __doc__)
