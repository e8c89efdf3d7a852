"""Train a Punkt model for sentence splitting on a sample of a corpus.

example:
  python workflow/scripts/train_punkt.py \\
    --recipe results/recipes/wikipedia-01234567.json --output punkt
"""

from bertline.command_line import run_command
from bertline.corpus.sentences import train_punkt_on_corpus

if __name__ == "__main__":
    run_command(train_punkt_on_corpus, __doc__)
