"""Train one phase. Started through launch.py, which sets torchrun's environment."""

import argparse
import logging
import os
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from bertline.console import BertlineError, HelpFormatter, run_command
from bertline.files import read_text
from bertline.training.options import add_options, given_options
from bertline.training.stop import FAILED, LOST, StopSignal

EXAMPLE = """example:
  python workflow/scripts/launch.py --nodes 1 --processes-per-node 2 workflow/scripts/pretrain.py \\
    --recipe results/recipes/0123456789abcdef.json --dataset results/datasets/0123456789abcdef/dataset.json \\
    --output results/phases/0123456789abcdef --threads 4"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument(
        "--recipe", type=Path, required=True, metavar="JSON", help="the file with everything that determines the result"
    )
    parser.add_argument("--dataset", type=Path, required=True, help="the dataset's dataset.json")
    parser.add_argument("--output", type=Path, required=True, help="the phase's folder")
    parser.add_argument(
        "--initial-weights", type=Path, nargs="?", help="a phase's folder or a Hugging Face directory, if it has one"
    )
    add_options(parser)
    parser.add_argument(
        "--stop-after-minutes",
        type=float,
        metavar="MINUTES",
        help="save and exit with status 75 after this time; the same command resumes",
    )
    given = parser.parse_args()
    # Before PyTorch is imported, which takes seconds: a signal must not end the trainer meanwhile.
    stop_signal = StopSignal(given.stop_after_minutes)
    if given.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

    from bertline.training.loop import train
    from bertline.training.recipe import parse_recipe

    try:
        recipe = parse_recipe(read_text(given.recipe))
        if os.environ.get("RANK", "0") == "0":
            logging.info("recipe: %s", given.recipe.resolve())
        train(
            recipe,
            given.dataset,
            given.output,
            initial_weights=given.initial_weights,
            options=given_options(given),
            stop_signal=stop_signal,
        )
    except BertlineError:
        # All ranks find the same problem: rank 0 reports it, and the launcher then stops the others.
        if os.environ.get("RANK", "0") != "0":
            time.sleep(5)
        raise


def run_and_leave() -> NoReturn:
    """Run `main` and end the process without cleanup, whatever the outcome: all files are written by then.

    Destroying gloo's threads occasionally aborts a process. With NCCL, a failed rank could wait for ever for a kernel
    that waits for the other ranks, so that the launcher would not notice the failure.
    """
    status = 0
    try:
        run_command(main)
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
