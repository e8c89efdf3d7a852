"""Train one phase. launch.py starts it, and sets torchrun's environment.

example:
  python workflow/scripts/launch.py --processes-per-node 2 --threads 4 -- \\
    workflow/scripts/pretrain.py --threads 4 \\
    --recipe results/recipes/0123456789abcdef.json \\
    --dataset results/datasets/0123456789abcdef/dataset.json \\
    --output results/phases/0123456789abcdef
"""

import logging
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertline.training.contract import is_rank_zero
from bertline.training.environment import set_environment
from bertline.training.options import Options
from bertline.training.rank_process import run_rank
from bertline.training.stop import StopSignal


def pretrain(
    recipe: Path,
    dataset: Path,
    output: Path,
    *,
    initial_weights: Path | None = None,
    stop_after_minutes: float | None = None,
    options: Annotated[Options, Parameter(name="*")] = Options(),  # noqa: B008 - immutable
) -> None:
    """Train a phase.

    Args:
        recipe: the file with everything that determines the result.
        dataset: the dataset's dataset.json.
        output: the phase's folder.
        initial_weights: a phase's folder or a Hugging Face directory, if it has one.
        stop_after_minutes: save and exit with status 75 after this time; the same command resumes.
    """
    # Before PyTorch is imported, which takes seconds: a signal must not end the trainer meanwhile.
    stop_signal = StopSignal(stop_after_minutes)
    set_environment(compiled=options.compiled, deterministic=options.deterministic)

    from bertline.training.loop import train
    from bertline.training.recipe import read_recipe

    content = read_recipe(recipe)
    if is_rank_zero():
        logging.info("recipe: %s", recipe.resolve())
    train(content, dataset, output, initial_weights=initial_weights, options=options, stop_signal=stop_signal)


if __name__ == "__main__":
    run_rank(pretrain, __doc__)
