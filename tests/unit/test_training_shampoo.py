"""SOAP and Shampoo compared with their authors' and pytorch_optimizer's code, on a network's layers, and killed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from synthetic_dataset import recipe, write_dataset
from training_processes import train, train_killed_five_times

from bertline.console import BertlineError
from bertline.files import read_json, sha256_of_file
from bertline.training.optimizers.registry import load_optimizer_tensors, make_optimizer, optimizer_tensors
from bertline.training.optimizers.shampoo import _inverse_root

REFERENCES = Path(__file__).parent / "references"
REFERENCE = read_json(REFERENCES / "soap.json")  # also weights and gradients of that of Shampoo
SOAP = {"betas": [0.95, 0.95], "epsilon": 1e-8, "basis_interval": 10, "largest_side": 10000}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def tensors_of(values):
    """The reference's tensors, with query, key and value stacked."""
    given = {name: torch.tensor(values[name]).view(shape) for name, shape in REFERENCE["shapes"].items()}
    return {
        "square": given["square"],
        "qkv.weight": torch.cat([given[name] for name in ("query", "key", "value")]),
        "long": given["long"],
        "bias": given["vector"],
    }


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        start = tensors_of(REFERENCE["weights"])
        self.square = torch.nn.Parameter(start["square"])
        self.qkv = torch.nn.Linear(4, 12, bias=False)
        self.qkv.weight.data = start["qkv.weight"]
        self.long = torch.nn.Parameter(start["long"])
        self.bias = torch.nn.Parameter(start["bias"])


def train_on_reference(optimizer, settings, weights_after_steps):
    """Give a network the reference's gradients, and compare its weights after each step."""
    network = Network()
    given = recipe(optimizer=optimizer, learning_rate=0.02, weight_decay=0.03, **{optimizer: settings})["settings"]
    made = make_optimizer(network, given)
    for step, after in zip(REFERENCE["steps"], weights_after_steps, strict=True):
        gradients, expected = tensors_of(step["gradients"]), tensors_of(after)
        for name, weight in network.named_parameters():
            weight.grad = gradients[name]
        made.step()
        for name, weight in network.named_parameters():
            torch.testing.assert_close(weight.detach(), expected[name], rtol=1e-4, atol=1e-5)
    start = tensors_of(REFERENCE["weights"])
    assert all((weight - start[name]).abs().max() > 0.05 for name, weight in network.named_parameters())
    return {name for name in optimizer_tensors(made, network) if name.startswith("long")}


def test_updates_of_soap_are_those_of_pytorch_optimizer():
    settings = {**SOAP, "betas": [0.9, 0.95], "basis_interval": 3, "largest_side": 8}
    tensors = train_on_reference("soap", settings, [step["weights"] for step in REFERENCE["steps"]])
    assert tensors == {f"long.{name}" for name in ("step", "exp_avg", "exp_avg_sq", "right_factor", "right_basis")}


def test_updates_of_shampoo_are_those_of_distributed_shampoo():
    settings = {"betas": [0.9, 0.95], "epsilon": 1e-8, "factor_epsilon": 1e-12, "root_interval": 3, "largest_side": 8}
    tensors = train_on_reference("shampoo", settings, read_json(REFERENCES / "shampoo.json")["steps"])
    assert tensors == {f"long.{name}" for name in ("step", "exp_avg", "exp_avg_sq", "right_factor", "right_root")}


def test_the_first_update_of_shampoo_is_that_of_its_definition():
    """Epsilon is compared with the gradient's own products: with averages that are corrected for their start."""
    given = recipe(optimizer="shampoo", learning_rate=0.02, weight_decay=0.0)["settings"]
    given["shampoo"] = {
        "betas": [0.9, 0.99], "epsilon": 1e-8, "factor_epsilon": 0.5, "root_interval": 1, "largest_side": 8
    }  # fmt: skip
    network = Network()
    gradients, before = tensors_of(REFERENCE["steps"][0]["gradients"]), network.square.detach().clone()
    for name, weight in network.named_parameters():
        weight.grad = gradients[name]
    make_optimizer(network, given).step()

    def root(factor):
        values, vectors = torch.linalg.eigh(factor)
        assert values.min() < 0.5 < values.max()
        return vectors @ torch.diag((values + 0.5 - values.min()) ** -0.25) @ vectors.T

    gradient = gradients["square"].double()
    direction = root(gradient @ gradient.T) @ gradient @ root(gradient.T @ gradient)
    adams = gradient / (gradient.abs() + 1e-8)
    expected = before - 0.02 * direction * adams.norm() / direction.norm()
    torch.testing.assert_close(network.square.detach(), expected.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["soap", "shampoo"])
def test_sides_up_to_the_largest_have_a_factor(optimizer):
    network = torch.nn.Linear(8, 9, bias=False)
    given = recipe(optimizer=optimizer)["settings"]
    for largest, sides in ((9, {"left", "right"}), (8, {"right"}), (7, set())):
        given[optimizer] |= {"largest_side": largest}
        made = make_optimizer(network, given)
        names = made.new_state(network.weight)
        assert {name.removesuffix("_factor") for name in names if name.endswith("_factor")} == sides


@pytest.mark.parametrize("epsilon", [1e-12, 1e-16, 1e-30])
@pytest.mark.parametrize("norm", [1.0, 100.0])
def test_roots_of_singular_factors_are_finite(epsilon, norm):
    """In float32 the least eigenvalues are rounding errors, also negative ones, larger than epsilon."""
    torch.manual_seed(0)
    gradient = torch.randn(1, 64, 384)
    gradient *= norm / gradient.norm()
    assert _inverse_root(gradient.mT @ gradient, epsilon).isfinite().all()


def test_before_the_first_roots_shampoo_is_adamw():
    settings = {"betas": [0.9, 0.999], "epsilon": 1e-8, "root_interval": 100}
    networks = [Network(), Network()]
    given = recipe(optimizer="shampoo", learning_rate=0.02, weight_decay=0.03)["settings"]
    given["shampoo"] |= settings
    adamw = recipe(optimizer="adamw", learning_rate=0.02, weight_decay=0.03, betas=[0.9, 0.999], epsilon=1e-8)
    optimizers = [make_optimizer(networks[0], given), make_optimizer(networks[1], adamw["settings"])]
    for step in REFERENCE["steps"]:
        for network, optimizer in zip(networks, optimizers, strict=True):
            for name, weight in network.named_parameters():
                weight.grad = tensors_of(step["gradients"])[name]
            optimizer.step()
    for ours, theirs in zip(*(network.parameters() for network in networks), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_moments_that_a_phase_with_shorter_intervals_takes_over_are_of_use_at_once():
    settings = {"betas": [0.9, 0.999], "epsilon": 1e-8, "factor_epsilon": 1e-12, "largest_side": 10000}
    network, gradients = Network(), REFERENCE["steps"][0]["gradients"]
    makes = [
        recipe(optimizer="shampoo", weight_decay=0.0, shampoo={**settings, "root_interval": n})["settings"]
        for n in (100, 2)
    ]
    optimizer = make_optimizer(network, makes[0])
    for step in range(3):
        if step == 2:
            carried = optimizer_tensors(optimizer, network)
            optimizer = make_optimizer(network, makes[1])
            load_optimizer_tensors(optimizer, network, carried, kind="shampoo")
        before = {name: weight.clone() for name, weight in network.named_parameters()}
        for name, weight in network.named_parameters():
            weight.grad = tensors_of(gradients)[name] * (step + 1)
        optimizer.step()
        assert all((weight != before[name]).any() for name, weight in network.named_parameters())


def test_moments_in_a_basis_that_is_left_out_are_refused():
    """SOAP's second moments are in it; Shampoo's are in none, and it may use fewer factors."""
    for kind, settings in (("soap", SOAP), ("shampoo", recipe()["settings"]["shampoo"])):
        network = Network()
        optimizers = [
            make_optimizer(network, recipe(optimizer=kind, **{kind: {**settings, "largest_side": side}})["settings"])
            for side in (10000, 4)
        ]
        for name, weight in network.named_parameters():
            weight.grad = tensors_of(REFERENCE["steps"][0]["gradients"])[name]
        optimizers[0].step()
        saved = optimizer_tensors(optimizers[0], network)
        if kind == "shampoo":
            load_optimizer_tensors(optimizers[1], network, saved, kind=kind)
        else:
            with pytest.raises(BertlineError, match=r"are in the basis \w+\.left_basis, which largest_side leaves out"):
                load_optimizer_tensors(optimizers[1], network, saved, kind=kind)


def test_bases_stay_orthogonal():
    network = Network()
    optimizer = make_optimizer(network, recipe(optimizer="soap", soap={**SOAP, "basis_interval": 2})["settings"])
    for step in range(20):
        torch.manual_seed(step)
        for weight in network.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step()
    for name, basis in optimizer_tensors(optimizer, network).items():
        if name.endswith("basis"):
            torch.testing.assert_close(basis @ basis.mT, torch.eye(basis.shape[-1]).expand_as(basis))


@pytest.mark.parametrize(
    ("optimizer", "ranks", "options"),
    [
        ("soap", 1, {}),
        ("shampoo", 1, {}),
        pytest.param("soap", 2, {"sharded_optimizer": True}, marks=pytest.mark.slow),
        pytest.param("shampoo", 2, {"sharded_optimizer": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_killed_at_five_moments_it_ends_with_the_same_bits(card, tmp_path, optimizer, ranks, options):
    given = recipe(steps=60, optimizer=optimizer, learning_rate=1e-3)
    train(given, card, tmp_path / "straight", ranks=ranks, **options)
    output = tmp_path / "phase"
    train_killed_five_times(given, card, output, ranks=ranks, **options)
    for name in ("model.safetensors", "checkpoints/step-00000060/optimizer.safetensors"):
        assert sha256_of_file(output / name) == sha256_of_file(tmp_path / "straight" / name)
