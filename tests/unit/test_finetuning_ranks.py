"""Fine-tuning on several processes: the same batches, the same losses, and the same bits after a kill."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finetuning_helpers import NO_DROPOUT, recipe_for, write_cola, write_conll, write_squad, write_tokenizer
from training_processes import FineTuning

from bertline.files import read_json
from bertline.finetuning.batches import micro_batches
from bertline.modeling.weights import load_tensors
from bertline.training.contract import STOPPED

pytestmark = pytest.mark.slow

Json = dict[str, Any]
TASKS: dict[str, tuple[str, Callable[[Path], Path], Json]] = {
    "a class": ("cola", write_cola, {}),
    "an answer": ("squad_v1", write_squad, {}),
    "a class per word": ("table/names", write_conll, {"table": {"kind": "tagging", "word": 0, "tag": -1}}),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


def finished(recipe: Json, tokenizer: Path, output: Path, **options: Any) -> Path:
    run = FineTuning(recipe, tokenizer, output, **options)
    assert run.finish() == 0, run.log.read_text()
    return output


def losses(output: Path, name: str = "train/loss") -> list[float]:
    points = [json.loads(line)["metrics"] for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [point[name] for point in points if name in point]


def rates(output: Path) -> list[float]:
    return losses(output, "train/learning_rate")


@pytest.mark.parametrize("kind", TASKS)
def test_losses_and_outputs_do_not_depend_on_the_number_of_processes(
    tmp_path: Path, tokenizer: Path, kind: str
) -> None:
    task, write, more = TASKS[kind]
    # 9 of 32 inputs: parts and the last batch are uneven.
    recipe = recipe_for(task, write(tmp_path / "data.tsv"), model=NO_DROPOUT, batch_size=9, epochs=2) | more
    ways: dict[str, Json] = {
        "one": {},
        "two": {"ranks": 2},
        "four": {"ranks": 4},
        "unlike": {"ranks": 2, "load_balancing": "3,1"},
        "accumulated": {"ranks": 2, "micro_batch_tokens": 32},
        "again": {"activation_checkpointing": True, "micro_batch_tokens": 1},
    }
    made = {name: finished(recipe, tokenizer, tmp_path / name, **options) for name, options in ways.items()}
    expected = losses(made["one"])
    assert len(expected) > 4
    weights = load_tensors(made["one"] / "huggingface/model.safetensors")
    for name, output in made.items():
        np.testing.assert_allclose(losses(output), expected, rtol=2e-5, err_msg=name)
        for key, tensor in load_tensors(output / "huggingface/model.safetensors").items():
            np.testing.assert_allclose(tensor, weights[key], atol=2e-4, err_msg=f"{name}: {key}")
        assert read_json(output / "metrics.json")["scores"] == read_json(made["one"] / "metrics.json")["scores"]


@pytest.mark.parametrize("patience", [None, 3])
def test_a_killed_fine_tuning_on_two_processes_ends_with_the_same_bits(
    tmp_path: Path, tokenizer: Path, patience: int | None
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv", 200), epochs=4, patience=patience)
    whole = finished(recipe, tokenizer, tmp_path / "whole", ranks=2)
    run = FineTuning(recipe, tokenizer, tmp_path / "killed", ranks=2, checkpoint_every_minutes=0)
    assert run.kill_when(lambda: any((tmp_path / "killed/checkpoints").glob("step-0000000[3-9]")))
    resumed = finished(recipe, tokenizer, tmp_path / "killed", ranks=2)
    log = (tmp_path / "killed.log").read_text()
    assert "resuming" in log
    assert "no longer the same bits" not in log
    for name in ("huggingface/model.safetensors", "predictions.tsv"):
        assert (whole / name).read_bytes() == (resumed / name).read_bytes()
    assert losses(whole) == losses(resumed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_another_number_of_processes_resumes(tmp_path: Path, tokenizer: Path, number: int) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv", 300), epochs=8, model=NO_DROPOUT)
    expected = losses(finished(recipe, tokenizer, tmp_path / "whole"))
    run = FineTuning(recipe, tokenizer, tmp_path / "stopped", ranks=2, checkpoint_every_minutes=0)
    assert run.wait_until(lambda: any((tmp_path / "stopped/checkpoints").glob("step-*")))
    run.signal(number)
    assert run.finish() == STOPPED, run.log.read_text()
    assert not (tmp_path / "stopped/metrics.json").exists()
    finished(recipe, tokenizer, tmp_path / "stopped")
    assert "world_size was 2 and is 1: same samples in the same batches" in (tmp_path / "stopped.log").read_text()
    np.testing.assert_allclose(losses(tmp_path / "stopped"), expected, rtol=1e-4)


def test_a_processor_with_other_instructions_is_reported(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv", 200), epochs=4)
    run = FineTuning(recipe, tokenizer, tmp_path / "out", checkpoint_every_minutes=0)
    assert run.kill_when(lambda: any((tmp_path / "out/checkpoints").glob("step-0000000[3-9]")))
    finished(recipe, tokenizer, tmp_path / "out", environment={"ONEDNN_MAX_CPU_ISA": "sse41"})
    assert re.search(
        r"instruction_set was (\S+) and is \1, oneDNN up to SSE41: .* no longer the same bits",
        (tmp_path / "out.log").read_text(),
    )


def test_a_second_start_waits_for_the_first_and_takes_its_result(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv", 200), epochs=4)
    first = FineTuning(recipe, tokenizer, tmp_path / "out")
    assert first.wait_until((tmp_path / "out/checkpoints/recipe.json").exists)
    first.signal(signal.SIGSTOP)
    second = FineTuning(recipe, tokenizer, tmp_path / "out")
    assert second.wait_until(lambda: "waiting until it is done" in second.log.read_text())
    first.signal(signal.SIGCONT)
    assert (first.finish(), second.finish()) == (0, 0), first.log.read_text()
    assert "another fine-tuning has just written" in second.log.read_text()


def test_measured_ranks_share_a_batch(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), model=NO_DROPOUT)
    expected = losses(finished(recipe, tokenizer, tmp_path / "one"))
    measured = finished(recipe, tokenizer, tmp_path / "measured", ranks=2, load_balancing="measured")
    np.testing.assert_allclose(losses(measured), expected, rtol=2e-5)


def stopped_after_a_step(recipe: Json, tokenizer: Path, output: Path, **options: Any) -> str:
    """Train at most one more step; return its log."""
    run = FineTuning(recipe, tokenizer, output, stop_after_minutes=0.0, **options)
    before = len(run.log.read_text())
    assert run.finish() == STOPPED, run.log.read_text()
    return run.log.read_text()[before:]


def test_a_resumed_fine_tuning_keeps_its_rank_weights_unless_others_are_given(tmp_path: Path, tokenizer: Path) -> None:
    recipe, output = recipe_for("cola", write_cola(tmp_path / "train.tsv")), tmp_path / "out"
    stopped_after_a_step(recipe, tokenizer, output, ranks=2, load_balancing="3,1")
    log = stopped_after_a_step(recipe, tokenizer, output, ranks=2, load_balancing="measured")
    assert "resuming" in log
    assert "rank_weights was" not in log
    log = stopped_after_a_step(recipe, tokenizer, output, ranks=2, load_balancing="1,3")
    assert "rank_weights was [3.0, 1.0] and is [1.0, 3.0]" in log
    log = stopped_after_a_step(recipe, tokenizer, output, ranks=2, load_balancing="measured-again")
    assert "measured rank weights: " in log
    assert "rank_weights was [1.0, 3.0] and is" in log


def test_a_resumed_fine_tuning_keeps_its_threads_unless_it_is_told_not_to(tmp_path: Path, tokenizer: Path) -> None:
    recipe, output = recipe_for("cola", write_cola(tmp_path / "train.tsv")), tmp_path / "out"
    stopped_after_a_step(recipe, tokenizer, output, threads=2)
    log = stopped_after_a_step(recipe, tokenizer, output, threads=1)
    assert "threads of a process: 2, as before, for the same bits; --no-keep-threads takes the 1 given now" in log
    assert "threads was" not in log
    log = stopped_after_a_step(recipe, tokenizer, output, threads=1, keep_threads=False)
    assert "threads was 2 and is 1" in log
    assert read_json(finished(recipe, tokenizer, output, threads=2) / "recipe.json")["threads"] == 1


def test_another_number_of_processes_has_the_threads_that_are_given(tmp_path: Path, tokenizer: Path) -> None:
    recipe, output = recipe_for("cola", write_cola(tmp_path / "train.tsv")), tmp_path / "out"
    stopped_after_a_step(recipe, tokenizer, output, threads=2)
    assert "threads was 2 and is 1" in stopped_after_a_step(recipe, tokenizer, output, ranks=2, threads=2)


def test_micro_batches_hold_every_input_once_within_the_limit() -> None:
    lengths = np.random.default_rng(0).integers(3, 40, 50)
    rows = np.argsort(lengths)[10:37]
    parts = list(micro_batches(rows, lengths, 100))
    assert np.concatenate(parts).tolist() == rows.tolist()
    assert all(len(part) == 1 or len(part) * lengths[part].max() <= 100 for part in parts)
    assert len(parts) < len(rows)


def test_the_best_of_workers_that_do_not_synchronise_is_kept_whatever_the_number_of_processes(
    tmp_path: Path, tokenizer: Path
) -> None:
    file = write_squad(tmp_path / "squad.json")
    recipe = recipe_for("squad_v1", file, epochs=2, synchronise=False, workers=3)
    outputs = [finished(recipe, tokenizer, tmp_path / str(ranks), ranks=ranks, threads=ranks) for ranks in (1, 2)]
    metrics = [read_json(output / "metrics.json") for output in outputs]
    scores = metrics[0]["scores_of_workers"]
    assert len(set(scores)) > 1
    assert metrics[0]["scores"]["f1"] == pytest.approx(max(scores), abs=1e-3)
    assert metrics[1]["scores_of_workers"] == scores
    for name in ("huggingface/model.safetensors", "predictions.json"):
        assert (outputs[0] / name).read_bytes() == (outputs[1] / name).read_bytes()
    # The first worker is a fine-tuning of its own.
    alone = finished(recipe_for("squad_v1", file, epochs=2), tokenizer, tmp_path / "alone")
    assert read_json(alone / "metrics.json")["scores"]["f1"] == pytest.approx(scores[0], abs=1e-3)


def test_a_scaled_learning_rate_is_that_of_the_batch_size_not_of_the_processes(tmp_path: Path, tokenizer: Path) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), learning_rate=1e-3, epochs=1, warmup=0)
    expected = finished(
        {**recipe, "settings": {**recipe["settings"], "learning_rate": 2e-3}}, tokenizer, tmp_path / "a"
    )
    recipe["settings"] |= {"learning_rate_scaling": "sqrt", "base_batch_size": 2}  # of 8
    for ranks in (1, 2):
        output = finished(recipe, tokenizer, tmp_path / str(ranks), ranks=ranks)
        assert rates(output) == pytest.approx(rates(expected))
