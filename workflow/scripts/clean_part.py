"""Convert the extracted articles of one part of a dump to documents, and count those dropped.

example:
  python workflow/scripts/clean_part.py --extracted extracted/part-00000 \\
    --recipe results/recipes/wikipedia-01234567.json \\
    --documents part-00000.jsonl.zst --counts part-00000.counts.json
"""

from bertline.command_line import run_command
from bertline.corpus.clean import clean_part

if __name__ == "__main__":
    run_command(clean_part, __doc__)
