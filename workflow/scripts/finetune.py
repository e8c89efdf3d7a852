"""Fine-tune one task with one seed and score it on the dev set.

example:
  python workflow/scripts/finetune.py --tokenizer dataset/tokenizer.json \\
    --recipe results/recipes/0123456789abcdef.json --threads 2 \\
    --initial-weights results/phases/0123456789abcdef/huggingface \\
    --output results/finetunings/0123456789abcdef
"""

import logging
from pathlib import Path

from bertline.command_line import limit_threads, run_command
from bertline.files import read_json


def finetune(
    recipe: Path,
    tokenizer: Path,
    output: Path,
    *,
    initial_weights: Path | None = None,
    checkpoint_minutes: float = 10.0,
    threads: int | None = None,
) -> None:
    """Fine-tune.

    Args:
        recipe: the file with everything that determines the result.
        tokenizer: tokenizer.json of the pretraining dataset.
        output: folder for scores, predictions, journal and recipe.
        initial_weights: directory with pretrained weights in Hugging Face's layout; omit for random weights.
        checkpoint_minutes: between two checkpoints.
        threads: of the CPU (default: all).
    """
    limit_threads(threads)
    logging.info("recipe: %s", recipe.resolve())

    from bertline.finetuning import train

    train.finetune(
        read_json(recipe),
        tokenizer,
        output,
        initial_weights=initial_weights,
        threads=threads,
        checkpoint_minutes=checkpoint_minutes,
    )


if __name__ == "__main__":
    run_command(finetune, __doc__)
