"""Copies of weights in half precision: the numbers of autocast's conversions, with fewer conversions."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from gradient_helpers import accumulate
from synthetic_dataset import MODEL, recipe, write_dataset
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from bertline.modeling.weight_copies import WeightCopies
from bertline.training import gradient_accumulator
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import make_model
from bertline.training.micro_batch import fix_shapes_of_phase
from bertline.training.objective import make_loss_fn, prepare_network

CPU = torch.device("cpu")
SIZES = ("hidden_size", "num_attention_heads", "intermediate_size")
NETWORKS = {
    "bert": MODEL,
    "one layer": {**MODEL, "num_hidden_layers": 1},  # compiles in half the time
    "roberta": {**MODEL, "architecture": "roberta"},
    "modern": {"architecture": "modern", "num_hidden_layers": 2, **{key: MODEL[key] for key in SIZES}},
}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


@pytest.fixture(autouse=True)
def deterministic(monkeypatch):
    """As compiled programs on a CPU are in a phase."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def accumulator_of(
    card, network="bert", *, precision="bf16", rows=4, compiled=False, by_layer=False, checkpointing=False
):
    data, given = open_training_data(card, 32, CPU), {**recipe(precision=precision), "model": NETWORKS[network]}
    model = make_model(given, data)
    prepare_network(model, precision, CPU)
    model.encoder.activation_checkpointing = checkpointing
    batching = Batching(32, rows)
    if compiled:
        batching = fix_shapes_of_phase(batching, data, given, 1)
    made = GradientAccumulator(model, data, given, Group(0, 1, CPU), batching, compiled=compiled and not by_layer)
    if by_layer:  # as on a GPU
        made._loss_fn = make_loss_fn(model, precision=precision, compiled=True, by_layer=True)
    made.seek(0)
    return made, model, data


@torch.no_grad()
def update(model):
    for weight in model.parameters():
        weight.add_(0.01 if weight.grad is None else -0.1 * weight.grad)


def numbers_of_two_steps(card, **options):
    """The gradients and losses of two steps, the second one with other weights."""
    made, model, _ = accumulator_of(card, **options)
    found = []
    for step in range(2):
        accumulate(made, step)
        found += [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
        found.append(made.gradients.statistics.clone())
        update(model)
    made.close()
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"network": "bert"},
        {"network": "roberta"},
        {"network": "modern"},
        {"precision": "fp32"},
        {"checkpointing": True},
        pytest.param({"network": "one layer", "compiled": True}, marks=pytest.mark.slow),
        pytest.param({"compiled": True, "by_layer": True, "checkpointing": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_gradients_and_losses_have_the_bits_of_autocast(card, monkeypatch, options):
    found = numbers_of_two_steps(card, **options)
    monkeypatch.setattr(gradient_accumulator, "WeightCopies", lambda model, dtype: WeightCopies(model, None))
    expected = numbers_of_two_steps(card, **options)
    assert len(found) == len(expected) > 20
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


class Conversions(TorchDispatchMode):
    """The number of conversions of each large float32 matrix to bfloat16, by its place in memory."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._names = {weight.data_ptr(): name for name, weight in model.named_parameters() if weight.ndim == 2}
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.dtype == torch.bfloat16:
            for given in args:
                if isinstance(given, Tensor) and given.dtype == torch.float32 and given.data_ptr() in self._names:
                    self.counts[self._names[given.data_ptr()]] += 1
        return result


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("network", NETWORKS)
def test_each_matrix_is_converted_once_a_step_whatever_the_number_of_micro_batches(card, network, rows):
    made, model, _ = accumulator_of(card, network, rows=rows)
    with Conversions(model) as conversions:
        batch = accumulate(made, 0)
    made.close()
    assert len(batch.samples) > 2 * rows
    looked_up = {"encoder.embeddings.position.weight", "encoder.embeddings.token_type.weight"}
    matrices = {name for name, weight in model.named_parameters() if weight.ndim == 2} - looked_up
    assert conversions.counts == dict.fromkeys(matrices, 1)


def test_copies_that_are_made_again_take_the_place_of_the_first(card):
    made, model, _ = accumulator_of(card)
    made.close()
    again = WeightCopies(model, torch.bfloat16)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1)
    again.update()
    modules = [module for module in model.modules() if hasattr(module, "weight_copy")]
    assert len(modules) == 12  # four in each of two layers, the pooler, two in the heads, and the word embeddings
    assert all(torch.equal(module.weight_copy, module.weight.bfloat16()) for module in modules)


def test_evaluation_takes_the_weights_of_the_moment(card):
    made, model, data = accumulator_of(card)
    accumulate(made, 0)
    made.close()
    update(model)
    without_copies = make_model({**recipe(), "model": NETWORKS["bert"]}, data)
    without_copies.load_state_dict(model.state_dict())
    input_ids = torch.arange(64).reshape(2, 32)
    given = input_ids, torch.zeros_like(input_ids), None, torch.tensor([3, 40])
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        found, expected = (network.eval()(*given) for network in (model, without_copies))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.slow
def test_programs_of_layers_are_found_again_after_a_restart(card):
    """Operators of our own, which the copies need, would keep a program from PyTorch's cache."""
    for _ in range(2):
        torch._dynamo.reset()  # forgets what a restart forgets
        counters.clear()
        made, _, _ = accumulator_of(card, compiled=True, by_layer=True)
        accumulate(made, 0)
        made.close()
        found = counters["aot_autograd"]
    assert found["autograd_cache_hit"] == found["total"] >= 4
