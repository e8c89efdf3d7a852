"""Ranks whose weights drift apart, by unlike rounding: this is noticed, repaired and reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from synthetic_dataset import recipe, write_dataset
from torch import distributed
from training_processes import CONTEXT, free_port, set_environment, train

from bertline.console import one_line_errors
from bertline.files import sha256_of_file, write_json
from bertline.training.distributed.process_group import join_group
from bertline.training.distributed.replicas import make_equal
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.loop import train as train_here
from bertline.training.optimizers.kfac import Kfac
from bertline.training.options import Options
from bertline.training.stop import StopSignal

PRETRAIN = Path(__file__).parents[2] / "workflow/scripts/pretrain.py"
GIVEN = recipe(steps=6)
KFAC = recipe(
    steps=6,
    kfac={
        "method": "eigen", "decay": 0.95, "damping": 0.003, "kl_clip": 0.001, "factor_interval": 1,
        "inverse_interval": 2, "skip": [], "gradient_factor": "batch",
    },
)  # fmt: skip
SAID = "differs from rank 0's"


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def start_from_the_checkpoint_before(output: Path, step: int, copy: Path) -> None:
    """Copy a finished phase as it was when only the checkpoint of `step` was there."""
    shutil.copytree(output, copy)
    (copy / "recipe.json").unlink()
    for path in copy.glob("checkpoints/step-*"):
        if int(path.name.removeprefix("step-")) != step:
            shutil.rmtree(path)


def run_drifting_rank(rank: int, port: int, given: Any, card: Path, output: Path, options: dict[str, Any]) -> None:
    """Train as one of two ranks; in every step rank 1 rounds its weights and factors otherwise."""
    set_environment(rank, 2, port)
    start_step, precondition = GradientAccumulator.start_step, Kfac.precondition

    def drift(self: GradientAccumulator, step: int) -> Any:
        with torch.no_grad():
            for weight in self._model.parameters() if rank == 1 else ():
                weight.mul_(1 + 1e-6)
        return start_step(self, step)

    def drift_of_factors(self: Kfac, *arguments: Any, **named: Any) -> Any:
        for factor in self.factors().values() if rank == 1 else ():
            factor.mul_(1 + 1e-6)
        return precondition(self, *arguments, **named)

    GradientAccumulator.start_step, Kfac.precondition = drift, drift_of_factors
    with output.with_suffix(".log").open("a") as file:
        os.dup2(file.fileno(), 2)
    with one_line_errors():
        train_here(
            given, card, output, initial_weights=None,
            options=Options(threads=2, keep_every=3, **options), stop_signal=StopSignal(),
        )  # fmt: skip


def train_drifting(given: Any, card: Path, output: Path, **options: Any) -> str:
    """Train on two ranks that drift apart; returns the log."""
    port = free_port()
    arguments = port, given, card, output, options
    processes = [CONTEXT.Process(target=run_drifting_rank, args=(rank, *arguments)) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    log = output.with_suffix(".log").read_text()
    assert [process.exitcode for process in processes] == [0, 0], log
    return log


@pytest.mark.parametrize(("given", "sharded_optimizer"), [(GIVEN, False), (KFAC, False), (KFAC, True)])
def test_ranks_that_drift_apart_are_made_equal_at_checkpoints_and_reported_once(
    card: Path, tmp_path: Path, given: Any, sharded_optimizer: bool
) -> None:
    """The test of equality: it ends with the same bits whether it stopped at a checkpoint or not."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = {"checkpoint_every": 3, "sharded_optimizer": sharded_optimizer}
    log = train_drifting(given, card, whole, **options)
    assert log.count(f"what rank 1 computed {SAID}") == 1
    start_from_the_checkpoint_before(whole, 3, parts)
    assert "resuming" in train_drifting(given, card, parts, **options)
    assert sha256_of_file(parts / "model.safetensors") == sha256_of_file(whole / "model.safetensors")


def test_like_ranks_report_nothing(card: Path, tmp_path: Path) -> None:
    assert SAID not in train(GIVEN, card, tmp_path / "phase", ranks=2, checkpoint_every=1).log.read_text()


def compare_on_rank(rank: int, port: int, folder: Path) -> None:
    """One rank's tensor is another one in its last bit; or two of them, whose sum is the same."""
    set_environment(rank, 3, port)
    group = join_group(3)
    for number, nudges in enumerate(({}, {1: (0,)}, {2: (5, 7)}, {0: (3,)})):
        tensors = {"a": torch.arange(1.0, 9.0), "step": torch.tensor(3), "b": torch.ones(2, 2).bfloat16()}
        for sign, place in zip((1, -1), nudges.get(rank, ()), strict=False):
            tensors["a"].view(torch.int32)[place] += sign
        different = make_equal(tensors, group)
        (folder / f"{number}-{rank}").write_text(f"{different} {tensors['a'].view(torch.int32).tolist()}")
    distributed.destroy_process_group()


def test_a_single_bit_of_one_rank_is_noticed_and_all_get_rank_0s(tmp_path: Path) -> None:
    port = free_port()
    processes = [CONTEXT.Process(target=compare_on_rank, args=(rank, port, tmp_path)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    same = torch.arange(1.0, 9.0).view(torch.int32).tolist()
    of_rank_0 = [number + (place == 3) for place, number in enumerate(same)]
    for number, expected in enumerate((f"[] {same}", f"[1] {same}", f"[2] {same}", f"[1, 2] {of_rank_0}")):
        assert [(tmp_path / f"{number}-{rank}").read_text() for rank in range(3)] == [expected] * 3


@pytest.mark.slow
@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="this processor has one set only")
def test_ranks_with_unlike_instruction_sets_are_made_equal_at_checkpoints(card: Path, tmp_path: Path) -> None:
    write_json(tmp_path / "recipe.json", recipe(steps=30))

    def train_unlike(output: Path) -> str:
        port = free_port()
        command = [
            sys.executable, PRETRAIN, "--recipe", tmp_path / "recipe.json", "--dataset", card, "--output", output,
            "--threads", "2", "--checkpoint-every", "15", "--keep-every", "15",
        ]  # fmt: skip
        torchrun = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes = [
            subprocess.Popen(
                list(map(str, command)),
                env={**os.environ, **torchrun, "RANK": rank, "LOCAL_RANK": rank, "ATEN_CPU_CAPABILITY": instructions},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, instructions in (("0", ""), ("1", "default"))
        ]
        logs = [process.communicate(timeout=100)[1] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], logs
        return logs[0]

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train_unlike(whole).count(SAID) == 1
    start_from_the_checkpoint_before(whole, 15, parts)
    assert "resuming" in train_unlike(parts)
    assert sha256_of_file(parts / "model.safetensors") == sha256_of_file(whole / "model.safetensors")
