"""Muon compared with torch's, its iteration with singular values, its state through checkpoints and between phases."""

from __future__ import annotations

import json

import pytest
import torch
from synthetic_dataset import MODEL, recipe

from bertline.console import BertlineError
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.network_config import BertConfig
from bertline.training.checkpoints import write_checkpoint
from bertline.training.distributed.process_group import Group
from bertline.training.initial import load_carried_over_moments
from bertline.training.optimizers.kfac import Kfac
from bertline.training.optimizers.muon import orthogonalize
from bertline.training.optimizers.registry import load_optimizer_tensors, make_optimizer, optimizer_tensors
from bertline.training.scaling import LossScale

SETTINGS = recipe(optimizer="muon", learning_rate=0.02, weight_decay=0.03)["settings"]
NO_KFAC = Kfac(torch.nn.Module(), None, Group(0, 1, torch.device("cpu")))
NO_SCALE = LossScale("fp32")
HIDDEN = ("qkv", "attention_output", "intermediate", "output")


def network():
    torch.manual_seed(3)
    return BertForPreTraining(BertConfig.from_dict({**MODEL, "vocab_size": 75}))


def is_hidden(name):
    return name.split(".")[-2] in HIDDEN and name.endswith("weight")


def give_gradients(model, step):
    torch.manual_seed(step)
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)


def moved(settings, steps=5, model=None, optimizer=None, first=0):
    """The weights by name after `steps` updates with gradients that depend on the step alone."""
    model = model or network()
    optimizer = optimizer or make_optimizer(model, settings)
    for step in range(first, first + steps):
        give_gradients(model, step)
        optimizer.step()
    return dict(model.named_parameters())


def moved_by_torch(steps=5, *, nesterov=True, ratio=1.0):
    """The same by torch.optim.Muon, with query, key and value apart, and torch.optim.AdamW."""
    model = network()
    matrices, origin, decayed, others = [], [], [], []
    for name, weight in model.named_parameters():
        if is_hidden(name):
            for part in weight.detach().chunk(3 if "qkv" in name else 1):
                matrices.append(torch.nn.Parameter(part.clone()))
                origin.append((name, part))
        else:
            (others if name.endswith("bias") or "normalization" in name else decayed).append(weight)
    groups = [{"params": decayed, "weight_decay": 0.03}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.999), eps=1e-6, fused=True)
    muon = torch.optim.Muon(
        matrices, lr=0.02 * ratio, weight_decay=0.1, nesterov=nesterov, adjust_lr_fn="match_rms_adamw"
    )
    for step in range(steps):
        give_gradients(model, step)
        gradients = [
            part
            for name, weight in model.named_parameters()
            if is_hidden(name)
            for part in weight.grad.chunk(3 if "qkv" in name else 1)
        ]
        for matrix, gradient in zip(matrices, gradients, strict=True):
            matrix.grad = gradient
        muon.step()
        adamw.step()
    for (_, part), matrix in zip(origin, matrices, strict=True):
        part.copy_(matrix.detach())  # `part` is a view of the model's weight
    return dict(model.named_parameters())


@pytest.mark.parametrize(("nesterov", "ratio"), [(True, 1.0), (False, 1.0), (True, 2.5)])
def test_batched_muon_is_torchs_muon_with_adamw_for_the_rest(monkeypatch, nesterov, ratio):
    # torch's iteration runs in bfloat16 alone: let it run in float32, so that the comparison is a sharp one.
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.float().clone())
    muon = {**SETTINGS["muon"], "nesterov": nesterov, "learning_rate_ratio": ratio}
    ours, theirs = moved({**SETTINGS, "muon": muon}), moved_by_torch(nesterov=nesterov, ratio=ratio)
    start = dict(network().named_parameters())
    for name, weight in ours.items():
        if is_hidden(name):
            torch.testing.assert_close(weight, theirs[name], rtol=1e-4, atol=1e-5)
            assert (weight - start[name]).abs().mean() > 0.005
        else:
            assert torch.equal(weight, theirs[name]), name


def test_a_phase_in_bf16_iterates_in_bfloat16_as_torch_does():
    ours, theirs = moved({**SETTINGS, "precision": "bf16"}, steps=1), moved_by_torch(steps=1)
    exact, start = moved(SETTINGS, steps=1), dict(network().named_parameters())
    for name in filter(is_hidden, ours):
        step = torch.linalg.vector_norm(exact[name] - start[name])
        assert torch.linalg.vector_norm(ours[name] - theirs[name]) < 0.02 * step
        assert not torch.equal(ours[name], exact[name])


@pytest.mark.parametrize("shape", [(5, 6, 6), (3, 4, 16)])
def test_the_iteration_sets_all_singular_values_near_one(shape):
    torch.manual_seed(1)
    given = torch.randn(shape)
    u, values, v = torch.linalg.svd(given.double(), full_matrices=False)
    direction = orthogonalize(given)
    # Same singular vectors: U^T X V is diagonal.
    core = u.mT @ direction.double() @ v.mT
    found = core.diagonal(dim1=-2, dim2=-1)
    assert (core - torch.diag_embed(found)).abs().max() < 1e-4
    # The quintic's reach: what starts above a hundredth of the norm ends near one.
    reached = found[values > 0.01 * values.norm(dim=-1, keepdim=True)]
    assert reached.min() > 0.5
    assert reached.max() < 1.3


def test_the_iteration_in_float64_from_its_definition():
    torch.manual_seed(2)
    given = torch.randn(2, 3, 7)
    for matrix, direction in zip(given.double(), orthogonalize(given), strict=True):
        x = matrix / matrix.square().sum().sqrt()
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        torch.testing.assert_close(direction.double(), x, rtol=1e-4, atol=1e-5)


def test_a_zero_gradient_moves_a_matrix_only_by_its_decay():
    assert not orthogonalize(torch.zeros(2, 3, 4)).any()
    model = network()
    optimizer = make_optimizer(model, SETTINGS)
    before = model.encoder.layers[0].output.weight.detach().clone()
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    torch.testing.assert_close(model.encoder.layers[0].output.weight, before * (1 - 0.02 * 0.1))


def test_query_key_and_value_are_orthogonalised_apart():
    model = network()
    optimizer = make_optimizer(model, {**SETTINGS, "muon": {**SETTINGS["muon"], "weight_decay": 0.0}})
    weight = model.encoder.layers[1].qkv.weight
    before = weight.detach().clone()
    give_gradients(model, 0)
    weight.grad[:32] *= 1000  # the query's: the others' updates must not shrink
    optimizer.step()
    for part in (weight - before).detach().chunk(3):
        # U V^T of 32 x 32 has the norm sqrt(32); times the rate and 0.2 sqrt(32).
        assert float(part.norm()) == pytest.approx(0.02 * 0.2 * 32, rel=0.25)


def test_only_the_matrices_of_layers_have_nothing_but_momentum():
    model = network()
    optimizer = make_optimizer(model, SETTINGS)
    moved(SETTINGS, 1, model, optimizer)
    for name, weight in model.named_parameters():
        expected = {"momentum_buffer"} if is_hidden(name) else {"step", "exp_avg", "exp_avg_sq"}
        assert optimizer.state[weight].keys() == expected, name
        assert optimizer.orthogonalises(weight) == is_hidden(name)


def test_restored_state_continues_with_the_same_bits():
    straight = moved(SETTINGS, 6)
    model = network()
    optimizer = make_optimizer(model, SETTINGS)
    moved(SETTINGS, 3, model, optimizer)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, model).items()}
    resumed = network()
    resumed.load_state_dict(model.state_dict())
    optimizer = make_optimizer(resumed, SETTINGS)
    load_optimizer_tensors(optimizer, resumed, saved, kind="muon")
    for name, weight in moved(SETTINGS, 3, resumed, optimizer, first=3).items():
        assert torch.equal(weight, straight[name])


def test_a_missing_momentum_is_an_error():
    model = network()
    optimizer = make_optimizer(model, SETTINGS)
    moved(SETTINGS, 1, model, optimizer)
    saved = optimizer_tensors(optimizer, model)
    del saved["encoder.layers.0.qkv.weight.momentum_buffer"]
    with pytest.raises(BertlineError, match=r"moment encoder\.layers\.0\.qkv\.weight\.momentum_buffer of muon is"):
        load_optimizer_tensors(optimizer, model, saved, kind="muon")


def test_the_next_phase_continues_with_momentum_and_adamws_steps(tmp_path):
    model = network()
    optimizer = make_optimizer(model, SETTINGS)
    moved(SETTINGS, 3, model, optimizer)
    state = {"fingerprint": "a" * 16, "step": 3}
    tensors = optimizer_tensors(optimizer, model)
    write_checkpoint(tmp_path / "checkpoints", weights=model.state_dict(), optimizer=tensors, state=state)
    (tmp_path / "recipe.json").write_text(json.dumps({"settings": SETTINGS, "published_step": 3}))
    following = {**recipe(optimizer="muon"), "initial_weights": {"phase": "a" * 16}}
    second = network()
    optimizer = make_optimizer(second, following["settings"])
    load_carried_over_moments(optimizer, NO_KFAC, NO_SCALE, second, following, tmp_path)
    taken = optimizer_tensors(optimizer, second)
    assert taken.keys() == tensors.keys()
    assert all(torch.equal(taken[name], tensors[name]) for name in tensors)
    assert taken["encoder.embeddings.word.weight.step"] == 3

    other = {**following, "settings": {**following["settings"], "optimizer": "adamw"}}
    with pytest.raises(BertlineError, match=r"the moments of muon in .* cannot be used by adamw"):
        load_carried_over_moments(make_optimizer(second, other["settings"]), NO_KFAC, NO_SCALE, second, other, tmp_path)

    del tensors["encoder.layers.0.qkv.weight.momentum_buffer"]
    write_checkpoint(tmp_path / "checkpoints", weights=model.state_dict(), optimizer=tensors, state=state)
    with pytest.raises(BertlineError, match=r"carry_over: .*step-00000003: the moment .*; set carry_over: weights"):
        load_carried_over_moments(optimizer, NO_KFAC, NO_SCALE, second, following, tmp_path)
