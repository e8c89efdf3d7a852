"""A training that is asked to stop inside a step: the dropped work, the saved state, and the final weights."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic_dataset import recipe, write_dataset
from torch.distributed import DistNetworkError
from training_processes import CONTEXT, Trainer, free_port, journal, set_environment, train

from bertline.console import one_line_errors
from bertline.files import sha256_of_file
from bertline.training import phase
from bertline.training.contract import FAILED, LOST
from bertline.training.data.collation import MicroBatch
from bertline.training.distributed import stop_request
from bertline.training.distributed.process_group import is_lost_connection
from bertline.training.evaluation import evaluate
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.loop import train as train_here
from bertline.training.options import Options
from bertline.training.stop import StopSignal

GIVEN = recipe(steps=4)  # 16 samples a step
FINISHED = 2  # steps before the one that is dropped
OPTIONS: dict[str, Any] = {"micro_batch_tokens": 32}  # one sample, or a few short ones


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def run_rank(
    rank: int,
    ranks: int,
    asked: int,
    way: str,
    port: int,
    given: dict[str, Any],
    card: Path,
    folder: Path,
    options: dict[str, Any],
) -> None:
    """Train in `folder`; the rank `asked` is asked to stop after its third micro-batch of step 3.

    Or, if `way` is "evaluation", after its first micro-batch of the evaluation before that step.
    """
    set_environment(rank, ranks, port)
    stop_request.SECONDS = 0.0
    stop_signal, computed = StopSignal(), 0
    start_step, micro_batches = GradientAccumulator.start_step, GradientAccumulator.micro_batches
    batch_number = -1

    def count_step(self: GradientAccumulator, step: int) -> Any:
        nonlocal batch_number
        batch_number = step
        return start_step(self, step)

    def ask(self: GradientAccumulator) -> Iterator[MicroBatch]:
        nonlocal computed
        for number, micro_batch in enumerate(micro_batches(self), 1):
            yield micro_batch
            if batch_number != FINISHED:
                continue
            computed = number
            if rank == asked and number == 3 and way == "deadline":
                stop_signal._deadline = 0.0
            elif rank == asked and number == 3 and way == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif rank == asked and number == 3:
                os.kill(os.getpid(), signal.SIGUSR1)
            elif rank != asked and number == 1 and not options.get("fsdp"):
                with suppress(DistNetworkError):  # that of the rank that was killed
                    self._group.store.wait([stop_request.KEY], timedelta(seconds=30))

    def evaluate_and_ask(*arguments: Any, stop_is_seen: Callable[[], bool], **settings: Any) -> Any:
        def look() -> bool:
            nonlocal computed
            if batch_number != FINISHED - 1:
                return False
            computed += 1
            if rank == asked and computed == 1:
                os.kill(os.getpid(), signal.SIGUSR1)
            elif rank != asked and computed == 1 and not options.get("fsdp"):
                arguments[2].store.wait([stop_request.KEY], timedelta(seconds=30))
            return stop_is_seen()

        return evaluate(*arguments, stop_is_seen=look, **settings)

    if way == "evaluation":
        phase.evaluate = evaluate_and_ask  # type: ignore[attr-defined]
    else:
        GradientAccumulator.micro_batches = ask  # type: ignore[method-assign]
    GradientAccumulator.start_step = count_step  # type: ignore[method-assign]
    with (folder / f"rank{rank}.log").open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        with one_line_errors():
            train_here(
                given, card, folder / "phase", initial_weights=None,
                options=Options(threads=ranks, **options), stop_signal=stop_signal,
            )  # fmt: skip
    except RuntimeError as error:
        raise SystemExit(LOST if is_lost_connection(error) else FAILED) from error
    finally:
        (folder / f"computed{rank}").write_text(str(computed))


def start_ranks(*given: Any, ranks: int, asked: int, way: str) -> list[int | None]:
    """Run the ranks to their end; returns their exit statuses."""
    port = free_port()
    processes = [
        CONTEXT.Process(target=run_rank, args=(rank, ranks, asked, way, port, *given)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


@pytest.mark.parametrize(
    ("ranks", "asked", "way", "options", "most"),
    [
        (1, 0, "signal", {}, [3]),
        # The other rank looks after each micro-batch, and has had one.
        (2, 0, "signal", {}, [3, 1]),
        (2, 1, "deadline", {"load_balancing": "3,1"}, [1, 3]),
        # In lockstep, with idle micro-batches of rank 1: they agree after every fourth of the phase.
        (2, 1, "signal", {"fsdp": True, "load_balancing": "3,1"}, [4, 4]),
        pytest.param(3, 2, "signal", {"sharded_optimizer": True}, [1, 1, 3], marks=pytest.mark.slow),
    ],
)
def test_a_stop_of_one_rank_within_a_step_continues_with_the_same_bits(
    card: Path, tmp_path: Path, ranks: int, asked: int, way: str, options: dict[str, Any], most: list[int]
) -> None:
    """No rank computes its whole part of 16 samples, of which a micro-batch has one, or a few short ones."""
    given = {**OPTIONS, **options}
    train(GIVEN, card, tmp_path / "straight", ranks=ranks, **given)
    folder = tmp_path / "stopped"
    folder.mkdir()
    statuses = start_ranks(GIVEN, card, folder, given, ranks=ranks, asked=asked, way=way)
    log = (folder / "rank0.log").read_text()
    assert statuses == [75] * ranks, log
    assert f"asked to stop: step {FINISHED} is saved" in log
    assert [int((folder / f"computed{rank}").read_text()) for rank in range(ranks)] == most

    resumed = train(GIVEN, card, folder / "phase", ranks=ranks, **given).log.read_text()
    assert f"at step {FINISHED}" in resumed
    assert "no longer the same bits" not in resumed
    weights = [sha256_of_file(path / "model.safetensors") for path in (folder / "phase", tmp_path / "straight")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("ranks", "asked", "options", "most"),
    [
        (1, 0, {}, 1),
        (2, 1, {"sharded_optimizer": True}, 1),
        (2, 1, {"fsdp": True}, 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("steps", [4, FINISHED])
def test_a_stop_within_an_evaluation_repeats_it(
    card: Path, tmp_path: Path, ranks: int, asked: int, options: dict[str, Any], most: int, steps: int
) -> None:
    """Also within the last one, after which only the result is written."""
    recipe_of_phase = {**GIVEN, "settings": {**GIVEN["settings"], "steps": steps, "schedule_steps": 4}}
    given = {**OPTIONS, **options, "evaluate_every": 2, "log_every": 2}
    train(recipe_of_phase, card, tmp_path / "straight", ranks=ranks, **given)
    folder = tmp_path / "stopped"
    folder.mkdir()
    statuses = start_ranks(recipe_of_phase, card, folder, given, ranks=ranks, asked=asked, way="evaluation")
    log = (folder / "rank0.log").read_text()
    assert statuses == [75] * ranks, log
    assert f"asked to stop: step {FINISHED} is saved" in log
    looks = [int((folder / f"computed{rank}").read_text()) for rank in range(ranks)]
    assert all(0 < number <= most for number in looks)

    # The repetition is not interrupted: a job that is always asked to stop would never get beyond it.
    again = Trainer(recipe_of_phase, card, folder / "phase", ranks=ranks, stop_after_minutes=0.0, **given)
    assert again.finish() == (0 if steps == FINISHED else 75), again.log.read_text()
    assert "held_out/mlm_loss" in (folder / "phase/checkpoints/journal.jsonl").read_text().splitlines()[-1]
    train(recipe_of_phase, card, folder / "phase", ranks=ranks, **given)
    stopped, straight = folder / "phase", tmp_path / "straight"
    assert sha256_of_file(stopped / "model.safetensors") == sha256_of_file(straight / "model.safetensors")
    found, expected = (
        [(point["step"], _exact(point["metrics"])) for point in journal(path)] for path in (stopped, straight)
    )
    assert found == expected
    assert "held_out/mlm_loss" in expected[2][1]


def _exact(metrics: dict[str, float]) -> dict[str, float]:
    """Those that depend on the recipe alone."""
    names = ("held_out/mlm_loss", "train/loss", "train/mlm_accuracy", "train/step_loss", "train/gradient_norm")
    return {name: metrics[name] for name in names if name in metrics}


def test_a_rank_that_looks_for_a_request_notices_that_rank_0_is_gone(card: Path, tmp_path: Path) -> None:
    statuses = start_ranks(GIVEN, card, tmp_path, OPTIONS, ranks=2, asked=0, way="kill")
    assert statuses == [-signal.SIGKILL, LOST]
