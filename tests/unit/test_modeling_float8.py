"""Products in 8 bits: exact where the numbers fit, near where they do not, and trained with."""

from __future__ import annotations

import pytest
import torch
from gradient_helpers import accumulate
from synthetic_dataset import recipe, write_dataset
from torch import nn
from training_processes import journal, train

from bertline.console import BertlineError
from bertline.modeling.bert import BertModel
from bertline.modeling.float8 import Float8Linear, compute_in_float8
from bertline.modeling.network_config import BertConfig
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import make_model
from bertline.training.objective import prepare_precision


def both(inputs: int, outputs: int) -> tuple[nn.Linear, nn.Linear]:
    """A layer, and one with the same weights that computes in 8 bits."""
    torch.manual_seed(2)
    plain, other = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)
    other.load_state_dict(plain.state_dict())
    compute_in_float8(nn.ModuleList([other]))
    assert type(other) is Float8Linear
    return plain, other


def results(layer: nn.Linear, given: torch.Tensor, gradient: torch.Tensor) -> list[torch.Tensor]:
    """What comes out, and the gradients of input, weight and bias."""
    given = given.clone().requires_grad_()
    out = layer(given)
    return [out.float(), *torch.autograd.grad((out * gradient).sum(), [given, layer.weight, layer.bias])]


@pytest.mark.parametrize("rows", [(16,), (3, 7)])
def test_numbers_that_fit_into_8_bits_are_multiplied_exactly(rows):
    """Small integers next to the types' largest numbers, which make the scale 1, and sums that bfloat16 can hold."""
    plain, other = both(16, 32)
    given = torch.randint(-2, 3, (*rows, 16)).float()
    given[..., 0, :], given[..., 0, 0] = 0, 448.0  # alone in its row
    weight = torch.randint(-2, 3, (32, 16)).float()
    weight[:, 0], weight[0] = 0, 0
    weight[0, 0] = 448.0
    with torch.no_grad():
        for layer in (plain, other):
            layer.weight.copy_(weight)
            layer.bias.zero_()
    gradient = torch.randint(-1, 2, (*rows, 32)).float()
    gradient[..., 0, :] = 0
    gradient[(0,) * len(rows)][0] = 57344.0
    for found, expected in zip(results(other, given, gradient), results(plain, given, gradient), strict=True):
        assert torch.equal(found, expected.bfloat16().float())


@pytest.mark.parametrize("rows", [1, 40])
def test_other_numbers_are_off_by_a_few_percent(rows):
    plain, other = both(64, 48)
    given, gradient = torch.randn(rows, 64) * 1e-4, torch.randn(rows, 48) * 1e3  # far from 8 bits without a scale
    for found, expected in zip(results(other, given, gradient), results(plain, given, gradient), strict=True):
        assert (found - expected).norm() < 0.1 * expected.norm()


def test_numbers_that_are_not_finite_stay_so_and_zeros_are_harmless():
    _, other = both(16, 16)
    for bad in (torch.nan, torch.inf):
        given = torch.ones(16, 16)
        given[3, 3] = bad
        assert not other(given).isfinite().all()
    assert torch.equal(other(torch.zeros(5, 16)), other.bias.bfloat16().expand(5, 16))


def test_only_layers_are_changed_and_only_if_their_sizes_allow_it():
    model = BertModel(BertConfig(64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=72))
    names = list(model.state_dict())
    compute_in_float8(model.layers)
    changed = {name for name, module in model.named_modules() if isinstance(module, Float8Linear)}
    assert changed == {"layers.0.qkv", "layers.0.attention_output"}
    assert list(model.state_dict()) == names


def test_an_older_gpu_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(BertlineError, match=r"fp8 needs a GPU of compute capability 8\.9 .* take bf16"):
        prepare_precision("fp8", torch.device("cuda", 0))


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def test_the_gradient_of_a_global_batch_points_where_that_of_bf16_does(card):
    data = open_training_data(card, 32, torch.device("cpu"))
    found = {}
    for precision in ("bf16", "fp8"):
        given = recipe(precision=precision)
        given["model"] = {**given["model"], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = make_model(given, data)
        if precision == "fp8":
            compute_in_float8(model.encoder.layers)
        accumulator = GradientAccumulator(model, data, given, Group(0, 1, torch.device("cpu")), Batching(32, 5))
        accumulator.seek(0)
        accumulate(accumulator, 0)
        accumulator.close()
        found[precision] = {name: weight.grad for name, weight in model.named_parameters() if weight.ndim == 2}
    for name, gradient in found["fp8"].items():
        assert torch.cosine_similarity(gradient.flatten(), found["bf16"][name].flatten(), dim=0) > 0.97, name


def test_a_phase_learns_as_in_bf16(card, tmp_path):
    losses = {}
    for precision in ("bf16", "fp8"):
        output = tmp_path / precision
        train(recipe(steps=20, precision=precision), card, output, evaluate_every=0, log_every=2)
        losses[precision] = [point["metrics"].get("train/loss", 0.0) for point in journal(output)]
    assert losses["fp8"] != losses["bf16"]
    assert losses["fp8"] == pytest.approx(losses["bf16"], rel=0.01)
