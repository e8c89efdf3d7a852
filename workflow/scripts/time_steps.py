"""Time the training steps of a recipe on random tokens. launch.py starts it, as it does pretrain.py.

example:
  python workflow/scripts/launch.py --processes-per-node 2 --threads 2 \\
    --no-deadline -- \\
    workflow/scripts/time_steps.py --recipe recipe.json --threads 2 \\
    --output speed.json
"""

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertline.training.environment import set_environment
from bertline.training.options import Options
from bertline.training.rank_process import run_rank


def time_recipe(
    recipe: Path,
    output: Path,
    *,
    seconds: float = 3.0,
    options: Annotated[Options, Parameter(name="*")] = Options(),  # noqa: B008 - immutable
) -> None:
    """Time steps.

    Args:
        recipe: that of a phase, with the vocab_size of its network.
        output: the JSON file to write: step_seconds, tokens_per_second, start_seconds, device, memory_bytes and others.
        seconds: of the timed steps.
    """
    set_environment(compiled=options.compiled, deterministic=options.deterministic)

    from bertline.training.recipe import read_recipe
    from bertline.training.trial import time_steps, write_speed

    write_speed(output, partial(time_steps, read_recipe(recipe), seconds=seconds, options=options))


if __name__ == "__main__":
    run_rank(time_recipe, __doc__)
