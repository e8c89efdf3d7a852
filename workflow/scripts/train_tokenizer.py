"""Train a tokenizer (WordPiece, byte-level BPE or Unigram) on a sample of the training shards.

example:
  python workflow/scripts/train_tokenizer.py \\
    --recipe results/recipes/0123456789abcdef.json --output tokenizer.json
"""

from bertline.command_line import run_command
from bertline.encoding.vocabulary import train_tokenizer

if __name__ == "__main__":
    run_command(train_tokenizer, __doc__)
