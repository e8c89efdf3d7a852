"""The best step by held-out loss: kept, and published where the recipe asks for it."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer, journal, train

from bertline.files import sha256_of_file
from bertline.training.progress import Best

# A learning rate at which the held-out loss soon rises again.
OVERSHOOTS = {"optimizer": "adamw", "learning_rate": 0.01, "schedule": "constant", "steps": 24}
GIVEN = recipe(**OVERSHOOTS, publish_best_every=3)


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


@pytest.fixture(scope="module")
def straight(card, tmp_path_factory):
    output = tmp_path_factory.mktemp("straight") / "phase"
    train(GIVEN, card, output, evaluate_every=0, keep_checkpoints=1)
    return output


def best_of(output, *, every):
    losses = {
        point["step"]: point["metrics"]["held_out/mlm_loss"]
        for point in journal(output)
        if "held_out/mlm_loss" in point["metrics"] and point["step"] and point["step"] % every == 0
    }
    return min(losses, key=losses.get)


def published(output):
    return json.loads((output / "recipe.json").read_text())["published_step"]


def checkpoints_of(output):
    return sorted(int(path.name.removeprefix("step-")) for path in (output / "checkpoints").glob("step-*"))


def test_the_best_steps_weights_are_published_instead_of_the_last_ones(card, straight, tmp_path):
    best = best_of(straight, every=3)
    assert published(straight) == best < 24
    assert checkpoints_of(straight) == [best, 24]
    # The same phase that publishes its last step, as by default, and keeps the checkpoints of all.
    last = tmp_path / "last"
    train(recipe(**OVERSHOOTS), card, last, checkpoint_every=1, keep_every=1)
    assert published(last) == 24
    of_best = load_file(last / "checkpoints" / f"step-{best:08d}" / "model.safetensors")
    found = load_file(straight / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in of_best.items())
    assert sha256_of_file(last / "model.safetensors") != sha256_of_file(straight / "model.safetensors")


def test_killed_before_and_after_the_best_step_it_publishes_the_same_bits(card, straight, tmp_path):
    output, best = tmp_path / "phase", published(straight)
    options = {"checkpoint_every": 2, "keep_checkpoints": 1, "evaluate_every": 5}
    for moment in (best - 2, best, best + 4):
        trainer = Trainer(GIVEN, card, output, **options)
        assert trainer.kill_when(lambda moment=moment: max(checkpoints_of(output), default=0) >= moment)
    resumed = train(GIVEN, card, output, **options)
    assert f"step {best} of 24 is published" in resumed.log.read_text()
    assert sha256_of_file(output / "model.safetensors") == sha256_of_file(straight / "model.safetensors")


def test_two_ranks_agree_on_the_best_step(card, straight, tmp_path):
    without_dropout = {**GIVEN["model"], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    given = {**recipe(**OVERSHOOTS, publish_best_every=4), "model": without_dropout}
    weights = []
    for ranks in (1, 2):
        output = tmp_path / f"{ranks}"
        train(given, card, output, ranks=ranks, evaluate_every=0)
        assert published(output) == best_of(output, every=4)
        weights.append((published(output), load_file(output / "model.safetensors")))
    assert weights[0][0] == weights[1][0] < 24
    for name, tensor in weights[0][1].items():
        torch.testing.assert_close(weights[1][1][name], tensor, rtol=1e-2, atol=1e-3)


def test_the_next_phase_continues_from_the_published_step(card, straight, tmp_path):
    best = published(straight)
    assert json.loads((straight / "recipe.json").read_text())["next_position"] == 16 * best
    following = {
        **recipe(optimizer="adamw", steps=1),
        "fingerprint": "b" * 16,
        "initial_weights": {"phase": "a" * 16},
    }
    train(following, card, tmp_path / "next", initial_weights=straight)
    moments = load_file(tmp_path / "next/checkpoints/step-00000001/optimizer.safetensors")
    assert moments["pair_head.bias.step"] == best + 1


def test_without_the_setting_the_best_checkpoint_can_be_kept(card, tmp_path):
    output = tmp_path / "phase"
    train(recipe(**OVERSHOOTS), card, output, keep_best=True, keep_checkpoints=1, evaluate_every=3)
    assert published(output) == 24
    assert checkpoints_of(output) == [best_of(output, every=3), 24]


def test_a_dataset_without_held_out_samples_has_no_best_step(tmp_path):
    card = write_dataset(tmp_path / "dataset", held_out=0)
    trainer = Trainer(GIVEN, card, tmp_path / "phase")
    assert trainer.finish() == 1
    assert "there are no held-out samples of length 32 to find the best step by" in trainer.log.read_text()
    assert "Traceback" not in trainer.log.read_text()


def test_the_first_of_equals_is_the_best_and_no_number_never():
    best = Best(every=5, keep=False)
    found = [(5, float("nan")), (7, 1.0), (10, 3.0), (15, 3.0), (17, 2.5), (20, float("inf"))]
    counted = [best.update(step, {"held_out/mlm_loss": loss}, last=step == 17) for step, loss in found]
    assert counted == [False, False, True, False, True, False]
    assert best.state() == {"step": 17, "mlm_loss": 2.5}
    assert not best.update(25, {}, last=False)
