"""Trainers as processes of their own that start at once, because a fork server has already imported PyTorch."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fork_server import forking_with

# What a rank calls, by package.
FUNCTIONS = {"training": ("loop", "train"), "finetuning": ("train", "finetune")}
# Optimizers, FSDP, compilation and metrics import the others, which takes longer than most of these trainings.
CONTEXT = forking_with(
    "bertline.training.loop",
    "bertline.finetuning.train",
    "evaluate",
    "torch._dynamo",
    "torch.distributed.fsdp",
    # It asks for the GPUs, and after that a forked process can use none.
    *(() if torch.cuda.is_available() else ("torch._inductor.compile_fx",)),
)


def train(recipe: dict[str, Any], card: Path, output: Path, **options: Any) -> Trainer:
    """Train to the end."""
    trainer = Trainer(recipe, card, output, **options)
    assert trainer.finish() == 0, trainer.log.read_text()
    return trainer


def train_killed_five_times(recipe: dict[str, Any], card: Path, output: Path, **options: Any) -> None:
    """Train with a checkpoint at every step, killed five times after newer ones, then to the end."""
    for _ in range(5):
        newest = newest_step(output / "checkpoints")
        trainer = Trainer(recipe, card, output, checkpoint_every=1, **options)
        assert trainer.kill_when(lambda newest=newest: newest_step(output / "checkpoints") > newest), "too few steps"
    resumed = train(recipe, card, output, checkpoint_every=1, **options)
    assert "resuming" in resumed.log.read_text()


def step_of(checkpoint: Path) -> int:
    return int("".join(filter(str.isdigit, checkpoint.name)))


def newest_step(checkpoints: Path) -> int:
    """The step of the newest complete checkpoint; 0 if there is none."""
    return max(map(step_of, checkpoints.glob("step-*")), default=0)


def journal(output: Path) -> list[dict[str, Any]]:
    """The points of a finished phase."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def set_environment(rank: int, ranks: int, port: int) -> None:
    """What torchrun sets."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in names.items()}})


def run_rank(
    package: str,
    rank: int,
    ranks: int,
    port: int,
    log: Path,
    recipe: dict[str, Any],
    data: Path,
    output: Path,
    initial_weights: Path | None,
    options: dict[str, Any],
) -> None:
    """Train as rank `rank`, with messages in `log`; `data` is the dataset's card, or the tokenizer."""
    from bertline.console import one_line_errors
    from bertline.training.stop import StopSignal

    module, name = FUNCTIONS[package]
    run = getattr(importlib.import_module(f"bertline.{package}.{module}"), name)
    chosen = importlib.import_module(f"bertline.{package}.options").Options
    set_environment(rank, ranks, port)
    os.environ.update(options.pop("environment", {}))
    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    stop_signal = StopSignal(options.pop("stop_after_minutes", None))
    with one_line_errors():
        run(
            recipe,
            data,
            output,
            initial_weights=initial_weights,
            options=chosen(**options),
            stop_signal=stop_signal,
        )


class Trainer:
    """The ranks of one phase in training, in a process group of their own.

    Of `options`, `environment` and `stop_after_minutes` are for the processes, the others are the trainer's.
    """

    package = "training"
    run_rank = staticmethod(run_rank)

    def __init__(
        self,
        recipe: dict[str, Any],
        card: Path,
        output: Path,
        *,
        ranks: int = 1,
        initial_weights: Path | None = None,
        **options: Any,
    ) -> None:
        port = free_port()
        self.log = output.with_suffix(".log")
        self.log.touch()
        given = (recipe, card, output, initial_weights, {"threads": ranks, **options})
        self._processes = [
            CONTEXT.Process(target=self.run_rank, args=(self.package, rank, ranks, port, self.log, *given), daemon=True)
            for rank in range(ranks)
        ]
        for process in self._processes:
            process.start()

    def finish(self) -> int:
        """Wait; returns rank 0's exit status."""
        for process in self._processes:
            process.join(300)  # the first program that is compiled takes minutes on a busy machine
            assert process.exitcode is not None, f"still running:\n{self.log.read_text()}"
        return self._processes[0].exitcode

    def kill_when(self, ready: Callable[[], bool], *, seconds: float = 240.0) -> bool:
        """SIGKILL all ranks as soon as `ready`; returns whether they were still running."""
        running = self.wait_until(ready, seconds=seconds)
        self.signal(signal.SIGKILL)
        for process in self._processes:
            process.join(240)
        return running

    def wait_until(self, ready: Callable[[], bool], *, seconds: float = 240.0) -> bool:
        """Wait until `ready` or an end; returns whether all ranks are still running."""
        deadline = time.monotonic() + seconds
        while self.running() and not ready():
            assert time.monotonic() < deadline, f"never ready:\n{self.log.read_text()}"
            time.sleep(0.001)
        return self.running()

    def running(self) -> bool:
        return all(process.is_alive() for process in self._processes)

    def signal(self, number: int) -> None:
        for process in self._processes:
            if process.is_alive():
                os.kill(process.pid, number)


class FineTuning(Trainer):
    """The ranks of one fine-tuning; the tokenizer takes the place of the dataset's card."""

    package = "finetuning"
