"""Train a Punkt model for sentence splitting on a sample of a corpus.

example:
  python workflow/scripts/train_punkt.py \\
    --recipe results/recipes/wikipedia-01234567.json --output punkt
"""

from pathlib import Path

from bertline.console import run_command
from bertline.corpus.sentences import train_punkt
from bertline.corpus.sources import files_of
from bertline.files import read_json
from bertline.results import paths


def train(recipe: Path, output: Path) -> None:
    """Train a model on the documents of a corpus.

    Args:
        recipe: of the corpus.
        output: the folder to write.
    """
    corpus = read_json(recipe)
    train_punkt(files_of(corpus, paths.DOCUMENTS), files_of(corpus, paths.COUNTS), output)


if __name__ == "__main__":
    run_command(train, __doc__)
