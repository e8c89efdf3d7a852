"""What a user may put beside a training's checkpoints is no checkpoint to anything that lists them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from plan_helpers import changed, inputs, plan_of

from bertline.console import BertlineError
from bertline.files import write_json
from bertline.planning.plan import Plan
from bertline.planning.pruning import prunable
from bertline.results import paths

assert inputs  # the fixture
PHASE = "a" * 16
PLAN = {"config": {}, "schema": {}, "models": Path("models")}


@pytest.fixture
def phase(tmp_path, monkeypatch):
    """A finished phase of 20 steps with two checkpoints, and a copy of each."""
    monkeypatch.chdir(tmp_path)
    folder = Path(paths.PHASE.format(phase=PHASE))
    for step in (10, 20):
        checkpoint = folder / paths.CHECKPOINTS / paths.CHECKPOINT.format(step=step)
        write_json(checkpoint / paths.STATE, {"step": step})
        shutil.copytree(checkpoint, f"{checkpoint}.bak")
    write_json(folder / paths.DURABLE, {"step": 20})
    for output in paths.PHASE_OUTPUTS:
        (folder / output).touch()
    write_json(folder / paths.RECIPE, {})
    return folder


@pytest.fixture
def plan():
    return Plan(**PLAN, phases={PHASE: {"settings": {"steps": 20}}})


def test_copies_are_not_listed(phase):
    found = paths.checkpoints_in(phase / paths.CHECKPOINTS)
    assert list(found) == [10, 20]
    assert [folder.name for folder in found.values()] == ["step-00000010", "step-00000020"]


def test_copies_are_not_pruned(phase, plan):
    assert [entry.path for entry in prunable(plan)] == [phase / paths.CHECKPOINTS / "step-00000010"]


def test_a_step_that_is_passed_is_refused_with_the_checkpoints_that_are_kept(phase, plan):
    assert plan.keep_checkpoint(PHASE, 10, "demo/phase1@step-10") is None
    expected = f"there: {phase} has passed step 5 and keeps no checkpoint of it; name one of its checkpoints: 10, 20"
    assert plan.keep_checkpoint(PHASE, 5, "there") == expected
    with pytest.raises(BertlineError, match=r"^there: given step 21, allowed are 0 to 20$"):
        plan.keep_checkpoint(PHASE, 21, "there")
    assert plan.checkpoints == {PHASE: {5, 10}}


def test_a_step_that_an_unfinished_training_has_passed_is_refused(phase, plan):
    (phase / paths.RECIPE).unlink()
    assert "has passed step 15" in str(plan.keep_checkpoint(PHASE, 15, "there"))
    write_json(phase / paths.DURABLE, {"step": 10})
    assert plan.keep_checkpoint(PHASE, 15, "there") is None


def test_only_a_fine_tuning_that_is_to_be_made_needs_the_checkpoint_from_which_it_starts():
    second = {"pretrained": "results/runs/first/phase1@step-5", "finetune": {"squad_v1": {}}}

    def planned():
        return plan_of(changed(runs__second=second))

    assert planned().problems == []
    first, (finetuning,) = planned().runs["first"], planned().runs["second"]["finetunings"].values()
    for output in paths.PHASE_OUTPUTS:
        write_json(Path(paths.PHASE.format(phase=first["phases"]["phase1"]), output), {})
    (problem,) = planned().problems
    assert problem.startswith("configuration: runs.second.pretrained: results/phases/")
    assert problem.endswith("has passed step 5 and keeps no checkpoint of it")
    folder = Path(paths.FINETUNING.format(finetuning=finetuning))
    for output in paths.FINETUNING_OUTPUTS:
        write_json(folder / output, {"scores": {"f1": 80.0}, "primary": "f1"})
    assert planned().problems == [problem]  # the model is absent, among which one is to be chosen
    (folder / paths.EXPORT).mkdir()
    assert planned().problems == []
