"""Zip predictions for GLUE's test sets for its server, from each task's fine-tuning with the best dev score.

example:
  python workflow/scripts/glue_submission.py results/finetunings/*/metrics.json \\
    --output submission.zip
"""

from pathlib import Path

from bertline.command_line import run_command
from bertline.finetuning.submissions import choose_submissions, zip_submission


def submit(metrics: list[Path], *, output: Path) -> None:
    """Zip the predictions.

    Args:
        metrics: metrics.json of each fine-tuning with predict_test.
        output: the zip to write.
    """
    zip_submission(choose_submissions([path.parent for path in metrics]), output)


if __name__ == "__main__":
    run_command(submit, __doc__)
