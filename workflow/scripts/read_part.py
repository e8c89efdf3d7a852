"""Convert a part of a corpus to documents, and count those dropped: texts, archives, tables, WET files, datasets.

example:
  python workflow/scripts/read_part.py --part part-00000 \\
    --recipe results/recipes/books-01234567.json \\
    --documents part-00000.jsonl.zst --counts part-00000.counts.json
"""

from bertline.command_line import run_command
from bertline.corpus.sources import read_part

if __name__ == "__main__":
    run_command(read_part, __doc__)
