"""Time the steps of a fine-tuning's recipe on random tokens. launch.py starts it, as it does finetune.py.

example:
  python workflow/scripts/launch.py --processes-per-node 2 --threads 2 \\
    --no-deadline -- \\
    workflow/scripts/time_finetuning.py --recipe recipe.json --threads 2 \\
    --output speed.json
"""

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertline.files import read_json
from bertline.finetuning.options import Options
from bertline.training.environment import set_environment
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
        recipe: that of a fine-tuning, with the vocab_size of its network.
        output: the JSON file to write: step_seconds, tokens_per_second, start_seconds, device, memory_bytes and others.
        seconds: of the timed steps.
    """
    set_environment()

    from bertline.finetuning.trial import time_steps
    from bertline.training.trial import write_speed

    write_speed(output, partial(time_steps, read_json(recipe), seconds=seconds, options=options))


if __name__ == "__main__":
    run_rank(time_recipe, __doc__)
