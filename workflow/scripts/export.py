"""Write a finished phase's model in Hugging Face's layout, with its tokenizer.

example:
  python workflow/scripts/export.py --phase results/phases/0123456789abcdef \\
    --tokenizer results/datasets/0123456789abcdef/tokenizer.json \\
    --output my-bert
"""

from bertline.command_line import run_command
from bertline.training.publishing import export_phase

if __name__ == "__main__":
    run_command(export_phase, __doc__)
