"""Split the documents of one part into sentences, with an index of the documents.

example:
  python workflow/scripts/split_sentences.py \\
    --recipe results/recipes/wikipedia-01234567.json \\
    --documents documents/part-00000.jsonl.zst \\
    --sentences sentences/part-00000.txt.zst \\
    --index sentences/part-00000.index.npy
"""

from pathlib import Path

from bertline.console import run_command
from bertline.corpus.sentences import splitter_of
from bertline.corpus.shards import split_part
from bertline.files import read_json


def split(recipe: Path, documents: Path, sentences: Path, index: Path) -> None:
    """Split a part.

    Args:
        recipe: of the corpus.
        documents: a .jsonl.zst.
        sentences: the .txt.zst to write.
        index: the .index.npy to write.
    """
    corpus = read_json(recipe)
    split_part(documents, corpus["name"], splitter_of(corpus), sentences, index)


if __name__ == "__main__":
    run_command(split, __doc__)
