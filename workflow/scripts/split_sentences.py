"""Split the documents of one part into sentences, with an index of the documents.

example:
  python workflow/scripts/split_sentences.py \\
    --recipe results/recipes/wikipedia-01234567.json \\
    --documents documents/part-00000.jsonl.zst \\
    --sentences sentences/part-00000.txt.zst \\
    --index sentences/part-00000.index.npy
"""

from bertline.command_line import run_command
from bertline.corpus.sentences import split_sentences

if __name__ == "__main__":
    run_command(split_sentences, __doc__)
