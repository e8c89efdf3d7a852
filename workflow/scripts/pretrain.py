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
from bertline.training.stop import FAILED, LOST, StopSignal

EXAMPLE = """example:
  python workflow/scripts/launch.py --nodes 1 --processes-per-node 2 workflow/scripts/pretrain.py \\
    --recipe "$(cat recipe.json)" --dataset results/datasets/0123456789abcdef/dataset.json \\
    --output results/phases/0123456789abcdef --threads 4"""


def tokens_or_auto(text: str) -> int | None:
    """None for auto."""
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"given '{text}', allowed are a number of tokens and auto")
    return None if text == "auto" else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=HelpFormatter)
    parser.add_argument("--recipe", required=True, help="everything that alters the result, as JSON")
    parser.add_argument("--dataset", type=Path, required=True, help="the dataset's dataset.json")
    parser.add_argument("--output", type=Path, required=True, help="the phase's folder")
    parser.add_argument(
        "--initial-weights", type=Path, nargs="?", help="a phase's folder or a Hugging Face directory, if it has one"
    )
    parser.add_argument("--threads", type=int, default=1, help="of this node, divided among its processes")
    parser.add_argument(
        "--micro-batch-tokens",
        type=tokens_or_auto,
        default=16384,
        metavar="TOKENS|auto",
        help="computed at once by a process; auto: as many as a GPU's memory holds, or as are fastest on a CPU",
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile the network with torch.compile: takes a minute at the start, and every step is faster",
    )
    parser.add_argument(
        "--cuda-graphs", action="store_true", help="record the compiled program once and replay it; a GPU only"
    )
    parser.add_argument(
        "--compile-optimizer", action="store_true", help="compile LAMB's step; the others gain nothing by it"
    )
    parser.add_argument(
        "--shard-optimizer",
        action="store_true",
        help="each process moves a part of the parameters and keeps their moments, instead of all of them",
    )
    parser.add_argument(
        "--shard-weights",
        action="store_true",
        help="each process keeps a part of weights, gradients and moments (FSDP2): for what does not fit otherwise",
    )
    parser.add_argument(
        "--recompute", action="store_true", help="layers in the backward pass: less memory for a third more work"
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="only kernels that give the same bits in every run: on a GPU slower, on a CPU without effect",
    )
    parser.add_argument(
        "--division",
        default="equal",
        help="of a batch among the ranks: equal; measured, for unlike GPUs; or a share for each, as in 3,1,1. "
        "A resumed phase keeps what it measured, unless told measured-again or other shares",
    )
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS", help="a point of the journal")
    parser.add_argument("--evaluate-every", type=int, default=200, metavar="STEPS", help="0: only first and last")
    parser.add_argument("--checkpoint-every", type=int, default=0, metavar="STEPS", help="0: only by the clock")
    parser.add_argument("--checkpoint-every-minutes", type=float, default=15.0, metavar="MINUTES", help="by the clock")
    parser.add_argument("--keep-checkpoints", type=int, default=2, metavar="NUMBER", help="of the newest")
    parser.add_argument(
        "--keep-every", type=int, default=0, metavar="STEPS", help="keep the checkpoints of these steps"
    )
    parser.add_argument(
        "--keep-best", action="store_true", help="keep the checkpoint with the lowest held-out MLM loss, too"
    )
    parser.add_argument(
        "--profile", action="store_true", help="write where the time of steps 7 to 11 goes to checkpoints/profile/"
    )
    parser.add_argument(
        "--stop-after-minutes",
        type=float,
        metavar="MINUTES",
        help="save and exit with status 75 after this time; the same command goes on",
    )
    parser.add_argument(
        "--when-locked",
        choices=["wait", "stop"],
        default="wait",
        help="what to do while another trainer works on this phase",
    )
    given = parser.parse_args()
    # Before PyTorch is imported: a signal in those seconds must not end the trainer.
    stop_signal = StopSignal(given.stop_after_minutes)
    if given.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

    from bertline.training.loop import train
    from bertline.training.options import Options
    from bertline.training.recipe import parse_recipe

    options = Options(
        threads=given.threads,
        micro_batch_tokens=given.micro_batch_tokens,
        compiled=given.compile,
        cuda_graphs=given.cuda_graphs,
        compiled_optimizer=given.compile_optimizer,
        sharded_optimizer=given.shard_optimizer,
        sharded_weights=given.shard_weights,
        recompute=given.recompute,
        deterministic=given.deterministic,
        division=given.division,
        log_every=given.log_every,
        evaluate_every=given.evaluate_every,
        checkpoint_every=given.checkpoint_every,
        checkpoint_every_minutes=given.checkpoint_every_minutes,
        keep_checkpoints=given.keep_checkpoints,
        keep_every=given.keep_every,
        keep_best=given.keep_best,
        profile=given.profile,
        wait_for_lock=given.when_locked == "wait",
    )
    try:
        train(
            parse_recipe(given.recipe),
            given.dataset,
            given.output,
            initial_weights=given.initial_weights,
            options=options,
            stop_signal=stop_signal,
        )
    except BertlineError:
        # All ranks find the same fault: rank 0 says it, and the launcher then stops the others.
        if os.environ.get("RANK", "0") != "0":
            time.sleep(5)
        raise


def run_and_leave() -> NoReturn:
    """Run `main` and end the process at once, whatever came of it: everything is written by then.

    Taking gloo's threads apart aborts a process once in a while. With NCCL a rank that failed could wait for ever for a
    kernel that waits for the other ranks, and the launcher would not learn that it failed.
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
        # The rank that failed says why, and its words shall stand alone; the launcher speaks for one that cannot.
        if status == FAILED:
            traceback.print_exc()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run_and_leave()
