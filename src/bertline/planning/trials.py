"""Trials: some steps of a recipe, computed on this machine by the processes that the graph would start."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from bertline.console import BertlineError, handle_signals
from bertline.files import CHECKOUT, Json, read_json, write_json
from bertline.results import paths

SCRIPTS = CHECKOUT / "workflow/scripts"
ENDING = (signal.SIGTERM, signal.SIGHUP)
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # the launcher, and one of its ranks


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Exit on SIGTERM, as at the end of a job, and on SIGHUP, a closed terminal, like on Ctrl-C: the trial ends, too.

    Further signals are ignored until the end of the block: they would interrupt what saves.
    """

    def end(number: int, _: object) -> NoReturn:
        for other in ENDING:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in ENDING}
    handle_signals(ENDING, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_trial(recipe: Json, *, processes: int, threads: int, options: Sequence[str], seconds: float = 3.0) -> Json:
    """Time steps of a phase's or a fine-tuning's recipe on random tokens.

    Args:
        recipe: its network needs its `vocab_size`.
        processes: number to start.
        threads: of all of them together.
        options: more arguments of pretrain.py, or finetune.py.
        seconds: of the timed steps.

    Returns what `bertline.training.trial.timed` and `speed_of_steps` do and `fits`, or `{"fits": False}` if the memory
    is too small, on which the kernel kills a rank. Raises BertlineError with the last line of a failed trial.
    """
    script = SCRIPTS / ("time_finetuning.py" if "task" in recipe else "time_steps.py")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a rank that is ending may write to it
        given, measured = Path(folder, paths.RECIPE), Path(folder, "speed.json")
        write_json(given, recipe)
        shared = ["--threads", str(threads)]
        placement = ["--processes-per-node", str(processes), *shared, "--no-deadline"]
        launch = [str(SCRIPTS / "launch.py"), *placement, "--", str(script)]
        arguments = ["--recipe", str(given), "--output", str(measured), "--seconds", str(seconds), *shared, *options]
        command = [sys.executable, *launch, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if measured.exists():
            return dict(read_json(measured))
        if done.returncode in KILLED:
            return {"fits": False}
        last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        raise BertlineError(f"a trial of some steps failed: {last.removeprefix('error: ')}")
