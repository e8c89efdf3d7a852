"""Evaluate a trigram model of a phase's training tokens on the phase's held-out tokens.

example:
  python workflow/scripts/trigram_baseline.py --sequence-length 128 \\
    --dataset results/runs/demo/dataset/dataset.json --output trigram.json
"""

from bertline.command_line import run_command
from bertline.encoding.trigram import write_trigram_baseline

if __name__ == "__main__":
    run_command(write_trigram_baseline, __doc__)
