"""Find the documents of a part that contain text of the evaluation sets.

example:
  python workflow/scripts/find_overlap.py --documents part-00000.jsonl.zst \\
    --ngrams ngrams.npz --output overlap/part-00000.json
"""

from bertline.command_line import run_command
from bertline.corpus.overlap import find_overlap

if __name__ == "__main__":
    run_command(find_overlap, __doc__)
