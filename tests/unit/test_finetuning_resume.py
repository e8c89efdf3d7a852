"""Fine-tunings that are stopped or killed and started again, in this process: what is saved, when, and what follows."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from finetuning_helpers import NO_DROPOUT, Json, recipe_for, write_cola, write_tokenizer

from bertline.console import BertlineError
from bertline.files import read_json
from bertline.finetuning import loop
from bertline.finetuning.options import Options
from bertline.finetuning.train import finetune
from bertline.modeling.weights import load_tensors
from bertline.training import checkpoints
from bertline.training.checkpoints import CheckpointWriter
from bertline.training.contract import STEP_IS_SAVED, STOPPED
from bertline.training.stop import StopSignal

ONE_THREAD = Options(threads=1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by an element with every update of the weights."""
    made: list[int] = []
    update = torch.optim.AdamW.step

    def count(self: torch.optim.AdamW, closure: None = None) -> None:
        update(self)
        made.append(1)

    monkeypatch.setattr(torch.optim.AdamW, "step", count)
    return made


@dataclass
class StopDuring:
    """Set from before an update on, which is counted over all trainings."""

    update: int
    updates: list[int]

    @property
    def received(self) -> bool:
        return len(self.updates) >= self.update - 1


def stop(recipe: Json, tokenizer: Path, output: Path, stop_signal: object) -> None:
    with pytest.raises(SystemExit) as ended:
        finetune(recipe, tokenizer, output, options=ONE_THREAD, stop_signal=cast(StopSignal, stop_signal))
    assert ended.value.code == STOPPED


def files_of(output: Path) -> dict[str, object]:
    """Return the content of the results, without times."""
    journal = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {
        "metrics": {**read_json(output / "metrics.json"), "seconds": 0},
        "journal": [(point["step"], point["metrics"]) for point in journal],
        "predictions": (output / "predictions.tsv").read_bytes(),
        "model": (output / "huggingface/model.safetensors").read_bytes(),
    }


@pytest.mark.parametrize("patience", [None, 1])
def test_workers_that_are_finished_are_not_trained_again(
    tmp_path: Path, tokenizer: Path, updates: list[int], patience: int | None
) -> None:
    """Neither one that made all of its steps, nor one whose score did not become better."""
    recipe = recipe_for(
        "cola", write_cola(tmp_path / "train.tsv"), synchronise=False, workers=3, patience=patience, learning_rate=1e-4
    )
    finetune(recipe, tokenizer, tmp_path / "whole", options=ONE_THREAD)
    number = len(updates)
    if patience is None:
        assert number == 3 * 16
    else:
        assert number < 3 * 16
    # In the last worker, at its end, and in the one before.
    for update in (number - 3, number, number // 2):
        output = tmp_path / str(update)
        updates.clear()
        stop(recipe, tokenizer, output, StopDuring(update, updates))
        assert len(updates) == update
        finetune(recipe, tokenizer, output, options=ONE_THREAD)
        assert len(updates) == number
        assert files_of(output) == files_of(tmp_path / "whole")


def test_the_scores_of_a_worker_are_once_in_the_journal_if_it_is_killed_while_it_writes_the_results(
    tmp_path: Path, tokenizer: Path, updates: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), synchronise=False, workers=2)
    finetune(recipe, tokenizer, tmp_path / "whole", options=ONE_THREAD)
    updates.clear()
    with monkeypatch.context() as killed:
        killed.setattr("bertline.finetuning.train.write_huggingface", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            finetune(recipe, tokenizer, tmp_path / "out", options=ONE_THREAD)
    finetune(recipe, tokenizer, tmp_path / "out", options=ONE_THREAD)
    assert len(updates) == 2 * 16
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def raise_interrupt(*_given: object, **_options: object) -> None:
    raise KeyboardInterrupt


def test_fp16_is_resumed_from_before_its_first_update(
    tmp_path: Path,
    tokenizer: Path,
    updates: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first steps only lower the loss scale, and AdamW has no moments yet. On a CPU, in fp16."""
    monkeypatch.setattr("bertline.finetuning.train.prepare_precision", lambda precision, device: None)
    monkeypatch.setattr("bertline.training.scaling.FIRST", 2.0**40)
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"), precision="fp16", epochs=8, model=NO_DROPOUT)
    finetune(recipe, tokenizer, tmp_path / "whole", options=ONE_THREAD)
    number = len(updates)
    assert 0 < number < 30  # of 32 steps
    updates.clear()
    for step in (1, 2):
        stop(recipe, tokenizer, tmp_path / "out", StopDuring(1, updates))
        assert (tmp_path / f"out/checkpoints/step-{step:08}").exists()
    assert not updates
    finetune(recipe, tokenizer, tmp_path / "out", options=ONE_THREAD)
    assert len(updates) == number
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("file", "damaged", "message"),
    [
        (
            "optimizer.safetensors",
            "classifier.weight.exp_avg",
            "the moment classifier.weight.exp_avg of adamw is missing",
        ),
        ("model.safetensors", "classifier.weight", "of another model"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_one_line_with_its_path(
    tmp_path: Path, tokenizer: Path, updates: list[int], file: str, damaged: str, message: str
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"))
    stop(recipe, tokenizer, tmp_path / "out", StopDuring(3, updates))
    folder = tmp_path / "out/checkpoints"
    tensors = {name: load_tensors(folder / "step-00000003" / name) for name in checkpoints.FILES}
    del tensors[file][damaged]
    weights, optimizer = tensors.values()
    state = read_json(folder / "step-00000003/state.json")
    checkpoints.write_checkpoint(folder, weights=weights, optimizer=optimizer, state=state)
    with pytest.raises(BertlineError, match=message) as caught:
        finetune(recipe, tokenizer, tmp_path / "out", options=ONE_THREAD)
    line = str(caught.value)
    assert "\n" not in line
    assert f"the checkpoint {folder / 'step-00000003'}" in line
    assert line.endswith("; move it away and run again")


def test_a_stop_saves_its_step_long_before_a_checkpoint_is_due(
    tmp_path: Path, tokenizer: Path, updates: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    recipe = recipe_for("cola", write_cola(tmp_path / "train.tsv"))
    finetune(recipe, tokenizer, tmp_path / "whole", options=ONE_THREAD)
    updates.clear()
    with caplog.at_level("INFO"):
        stop(recipe, tokenizer, tmp_path / "out", StopDuring(5, updates))
    assert STEP_IS_SAVED.format(step=5) in caplog.messages
    assert [path.name for path in (tmp_path / "out/checkpoints").glob("step-*")] == ["step-00000005"]
    shutil.copytree(tmp_path / "out", tmp_path / "other")
    finetune(recipe, tokenizer, tmp_path / "out", options=ONE_THREAD)
    assert len(updates) == 16
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert "of its points" not in caplog.text

    journal = tmp_path / "other/checkpoints/journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:3]))
    finetune(recipe, tokenizer, tmp_path / "other", options=ONE_THREAD)
    assert f"{journal} lacks 2 of its points up to step 5: they are lost" in caplog.text


def test_a_checkpoint_is_written_when_the_minutes_since_the_last_one_have_passed(
    tmp_path: Path, tokenizer: Path, updates: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step takes four minutes, and the time is looked at before it."""
    saved, start = [], CheckpointWriter.start

    def start_and_count(self: CheckpointWriter, weights: Any, optimizer: Any, state: Json) -> None:
        saved.append(state["step"])
        start(self, weights, optimizer, state)

    monkeypatch.setattr(CheckpointWriter, "start", start_and_count)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: 4 * 60.0 * len(updates)))
    options = Options(threads=1, checkpoint_every_minutes=10)
    finetune(recipe_for("cola", write_cola(tmp_path / "train.tsv")), tokenizer, tmp_path / "out", options=options)
    assert saved == [4, 8, 12]


def test_a_trainer_whose_lock_was_taken_over_saves_nothing_more(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, made, update = tmp_path / "out/checkpoints/lock.json", [], torch.optim.AdamW.step

    def update_and_lose(self: torch.optim.AdamW, closure: None = None) -> None:
        update(self)
        made.append(1)
        if len(made) == 5:
            path.write_text(json.dumps(read_json(path) | {"token": "another"}))

    monkeypatch.setattr(torch.optim.AdamW, "step", update_and_lose)
    recipe, options = (
        recipe_for("cola", write_cola(tmp_path / "train.tsv")),
        Options(threads=1, checkpoint_every_minutes=0),
    )
    with pytest.raises(BertlineError, match="belongs to another trainer"):
        finetune(recipe, tokenizer, tmp_path / "out", options=options)
    # That of the fourth step is lost, too, if it was not yet complete.
    assert {one.name for one in path.parent.glob("step-*")} <= {"step-00000003", "step-00000004"}
