"""Zip predictions for GLUE's test sets for its server, from each task's fine-tuning with the best dev score.

example:
  python workflow/scripts/glue_submission.py \\
    results/recipes/0123456789abcdef-submission.json \\
    --output submission.zip
"""

from bertline.command_line import run_command
from bertline.finetuning.submissions import zip_submission

if __name__ == "__main__":
    run_command(zip_submission, __doc__)
