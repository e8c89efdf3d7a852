"""The gradient of a global batch does not depend on how the batch is divided."""

from __future__ import annotations

import pytest
import torch
from fabricated_dataset import MODEL, recipe, write_dataset

from bertline.training.batches import global_batch
from bertline.training.gradients import FlatGradients
from bertline.training.group import Group
from bertline.training.loop import STATISTICS, Options, Phase
from bertline.training.masking import Masking

WITHOUT_DROPOUT = {**MODEL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def gradients_of(card, tmp_path, *, world_size, micro_batch_tokens, precision="fp32"):
    """The sum over the ranks, as the reduction gives it, with the statistics."""
    given = {**recipe(precision=precision), "model": WITHOUT_DROPOUT}
    total = None
    for rank in range(world_size):
        options = Options(micro_batch_tokens=micro_batch_tokens)
        phase = Phase(given, card, tmp_path, Group(rank, world_size, torch.device("cpu")), None, options)
        phase.gradients = FlatGradients(phase.model, STATISTICS)
        batch = global_batch(phase.data.train.lengths, start=48, size=16, seed=42, masking=Masking(0.15))
        phase._accumulate_gradients(batch)
        total = phase.gradients.buffer if total is None else total + phase.gradients.buffer
    return total


@pytest.mark.parametrize(("world_size", "micro_batch_tokens"), [(1, 96), (2, 4096), (3, 64), (20, 4096)])
def test_ranks_and_micro_batches_give_the_same_gradient(card, tmp_path, world_size, micro_batch_tokens):
    whole = gradients_of(card, tmp_path, world_size=1, micro_batch_tokens=4096)
    divided = gradients_of(card, tmp_path, world_size=world_size, micro_batch_tokens=micro_batch_tokens)
    assert whole.abs().max() > 0.1
    torch.testing.assert_close(divided, whole, rtol=1e-4, atol=1e-6)


def test_bf16_is_close_to_fp32(card, tmp_path):
    whole = gradients_of(card, tmp_path, world_size=1, micro_batch_tokens=4096)
    rounded = gradients_of(card, tmp_path, world_size=1, micro_batch_tokens=4096, precision="bf16")
    assert not torch.equal(whole, rounded)
    assert torch.linalg.vector_norm(whole - rounded) < 0.03 * torch.linalg.vector_norm(whole)


def test_clipping_scales_to_the_norm_and_never_up():
    model = torch.nn.Linear(3, 1, bias=False)
    flat = FlatGradients(model, ("loss",))
    model.weight.grad += torch.tensor([[3.0, 0.0, 4.0]])
    flat.add("loss", 100.0)
    assert float(flat.clip(10.0)) == 5
    assert model.weight.grad.tolist() == [[3, 0, 4]]
    assert float(flat.clip(1.0)) == 5
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.0, 0.8]]))
    flat.zero()
    assert float(flat.clip(1.0)) == 0
    assert not model.weight.grad.any()
