"""LAMB against its description in float64, what is decayed, and moments that survive a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic_dataset import MODEL, recipe

from bertline.console import BertlineError
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.network_config import BertConfig
from bertline.settings.configuration import definition, load_schema
from bertline.training.distributed.gradients import Gradients
from bertline.training.optimizers.registry import (
    OPTIMIZERS,
    Entry,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
)


class Network(torch.nn.Module):
    """One parameter of each kind: decayed, not decayed, decayed and zero, without gradient, of stacked matrices."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.matrix = torch.nn.Parameter(torch.randn(7, 5))
        self.bias = torch.nn.Parameter(torch.randn(5))
        self.zero = torch.nn.Parameter(torch.zeros(3))
        self.unused = torch.nn.Parameter(torch.randn(4))
        self.qkv = torch.nn.Linear(5, 6)
        self.gated_intermediate = torch.nn.Linear(5, 8, bias=False)
        with torch.no_grad():  # the parts of a stack are of unlike sizes
            self.qkv.weight[:2] *= 10
            self.qkv.bias[4:] *= 10
            self.gated_intermediate.weight[:4] *= 10


def apart(tensors):
    """Divide the tensors of stacked matrices, by name, into those of the single matrices."""
    counts = {"qkv": 3, "gated_intermediate": 2}
    return {
        (name, number): part
        for name, tensor in tensors.items()
        for number, part in enumerate(np.split(tensor, counts.get(name.split(".")[0], 1)))
    }


def joined(parts):
    """Undo `apart`."""
    names = dict.fromkeys(name for name, _ in parts)
    return {name: np.concatenate([part for (of, _), part in parts.items() if of == name]) for name in names}


def reference_lamb(weights, gradients, steps, settings):
    """NVIDIA's LAMB as described: apex FusedLAMB with gradient averaging and pre-clipping, in float64."""
    beta1, beta2 = settings["betas"]
    first = {name: np.zeros_like(value) for name, value in weights.items()}
    second = {name: np.zeros_like(value) for name, value in weights.items()}
    for step in range(1, steps + 1):
        given = gradients(step)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in given.values()))
        clip = norm / settings["max_gradient_norm"] if norm > settings["max_gradient_norm"] else 1.0
        for name, weight in weights.items():
            gradient = given[name] / clip
            first[name] = beta1 * first[name] + (1 - beta1) * gradient
            second[name] = beta2 * second[name] + (1 - beta2) * gradient**2
            unbiased_first = first[name] / (1 - beta1**step)
            unbiased_second = second[name] / (1 - beta2**step)
            update = unbiased_first / (np.sqrt(unbiased_second) + settings["epsilon"])
            ratio = 1.0
            if not name[0].endswith("bias"):
                update = update + settings["weight_decay"] * weight
                weight_norm, update_norm = np.sqrt((weight**2).sum()), np.sqrt((update**2).sum())
                if weight_norm > 0 and update_norm > 0:
                    ratio = weight_norm / update_norm
            weights[name] = weight - settings["learning_rate"] * ratio * update
    return weights


@pytest.mark.parametrize(
    ("scale", "compiled"),
    [(0.01, False), (10.0, False), pytest.param(10.0, True, marks=pytest.mark.slow)],
)  # below and above the norm that is clipped
def test_lamb_is_that_of_nvidias_runs(scale, compiled):
    settings = recipe()["settings"]
    network = Network()
    start = {name: value.detach().double().numpy().copy() for name, value in network.named_parameters()}

    def gradients(step):
        random = np.random.default_rng(step)
        drawn = {name: scale * random.standard_normal(value.shape) for name, value in start.items()}
        return {**drawn, "unused": np.zeros(4)}

    flat = Gradients(network, (), world_size=2)
    optimizer = make_optimizer(network, settings, compiled=compiled)
    for step in range(1, 21):
        flat.zero()
        for name, gradient in gradients(step).items():
            network.get_parameter(name).grad += torch.from_numpy(gradient).float()
        flat.clip(settings["max_gradient_norm"])
        optimizer.step()
    expected = joined(reference_lamb(apart(start), lambda step: apart(gradients(step)), 20, settings))
    for name, value in network.named_parameters():
        np.testing.assert_allclose(value.detach().numpy(), expected[name], rtol=2e-5, atol=1e-6)
        assert np.abs(expected[name] - start[name]).max() > 1e-3


def test_biases_and_normalisations_are_not_decayed():
    model = BertForPreTraining(BertConfig.from_dict({**MODEL, "vocab_size": 75}))
    decayed, others = make_optimizer(model, recipe()["settings"]).param_groups
    assert decayed["weight_decay"] == 0.01
    assert others["weight_decay"] == 0
    names = {id(weight): name for name, weight in model.named_parameters()}
    assert all(names[id(weight)].endswith("weight") for weight in decayed["params"])
    assert {names[id(weight)].split(".")[-2] for weight in decayed["params"]} == {
        "word", "position", "token_type", "qkv", "attention_output", "intermediate", "output", "pooler", "dense",
        "pair_head",
    }  # fmt: skip
    assert len(decayed["params"]) + len(others["params"]) == len(names)


def reference_lamb_of_the_paper(weights, gradients, steps, settings):
    """You et al. 2019, Algorithm 2, x^(i) being a matrix or a vector, phi(z) = z, lambda 0 for biases; in float64."""
    beta1, beta2 = settings["betas"]
    x = dict(weights)
    m = {i: np.zeros_like(value) for i, value in x.items()}
    v = {i: np.zeros_like(value) for i, value in x.items()}
    for t in range(1, steps + 1):
        g = gradients(t)
        for i in x:
            m[i] = beta1 * m[i] + (1 - beta1) * g[i]
            v[i] = beta2 * v[i] + (1 - beta2) * g[i] ** 2
            r = (m[i] / (1 - beta1**t)) / (np.sqrt(v[i] / (1 - beta2**t)) + settings["epsilon"])
            u = r + (0 if i[0].endswith("bias") else settings["weight_decay"]) * x[i]
            phi = np.linalg.norm(x[i].ravel())
            ratio = phi / np.linalg.norm(u.ravel()) if phi > 0 else 1.0  # else a zero bias would never move
            x[i] = x[i] - settings["learning_rate"] * ratio * u
    return x


def test_the_papers_lamb_has_a_trust_ratio_for_every_tensor():
    settings = recipe(lamb_variant="paper")["settings"]
    network, plain = Network(), Network()
    start = {name: value.detach().double().numpy().copy() for name, value in network.named_parameters()}

    def gradients(step):
        random = np.random.default_rng(step)
        return {name: random.standard_normal(value.shape) for name, value in start.items()}

    optimizers = [make_optimizer(network, settings), make_optimizer(plain, recipe()["settings"])]
    for step in range(1, 21):
        for name, gradient in gradients(step).items():
            for moved in (network, plain):
                moved.get_parameter(name).grad = torch.from_numpy(gradient).float()
        for optimizer in optimizers:
            optimizer.step()
    expected = joined(reference_lamb_of_the_paper(apart(start), lambda step: apart(gradients(step)), 20, settings))
    for name, value in network.named_parameters():
        np.testing.assert_allclose(value.detach().numpy(), expected[name], rtol=2e-5, atol=1e-6)
    assert not torch.allclose(network.bias, plain.bias, rtol=1e-2)
    assert torch.equal(network.matrix, plain.matrix)


def reference_lion(weights, gradients, steps, settings):
    """Chen et al. 2023, Algorithm 2 (Lion), lambda 0 for biases; in float64."""
    beta1, beta2 = settings["lion"]["betas"]
    theta = dict(weights)
    m = {name: np.zeros_like(value) for name, value in theta.items()}
    for t in range(1, steps + 1):
        for name, g in gradients(t).items():
            c = beta1 * m[name] + (1 - beta1) * g
            decay = 0 if name.endswith("bias") else settings["weight_decay"]
            theta[name] = theta[name] - settings["learning_rate"] * (np.sign(c) + decay * theta[name])
            m[name] = beta2 * m[name] + (1 - beta2) * g
    return theta


def test_lion_is_that_of_its_paper():
    settings = recipe(optimizer="lion", learning_rate=0.003, weight_decay=0.2)["settings"]
    network = Network()
    start = {name: value.detach().double().numpy().copy() for name, value in network.named_parameters()}

    def gradients(step):
        random = np.random.default_rng(step)
        return {name: random.standard_normal(value.shape) for name, value in start.items()}

    optimizer = make_optimizer(network, settings)
    for step in range(1, 21):
        for name, gradient in gradients(step).items():
            network.get_parameter(name).grad = torch.from_numpy(gradient).float()
        optimizer.step()
    expected = reference_lion(start, gradients, 20, settings)
    for name, value in network.named_parameters():
        np.testing.assert_allclose(value.detach().numpy(), expected[name], rtol=2e-5, atol=1e-6)
        assert np.abs(expected[name] - start[name]).max() > 1e-2


def test_sgd_is_that_of_torch():
    networks = Network(), Network()
    weights = dict(networks[1].named_parameters())
    groups = [
        {"params": [weight for name, weight in weights.items() if not name.endswith("bias")], "weight_decay": 0.03},
        {"params": [weight for name, weight in weights.items() if name.endswith("bias")]},
    ]
    optimizers = (
        make_optimizer(networks[0], recipe(optimizer="sgd", learning_rate=0.1, weight_decay=0.03)["settings"]),
        torch.optim.SGD(groups, lr=0.1, momentum=0.9),
    )
    for step in range(10):
        for network, optimizer in zip(networks, optimizers, strict=True):
            torch.manual_seed(step)
            for weight in network.parameters():
                weight.grad = torch.randn_like(weight)
            optimizer.step()
    for ours, theirs in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


class Factored(torch.optim.Optimizer):
    """Scales gradients by means of their squares over rows, as Adafactor does: state of another shape and type."""

    def new_state(self, weight):
        return {"updates": torch.zeros((), dtype=torch.int64), "row_means": torch.zeros(len(weight))}

    @torch.no_grad()
    def step(self):
        for weight in self.param_groups[0]["params"]:
            state = self.state[weight] = self.state[weight] or self.new_state(weight)
            state["updates"] += 1
            state["row_means"].lerp_(
                weight.grad.square().flatten(1).mean(1) if weight.ndim > 1 else weight.grad**2, 0.1
            )
            scale = state["row_means"].sqrt().view(-1, *[1] * (weight.ndim - 1)) * state["updates"]
            weight -= 0.01 * weight.grad / (scale + 1e-6)


@pytest.fixture
def factored(monkeypatch):
    def make(parameters, settings, *, compiled):
        return Factored([weight for _, weight in parameters], {})

    monkeypatch.setitem(OPTIMIZERS, "factored", Entry(make, Factored.new_state))


@pytest.mark.parametrize(
    ("kind", "compiled"),
    [
        ("lamb", False),
        ("adamw", False),
        ("lion", False),
        ("sgd", False),
        ("soap", False),
        ("shampoo", False),
        ("factored", False),
        pytest.param("lamb", True, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("factored")
def test_restored_moments_continue_with_the_same_bits(kind, compiled):
    def run(network, optimizer, steps):
        for step in steps:
            torch.manual_seed(step)
            for weight in network.parameters():
                weight.grad = torch.randn_like(weight)
            optimizer.step()

    settings = recipe(optimizer=kind)["settings"]
    straight = Network()
    run(straight, make_optimizer(straight, settings, compiled=compiled), range(6))

    network = Network()
    optimizer = make_optimizer(network, settings, compiled=compiled)
    run(network, optimizer, range(3))
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer, network).items()}
    resumed = Network()
    resumed.load_state_dict(network.state_dict())
    optimizer = make_optimizer(resumed, settings, compiled=compiled)
    load_optimizer_tensors(optimizer, resumed, saved, kind=kind)
    run(resumed, optimizer, range(3, 6))
    for name, weight in straight.named_parameters():
        assert torch.equal(weight, resumed.get_parameter(name))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["nvidia", "paper"])
def test_a_compiled_step_is_that_of_the_eager_one(variant):
    settings = recipe(lamb_variant=variant)["settings"]
    networks = Network(), Network()
    optimizers = [make_optimizer(networks[compiled], settings, compiled=bool(compiled)) for compiled in (0, 1)]
    for step in range(1, 8):
        for network, optimizer in zip(networks, optimizers, strict=True):
            torch.manual_seed(step)
            for name, weight in network.named_parameters():
                weight.grad = None if name == "unused" else torch.randn_like(weight)
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / step
            optimizer.step()
    for eager, compiled in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-7)


def test_lamb_leaves_a_weight_whose_update_is_zero_as_it_is():
    """Its trust ratio would be a division by zero."""
    network = Network()
    start = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    optimizer = make_optimizer(network, recipe(lamb_variant="paper", weight_decay=0.0)["settings"])
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    for name, weight in network.named_parameters():
        assert torch.equal(weight, start[name]), name


def test_a_reset_starts_bias_correction_anew_and_keeps_moments():
    network = Network()
    optimizer = make_optimizer(network, recipe()["settings"])
    for weight in network.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    saved = optimizer_tensors(optimizer, network)
    fresh = make_optimizer(network, recipe()["settings"])
    load_optimizer_tensors(fresh, network, saved, kind="lamb", reset_step=True)
    state = fresh.state[network.matrix]
    assert state["step"] == 0
    assert torch.equal(state["exp_avg"], saved["matrix.exp_avg"])
    assert saved["matrix.step"] == 1


@pytest.mark.parametrize("kind", ["adamw", "muon", "soap", "shampoo"])
def test_moments_of_the_phase_before_are_of_use_without_a_restart_of_bias_correction(kind):
    """Which would multiply these updates by 10 / 1000 ** 0.5: gradients do not change."""
    given = recipe(optimizer=kind, betas=[0.9, 0.999], weight_decay=0.0)["settings"]
    for name in {kind} & {"soap", "shampoo"}:
        given[name] |= {"betas": [0.9, 0.999]}
    network = Network()
    optimizer = make_optimizer(network, given)
    torch.manual_seed(2)
    for weight in network.parameters():
        weight.grad = torch.randn_like(weight)
    changes = []
    for step in range(40):
        if step == 39:
            saved = optimizer_tensors(optimizer, network)
            optimizer = make_optimizer(network, given)
            resets = OPTIMIZERS[kind].restarts_bias_correction
            load_optimizer_tensors(optimizer, network, saved, kind=kind, reset_step=resets)
        before = network.bias.detach().clone()
        optimizer.step()
        changes.append((network.bias.detach() - before).norm())
    torch.testing.assert_close(changes[-1], changes[-2], rtol=0.05, atol=0)


def test_the_schema_names_the_registered_optimizers():
    schema = load_schema(Path(__file__).parents[2] / "config/config.schema.yaml")
    assert set(definition(schema, "phase")["properties"]["optimizer"]["enum"]) == OPTIMIZERS.keys()


def test_a_missing_moment_is_an_error():
    network = Network()
    optimizer = make_optimizer(network, recipe()["settings"])
    with pytest.raises(BertlineError, match=r"moment matrix\.step of lamb is missing"):
        load_optimizer_tensors(optimizer, network, {}, kind="lamb")
