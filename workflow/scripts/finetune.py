"""Fine-tune one task with one seed and score it. launch.py starts it in several processes.

example:
  python workflow/scripts/finetune.py --tokenizer dataset/tokenizer.json \\
    --recipe results/recipes/0123456789abcdef.json --threads 2 \\
    --initial-weights results/phases/0123456789abcdef/huggingface \\
    --output results/finetunings/0123456789abcdef

  python workflow/scripts/launch.py --processes-per-node 2 --threads 4 -- \\
    workflow/scripts/finetune.py --threads 4 \\
    --tokenizer dataset/tokenizer.json \\
    --recipe results/recipes/0123456789abcdef.json \\
    --output results/finetunings/0123456789abcdef
"""

import logging
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertline.command_line import limit_threads
from bertline.files import read_json
from bertline.finetuning.options import Options
from bertline.training.contract import is_rank_zero
from bertline.training.environment import set_environment
from bertline.training.rank_process import run_rank
from bertline.training.stop import StopSignal


def finetune(
    recipe: Path,
    tokenizer: Path,
    output: Path,
    *,
    initial_weights: Path | None = None,
    stop_after_minutes: float | None = None,
    options: Annotated[Options, Parameter(name="*")] = Options(),  # noqa: B008 - immutable
) -> None:
    """Fine-tune.

    Args:
        recipe: the file with everything that determines the result.
        tokenizer: tokenizer.json of the pretraining dataset.
        output: folder for scores, predictions, model, journal and recipe.
        initial_weights: directory with pretrained weights in Hugging Face's layout; omit for random weights.
        stop_after_minutes: save and exit with status 75 after this time; the same command resumes.
    """
    # Before PyTorch is imported, which takes seconds: a signal must not end the fine-tuning meanwhile.
    stop_signal = StopSignal(stop_after_minutes)
    set_environment()
    limit_threads(options.threads)
    if is_rank_zero():
        logging.info("recipe: %s", recipe.resolve())

    from bertline.finetuning import train

    train.finetune(
        read_json(recipe),
        tokenizer,
        output,
        initial_weights=initial_weights,
        options=options,
        stop_signal=stop_signal,
    )


if __name__ == "__main__":
    run_rank(finetune, __doc__)
