"""Hidden states between layers in bfloat16, as bf16 has them on a GPU; computed here on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gradient_helpers import accumulate
from synthetic_dataset import MODEL, recipe, write_dataset
from torch import nn

from bertline.modeling.encoder import tokens_at
from bertline.modeling.normalization import LayerNorm
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import make_model
from bertline.training.objective import prepare_network

CPU, GPU = torch.device("cpu"), torch.device("cuda")
TRAFFIC = Path(__file__).parents[2] / "bench/traffic.py"
SIZES = ("hidden_size", "num_attention_heads", "intermediate_size")
NETWORKS = {
    "bert": {**MODEL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "modern": {"architecture": "modern", "num_hidden_layers": 2, **{key: MODEL[key] for key in SIZES}},
}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def results(module, given, gradient):
    given = given.clone().requires_grad_()
    found = module(given)
    return found, *torch.autograd.grad(found, (given, *module.parameters()), gradient.to(found.dtype))


@pytest.mark.parametrize("bias", [True, False])
def test_normalisation_of_bfloat16_is_that_in_float64_rounded(bias):
    torch.manual_seed(3)
    module = LayerNorm(256, bias=bias)
    for weight in module.parameters():
        weight.data.normal_()
    exact = nn.LayerNorm(256, bias=bias).double()
    exact.load_state_dict(module.state_dict())
    # A mean far from 0: statistics in bfloat16 would have no digit of the variance.
    given, gradient = torch.randn(64, 256).add(8).bfloat16(), torch.randn(64, 256).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = results(module, given, gradient)
    assert [tensor.dtype for tensor in found] == [torch.bfloat16] * 2 + [torch.float32] * (1 + bias)
    for ours, theirs in zip(found, results(exact, given.double(), gradient.double()), strict=True):
        assert (ours - theirs).norm() < 4e-3 * theirs.norm()


def test_normalisation_of_float32_has_the_bits_of_pytorch():
    torch.manual_seed(3)
    module, theirs = LayerNorm(32), nn.LayerNorm(32)
    given, gradient = torch.randn(8, 32), torch.randn(8, 32)
    for ours, expected in zip(results(module, given, gradient), results(theirs, given, gradient), strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_at_masked_positions_is_that_of_index_select(dtype):
    torch.manual_seed(3)
    hidden = torch.randn(4, 8, 16, dtype=dtype, requires_grad=True)
    # Static masks end with positions 0 whose loss is ignored; first tokens follow.
    positions = torch.tensor([3, 31, 7, 12, 0, 0, 0, 8])
    gradient = torch.randn(8, 16, dtype=dtype).mul(torch.tensor([1, 1, 1, 1, 0, 0, 1, 1])[:, None])
    found, expected = tokens_at(hidden, positions), hidden.flatten(0, 1).index_select(0, positions)
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad(tensor, hidden, gradient)[0] for tensor in (found, expected)))


def gradient_of(card, network, *, precision, residual_type=None):
    data, given = open_training_data(card, 32, CPU), {**recipe(precision=precision), "model": NETWORKS[network]}
    model = make_model(given, data)
    model.encoder.residual_type = residual_type
    types = set()
    for layer in model.encoder.layers:
        layer.register_forward_hook(lambda module, given, result: types.add(result.dtype))
    accumulator = GradientAccumulator(model, data, given, Group(0, 1, CPU), Batching(32, 5))
    accumulator.seek(3)
    accumulate(accumulator, 3)
    accumulator.close()
    assert types == {residual_type or torch.float32}
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


@pytest.mark.parametrize("network", NETWORKS)
def test_the_gradient_stays_close_to_that_in_float32(card, network):
    whole = gradient_of(card, network, precision="fp32")
    rounded = gradient_of(card, network, precision="bf16", residual_type=torch.bfloat16)
    assert torch.linalg.vector_norm(whole - rounded) < 0.012 * torch.linalg.vector_norm(whole)


@pytest.mark.parametrize(
    ("precision", "device", "expected"),
    [
        ("bf16", GPU, torch.bfloat16),
        ("fp16", GPU, None),
        ("fp32", GPU, None),
        ("tf32", GPU, None),
        ("bf16", CPU, None),
    ],
)
def test_only_bf16_on_a_gpu_keeps_hidden_states_in_bfloat16(card, precision, device, expected):
    model = make_model({**recipe(), "model": NETWORKS["bert"]}, open_training_data(card, 32, CPU))
    prepare_network(model, precision, device)
    assert model.encoder.residual_type is expected


@pytest.mark.slow
def test_a_layer_moves_at_most_180_h_bytes_in_addition_to_its_products():
    if torch.version.cuda is not None:
        pytest.skip("this PyTorch has a CUDA library of its own")
    command = [sys.executable, TRAFFIC, "--models", "bert-base"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    moved = json.loads(done.stdout.splitlines()[-1])["bert-base"]
    # Of normalisation, residual sums, dropout, activation, biases and attention, each with its backward.
    assert 120 < moved < 180, done.stdout
