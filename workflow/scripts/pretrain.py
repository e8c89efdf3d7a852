"""Train one phase. Started through launch.py, which sets torchrun's environment.

example:
  python workflow/scripts/launch.py --processes-per-node 2 --threads 4 -- \\
    workflow/scripts/pretrain.py --threads 4 \\
    --recipe results/recipes/0123456789abcdef.json \\
    --dataset results/datasets/0123456789abcdef/dataset.json \\
    --output results/phases/0123456789abcdef
"""

import logging
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated, NoReturn

from cyclopts import Parameter

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.files import read_text
from bertline.training.options import Options
from bertline.training.stop import FAILED, LOST, StopSignal


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
    if options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

    from bertline.training.loop import train
    from bertline.training.recipe import parse_recipe

    try:
        settings = parse_recipe(read_text(recipe))
        if os.environ.get("RANK", "0") == "0":
            logging.info("recipe: %s", recipe.resolve())
        train(settings, dataset, output, initial_weights=initial_weights, options=options, stop_signal=stop_signal)
    except BertlineError:
        # All ranks find the same problem: rank 0 reports it, and the launcher then stops the others.
        if os.environ.get("RANK", "0") != "0":
            time.sleep(5)
        raise


def run_and_leave() -> NoReturn:
    """Run the command and end the process without cleanup, whatever the outcome: all files are written by then.

    Destroying gloo's threads occasionally aborts a process. With NCCL, a failed rank could wait for ever for a kernel
    that waits for the other ranks, so that the launcher would not notice the failure.
    """
    status = 0
    try:
        run_command(pretrain, __doc__)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        status = ended.code if isinstance(ended.code, int) else FAILED * (ended.code is not None)
    except KeyboardInterrupt:
        status = 130
    except BaseException as error:
        from bertline.training.distributed.process_group import is_lost_connection

        status = LOST if is_lost_connection(error) else FAILED
        # Only the rank that failed reports why; the launcher reports for one that cannot.
        if status == FAILED:
            traceback.print_exc()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run_and_leave()
