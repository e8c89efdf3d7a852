"""A step of training: what one update takes from its batch, its loss scale and its schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from synthetic_dataset import MODEL, recipe, write_dataset
from test_training_kfac import KFAC

from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.options import Options
from bertline.training.scaling import FIRST, LossScale
from bertline.training.setup import make_learner
from bertline.training.step import UNFINISHED, has_overflowed, train_step

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


@pytest.fixture
def learner_of(card):
    """A learner of fp32 with the loss scale of fp16, which only a GPU has."""
    made = []

    def make(**settings):
        without_dropout = {**MODEL, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
        given = {**recipe(**settings), "model": without_dropout}
        data, group = open_training_data(card, 32, CPU), Group(0, 1, CPU)
        learner = make_learner(given, data, group, Options(), votes=(UNFINISHED,), batching=Batching(32, 2))
        learner.accumulator.seek(0)
        made.append(learner)
        return replace(learner, scale=LossScale("fp16"))

    yield make
    for learner in made:
        learner.accumulator.close()


def test_a_step_that_is_left_unfinished_changes_neither_weights_nor_loss_scale(learner_of):
    learner = learner_of()
    before = [weight.detach().clone() for weight in learner.model.parameters()]
    result = train_step(learner, 1, 0, stop_is_seen=lambda: True)
    assert (result.interrupted, result.updated, result.backed_off) == (True, False, False)
    assert learner.scale.value == FIRST
    assert all(torch.equal(*pair) for pair in zip(learner.model.parameters(), before, strict=True))


def test_the_first_micro_batch_is_never_left_out(learner_of):
    """A global batch of one is finished: otherwise a stop would lose it each time."""
    learner = learner_of(global_batch_size=2)
    assert train_step(learner, 1, 0, stop_is_seen=lambda: True).updated


def test_a_step_that_overflows_backs_off(learner_of):
    learner = learner_of()
    with torch.no_grad():
        next(iter(learner.model.parameters())).fill_(torch.inf)
    result = train_step(learner, 1, 0)
    assert (result.updated, result.backed_off) == (False, True)
    assert learner.scale.value == FIRST / 2


def test_all_groups_of_weights_have_the_learning_rate_of_the_step(learner_of):
    learner = learner_of(learning_rate=0.5, warmup=0.5, steps=4)
    assert len(learner.optimizer.param_groups) > 1  # with and without weight decay
    result = train_step(learner, 1, 0)
    assert [group["lr"] for group in learner.optimizer.param_groups] == [result.learning_rate] * 2
    assert result.learning_rate == 0.25


@pytest.mark.parametrize("scale", [1.0, FIRST])
def test_the_factors_of_kfac_do_not_depend_on_the_loss_scale(learner_of, scale):
    learner, expected = (learner_of(kfac={**KFAC, "gradient_factor": "sample"}) for _ in range(2))
    learner.scale.value, expected.scale.value = scale, 2.0
    for one in (learner, expected):
        assert train_step(one, 1, 0).updated
    tensors = expected.kfac.tensors()
    for name, tensor in learner.kfac.tensors().items():
        if name.endswith("factor"):
            torch.testing.assert_close(tensor, tensors[name], rtol=1e-4, atol=1e-7)


def test_kfac_is_told_the_number_of_samples(learner_of, monkeypatch):
    """Of the whole global batch, in micro-batches of two."""
    learner, told = learner_of(kfac=KFAC, global_batch_size=6), []
    monkeypatch.setattr(learner.kfac, "precondition", lambda *_, samples: told.append(samples))
    assert len(train_step(learner, 1, 0).batch.samples) == 6
    assert told == [6]


def test_weights_have_overflowed_if_one_number_is_not_finite():
    model = torch.nn.Linear(4, 4)
    assert not has_overflowed(model)
    for bad in (torch.inf, torch.nan):
        with torch.no_grad():
            model.weight[1, 2] = bad
        assert has_overflowed(model)
        with torch.no_grad():
            model.weight[1, 2] = 0.0
