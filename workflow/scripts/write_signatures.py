"""Write the signatures of a part's documents, which serve to find duplicates.

example:
  python workflow/scripts/write_signatures.py \\
    --documents part-00000.jsonl.zst \\
    --counts part-00000.counts.json --output signatures/part-00000.npy
"""

from bertline.command_line import run_command
from bertline.corpus.signatures import write_signatures

if __name__ == "__main__":
    run_command(write_signatures, __doc__)
