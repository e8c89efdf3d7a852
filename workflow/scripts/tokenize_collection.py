"""Tokenize a collection of passages, or TFRecord files of examples, for ranking.

example:
  python workflow/scripts/tokenize_collection.py \\
    --recipe results/recipes/0123456789abcdef.json \\
    --tokenizer dataset/tokenizer.json --output collections/marco --threads 2
"""

from pathlib import Path

from bertline.command_line import Threads, limit_threads, run_command
from bertline.files import Recipe


def tokenize_collection(recipe: Recipe, tokenizer: Path, output: Path, *, threads: Threads = None) -> None:
    """Tokenize a collection.

    Args:
        recipe: the file that names the source and its kind.
        tokenizer: the tokenizer.json, or the vocab.txt, of the network.
        output: the folder to write.
        threads: of the CPU (default: all).
    """
    limit_threads(threads)

    from bertline.finetuning.ranking import collection

    collection.tokenize_collection(recipe, tokenizer, output)


if __name__ == "__main__":
    run_command(tokenize_collection, __doc__)
