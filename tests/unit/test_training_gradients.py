"""The gradient of a global batch does not depend on how the batch is divided."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from gradient_helpers import accumulate
from synthetic_dataset import MODEL, recipe, write_dataset

from bertline.console import BertlineError
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.gradients import Gradients
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import make_model
from bertline.training.micro_batch import fix_shapes_of_phase
from bertline.training.objective import make_loss_fn
from bertline.training.options import Options
from bertline.training.setup import prepare_device

WITHOUT_DROPOUT = {**MODEL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SIZES = ("hidden_size", "num_attention_heads", "intermediate_size")
MODERN = {"architecture": "modern", **{key: MODEL[key] for key in SIZES}}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def gradients_of(
    card,
    *,
    rank_weights=(1.0,),
    rows=128,
    packed=False,
    fixed=False,
    compiled=False,
    by_layer=False,
    precision="fp32",
    network=WITHOUT_DROPOUT,
    layers=2,
):
    """The sum over the ranks, as the reduction gives it, with the statistics."""
    given = {**recipe(precision=precision), "model": {**network, "num_hidden_layers": layers}}
    cpu = torch.device("cpu")
    total = None
    for rank in range(len(rank_weights)):
        data = open_training_data(card, 32, cpu)
        batching = Batching(32, rows, packed=packed)
        if fixed:
            batching = fix_shapes_of_phase(batching, data, given, len(rank_weights))
        group = Group(rank, len(rank_weights), cpu)
        model = make_model(given, data)
        accumulator = GradientAccumulator(model, data, given, group, batching, compiled=compiled and not by_layer)
        if by_layer:  # as on a GPU
            accumulator._loss_fn = make_loss_fn(model, precision=precision, compiled=True, by_layer=True)
        accumulator.balance_load(",".join(map(str, rank_weights)))
        accumulator.seek(3)
        accumulate(accumulator, 3)
        accumulator.close()
        parts = [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
        # A rank that had nothing to do has nothing to add.
        here = torch.cat([*parts, accumulator.gradients.statistics]) if parts else 0
        total = here if total is None else total + here
    return total


@pytest.mark.parametrize(
    "divided",
    [
        {"rows": 3},
        {"rank_weights": (1.0, 1.0)},
        {"rank_weights": (1.0, 1.0, 1.0), "rows": 2},
        {"rank_weights": (1.0, 0.3)},
        {"rank_weights": (0.0, 1.0), "rows": 5},
        {"rank_weights": (1.0,) * 20},
        {"packed": True},
        {"packed": True, "rows": 2},
        {"packed": True, "rows": 1, "rank_weights": (1.0, 0.5)},
        {"fixed": True, "rows": 3},
        {"fixed": True, "packed": True, "rows": 3},
    ],
    ids=str,
)
def test_ranks_weights_and_layouts_give_the_same_gradient(card, divided):
    whole = gradients_of(card)
    assert whole.abs().max() > 0.1
    torch.testing.assert_close(gradients_of(card, **divided), whole, rtol=1e-4, atol=1e-6)


def test_every_rank_and_step_draws_other_random_numbers_and_again_the_same(card):
    """Dropout of equal masks on all ranks would be that of a smaller batch."""
    given = {**recipe(), "model": WITHOUT_DROPOUT}
    data = open_training_data(card, 32, torch.device("cpu"))
    model = make_model(given, data)

    def numbers(rank):
        accumulator = GradientAccumulator(model, data, given, Group(rank, 2, torch.device("cpu")), Batching(32, 4))
        accumulator.seek(0)
        found = []
        for step in range(2):
            accumulator.start_step(step)
            found.append(torch.rand(4).tolist())
            for _ in accumulator.micro_batches():
                pass
        accumulator.close()
        return found

    drawn = [*numbers(0), *numbers(1)]
    assert len(set(map(tuple, drawn))) == 4
    assert [*numbers(0), *numbers(1)] == drawn


def test_a_rank_alone_has_the_same_gradients_in_one_buffer(card):
    """Steps as CUDA graphs need them: two, because a buffer that is not cleared shows in the second."""
    given = {**recipe(), "model": WITHOUT_DROPOUT}
    found = []
    for always_flat in (False, True):
        data = open_training_data(card, 32, torch.device("cpu"))
        model = make_model(given, data)
        accumulator = GradientAccumulator(model, data, given, Group(0, 1, torch.device("cpu")), Batching(32, 4))
        names = ("mlm_loss", "mlm_correct", "masked", "pair_loss", "pair_correct")
        accumulator.gradients = Gradients(model, names, world_size=1, always_flat=always_flat)
        accumulator.seek(0)
        for step in range(2):
            accumulate(accumulator, step)
        accumulator.close()
        statistics = accumulator.gradients.reduce()
        found.append(([parameter.grad for parameter in model.parameters()], statistics))
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-8)


def test_cuda_graphs_are_refused_without_a_gpu_and_without_fixed_shapes():
    settings = recipe()["settings"]
    with pytest.raises(BertlineError, match="--cuda-graphs: there is no GPU here"):
        prepare_device(settings, Group(0, 1, torch.device("cpu")), Options(cuda_graphs=True, compiled=True))
    with pytest.raises(BertlineError, match="--cuda-graphs: needs fixed shapes; give --compile"):
        prepare_device(settings, Group(0, 1, torch.device("cuda")), Options(cuda_graphs=True))


@pytest.mark.slow
@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_compiled_network_gives_the_same_gradient(card, packed, by_layer):
    compiled = gradients_of(card, packed=packed, fixed=True, rows=3, compiled=True, by_layer=by_layer, layers=1)
    torch.testing.assert_close(compiled, gradients_of(card, layers=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", [WITHOUT_DROPOUT, MODERN], ids=["bert", "modern"])
def test_layers_share_a_program(card, network, monkeypatch):
    """The last layer, which computes few tokens, has one of its own, and the modern network's first, which has no
    normalisation.
    """
    torch._dynamo.reset()
    compiled, programs = torch.compile, []

    def counted(graph, inputs):
        programs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(compiled, backend=counted))
    found = [gradients_of(card, network=network, fixed=True, by_layer=True, layers=layers) for layers in (2, 4)]
    # Embeddings, layers, last layer, head, and the losses of words and pairs.
    assert len(programs) == {"bert": 6, "modern": 6}[network.get("architecture", "bert")]
    for gradient, layers in zip(found, (2, 4), strict=True):
        torch.testing.assert_close(gradient, gradients_of(card, network=network, layers=layers), rtol=1e-4, atol=1e-5)


def test_bf16_is_close_to_fp32(card):
    whole = gradients_of(card)
    rounded = gradients_of(card, precision="bf16")
    assert not torch.equal(whole, rounded)
    assert torch.linalg.vector_norm(whole - rounded) < 0.03 * torch.linalg.vector_norm(whole)


@pytest.mark.parametrize(("world_size", "always_flat"), [(1, False), (2, False), (1, True)])
def test_clipping_scales_to_the_norm_and_never_up(world_size, always_flat):
    model = torch.nn.Linear(3, 1, bias=False)
    flat = Gradients(model, ("loss",), world_size=world_size, always_flat=always_flat)
    flat.zero()
    (model.weight * torch.tensor([[3.0, 0.0, 4.0]])).sum().backward()
    flat.add({"loss": 100.0})
    assert float(flat.clip(10.0)) == 5
    assert model.weight.grad.tolist() == [[3, 0, 4]]
    assert float(flat.clip(1.0)) == 5
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.0, 0.8]]))
    model.weight.grad.zero_()
    assert float(flat.clip(1.0)) == 0
    assert not model.weight.grad.any()
