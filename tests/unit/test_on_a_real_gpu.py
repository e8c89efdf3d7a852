"""A GPU computes what a CPU computes, and a phase on it ends the same in every way it can be run. Needs a GPU.

BERTLINE_REHEARSE_GPU=1 lets a CPU take the GPU's place, so that the tests themselves can be tried without one.
"""

from __future__ import annotations

import os
import shutil

import pytest
import torch
from gradient_helpers import accumulate
from synthetic_dataset import MODEL, recipe, write_dataset
from torch.nn.utils.rnn import pad_sequence
from training_processes import journal, train

from bertline.encoding.masking import Masking
from bertline.files import sha256_of_file
from bertline.modeling.activations import gelu
from bertline.modeling.attention import Packed, attend, attend_in_rows
from bertline.modeling.dropout import drop
from bertline.training.data.batches import global_batch
from bertline.training.data.collation import mask_batch, micro_batches
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import make_model
from bertline.training.micro_batch import fix_shapes_of_phase
from bertline.training.objective import prepare_network

REHEARSED = "BERTLINE_REHEARSE_GPU" in os.environ and not torch.cuda.is_available()
pytestmark = pytest.mark.skipif(not (torch.cuda.is_available() or REHEARSED), reason="there is no GPU here")

CPU = torch.device("cpu")
GPU = CPU if REHEARSED else torch.device("cuda", 0)
# The trainers of --deterministic, which inherit it, need it before PyTorch 2.13.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def named(options):
    return "+".join(options) or "plain"


FP16 = pytest.param("fp16", marks=pytest.mark.skipif(REHEARSED, reason="fp16 is for GPUs"))
CUDA_GRAPHS = {"compiled": True, "cuda_graphs": True}
WITH_CUDA_GRAPHS = pytest.param(
    CUDA_GRAPHS, id=named(CUDA_GRAPHS), marks=pytest.mark.skipif(REHEARSED, reason="a CPU has no CUDA graphs")
)
WITHOUT_DROPOUT = {**MODEL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def without_dropout(**settings):
    return {**recipe(**settings), "model": WITHOUT_DROPOUT}


def gradient_of(card, device, *, packed=False, compiled=False, precision="fp32"):
    """Of a global batch, with the statistics."""
    data, given = open_training_data(card, 32, device), without_dropout(precision=precision)
    model = make_model(given, data)
    prepare_network(model, precision, device)
    model.to(device)
    batching = Batching(32, 5, packed=packed)
    if compiled:
        batching = fix_shapes_of_phase(batching, data, given, 1)
    accumulator = GradientAccumulator(model, data, given, Group(0, 1, device), batching, compiled=compiled)
    accumulator.seek(3)
    accumulate(accumulator, 3)
    accumulator.close()
    parts = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    return torch.cat([*parts, accumulator.gradients.statistics]).cpu()


@pytest.mark.parametrize("packed", [False, True], ids=["rows", "packed"])
def test_masks_are_those_of_the_cpu(card, packed):
    masking, found = Masking(0.3, whole_word=True), []
    for device in (CPU, GPU):
        data = open_training_data(card, 32, device)
        batch = global_batch(data.train.lengths, start=5, size=40, seed=3, masking=masking)
        [made] = micro_batches(batch, data.train, Batching(32, 40, packed=packed))
        masked = mask_batch(made.to(device), seed=3, masking=masking, vocabulary=data.vocabulary)
        found.append([tensor.cpu() for tensor in masked])
    for on_cpu, on_gpu in zip(*found, strict=True):
        assert torch.equal(on_cpu, on_gpu)


PRECISIONS = pytest.mark.parametrize(("precision", "least"), [("fp32", 0.999999), ("bf16", 0.999)])


def check_gradients(card, *, precision, least, **options):
    expected, found = gradient_of(card, CPU), gradient_of(card, GPU, precision=precision, **options)
    torch.testing.assert_close(found[-5:], expected[-5:], rtol=0.02, atol=3)
    assert torch.cosine_similarity(found[:-5], expected[:-5], dim=0) > least


@pytest.mark.parametrize("packed", [False, True], ids=["rows", "packed"])
@PRECISIONS
def test_gradients_are_those_of_the_cpu(card, packed, precision, least):
    check_gradients(card, packed=packed, precision=precision, least=least)


def test_packed_attention_is_that_of_padded_rows():
    from test_modeling_attention import heads, packed_of

    lengths = [5, 1, 12, 6]
    packed = packed_of(lengths, room=3, longest=12)
    packed = packed._replace(cu_seqlens=packed.cu_seqlens.to(GPU), positions=packed.positions.to(GPU))
    given = [tensor.detach().to(GPU, torch.bfloat16) for tensor in heads(sum(lengths))]
    found = attend(*(tensor[None] for tensor in given), packed, dropout=0.0)[0]
    expected = attend_in_rows(*given, packed, 0.0).flatten(1)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_packed_attention_with_dropout_has_the_mean_of_attention_without_and_its_own_gradient(dtype):
    """In half precision by FlashAttention, in single by rows."""
    lengths = [50, 7, 64, 33]
    starts = torch.tensor([0, *lengths, 0]).cumsum(0).int().to(GPU)
    packed = Packed(starts, torch.cat([torch.arange(length) for length in lengths]).to(GPU), 64)
    torch.manual_seed(4)
    given = [torch.randn(1, sum(lengths), 4, 64).to(GPU, dtype).requires_grad_() for _ in range(3)]

    def attended(seed, value, dropout=0.1):
        torch.manual_seed(seed)
        return attend(given[0], given[1], value, packed, dropout=dropout).float()

    with torch.no_grad():
        mean = sum(attended(seed, given[2]) for seed in range(400)) / 400
        torch.testing.assert_close(mean, attended(0, given[2], dropout=0.0), rtol=0, atol=0.1)
        assert torch.equal(attended(7, given[2]), attended(7, given[2]))
        assert not torch.equal(attended(7, given[2]), attended(8, given[2]))
    # With the same weights dropped, the result is linear in the values: the gradient, too, has dropped these.
    found = attended(7, given[2]).square().sum()
    [gradient] = torch.autograd.grad(found, given[2], retain_graph=True)
    assert (gradient.float() * given[2].float()).sum().item() == pytest.approx(2 * found.item(), rel=0.02)
    for of_scores in torch.autograd.grad(found, given[:2]):
        assert of_scores.isfinite().all()
        assert of_scores.abs().max() > 0


def check_same_bits(card, folder, optimizer, options, **settings):
    """Resume a phase from its second step, and compare with the phase itself."""
    given = recipe(steps=6, optimizer=optimizer, learning_rate=2e-3, precision="bf16", **settings)
    options = {"deterministic": True, "micro_batch_tokens": 128, **options}
    checkpoint = "checkpoints/step-00000002"
    train(given, card, folder / "whole", keep_steps=(2,), **options)
    shutil.copytree(folder / "whole" / checkpoint, folder / "phase" / checkpoint)
    resumed = train(given, card, folder / "phase", **options).log.read_text()
    assert "at step 2" in resumed
    assert "no longer the same bits" not in resumed
    found, expected = (sha256_of_file(folder / name / "model.safetensors") for name in ("phase", "whole"))
    assert found == expected


@pytest.mark.parametrize("optimizer", ["lamb", "adamw", "muon", "lion", "soap", "shampoo"])
def test_a_stopped_phase_ends_with_the_same_bits(card, tmp_path, optimizer):
    check_same_bits(card, tmp_path, optimizer, {})


@pytest.mark.parametrize("method", ["eigen", "inverse"])
def test_a_stopped_phase_with_kfac_ends_with_the_same_bits(card, tmp_path, method):
    from test_training_kfac import KFAC

    check_same_bits(card, tmp_path, "lamb", {}, kfac={**KFAC, "method": method})


def test_packed_with_attention_dropout_it_does_as_well(card, tmp_path):
    check_same_bits(card, tmp_path, "adamw", {}, packing=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["packed", "padded rows", "full rows"])
def test_attention_is_that_of_float64_on_the_cpu(form, dtype):
    lengths = [64] * 4 if form == "full rows" else [50, 7, 64, 33]
    torch.manual_seed(2)
    given = [torch.randn(sum(lengths), 4, 64) for _ in range(3)]
    weights = torch.randn(sum(lengths), 4 * 64)
    exact = [tensor.double().requires_grad_() for tensor in given]
    expected = _attention_one_by_one(exact, lengths)
    expected = [expected, *torch.autograd.grad((expected * weights.double()).sum(), exact)]
    placed = [tensor.to(GPU, dtype).requires_grad_() for tensor in given]
    found = _attention_of_form(placed, lengths, form)
    found = [found, *torch.autograd.grad((found * weights.to(GPU, dtype)).sum(), placed)]
    for ours, theirs in zip(found, expected, strict=True):
        error = (ours.double().cpu() - theirs).norm() / theirs.norm()
        assert error < (1e-5 if dtype == torch.float32 else 2e-2)


def _attention_one_by_one(heads, lengths):
    """In float64: softmax(q k / sqrt(d)) v of each sequence."""
    parts = zip(*(tensor.split(lengths) for tensor in heads), strict=True)
    found = []
    for query, key, value in parts:
        scores = torch.einsum("qhd,khd->hqk", query, key) / query.shape[-1] ** 0.5
        found.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1))
    return torch.cat(found)


def _attention_of_form(heads, lengths, form):
    """The same by our kernels: [tokens, hidden]."""
    if form == "packed":
        starts = torch.tensor([0, *lengths]).cumsum(0).int().to(GPU)
        positions = torch.cat([torch.arange(length) for length in lengths]).to(GPU)
        return attend(*(tensor[None] for tensor in heads), Packed(starts, positions, max(lengths)), dropout=0.0)[0]
    rows = [pad_sequence(tensor.split(lengths), batch_first=True) for tensor in heads]
    inside = torch.arange(max(lengths), device=GPU) < torch.tensor(lengths, device=GPU)[:, None]
    return attend(*rows, inside if form == "padded rows" else None, dropout=0.0)[inside]


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 2e-3), ("bf16", 0.02)])
def test_fifty_steps_learn_what_a_cpu_learns(card, tmp_path, precision, tolerance):
    settings = {"steps": 50, "optimizer": "adamw", "learning_rate": 2e-3}
    train(without_dropout(**settings), card, tmp_path / "cpu", log_every=1, environment={"CUDA_VISIBLE_DEVICES": ""})
    train(without_dropout(**settings, precision=precision), card, tmp_path / "gpu", log_every=1)
    on_cpu, on_gpu = (
        [point["metrics"]["train/loss"] for point in journal(tmp_path / name)[1:]] for name in ("cpu", "gpu")
    )
    assert len(on_cpu) == 50
    assert on_gpu == pytest.approx(on_cpu, rel=tolerance)
    assert on_gpu[-1] < on_gpu[0]


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("bf16", 0.02)])
def test_losses_are_those_of_transformers_while_training(precision, tolerance):
    from test_modeling_bert import both_models, our_loss, random_batch, their_loss

    models = [model.to(GPU) for model in both_models()]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-6) for model in models]
    generator = torch.Generator().manual_seed(2)
    batches = [{name: tensor.to(GPU) for name, tensor in random_batch(generator).items()} for _ in range(2)]
    for step in range(20):
        losses = []
        for loss_of, model, optimizer in zip((our_loss, their_loss), models, optimizers, strict=True):
            with torch.autocast(GPU.type, torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(model, batches[step % 2])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], abs=tolerance)


@pytest.mark.parametrize("packed", [False, True], ids=["rows", "packed"])
@PRECISIONS
def test_compiled_gradients_are_those_of_the_cpu(card, packed, precision, least):
    check_gradients(card, packed=packed, compiled=True, precision=precision, least=least)


def test_compiled_dropout_drops_the_share_and_follows_the_seed():
    compiled = torch.compile(lambda given: drop(given, 0.1), fullgraph=True)
    hidden = torch.ones(512, 2048, device=GPU, requires_grad=True)
    found = []
    for seed in (5, 6, 5):
        torch.manual_seed(seed)
        found.append(compiled(hidden))
    assert torch.equal(found[0], found[2])
    zeros = [(dropped == 0).double().flatten() for dropped in found[:2]]
    for dropped in zeros:
        assert dropped.mean().item() == pytest.approx(0.1, abs=0.002)
        assert abs((dropped[1:] * dropped[:-1]).mean().item() - 0.01) < 0.001
    assert abs((zeros[0] * zeros[1]).mean().item() - 0.01) < 0.001
    [gradient] = torch.autograd.grad(found[0].sum(), hidden)
    assert torch.equal(gradient, found[0].detach())


def test_compiled_gelu_is_exact_to_the_precision_of_its_type():
    given = torch.linspace(-6, 6, 100_001, device=GPU).bfloat16().requires_grad_()
    exact = given.detach().double().requires_grad_()
    found, expected = torch.compile(gelu, fullgraph=True)(given), torch.nn.functional.gelu(exact)
    torch.testing.assert_close(found.double(), expected, rtol=2**-8, atol=1e-6)
    found.float().sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(given.grad.double(), exact.grad, rtol=2**-7, atol=1e-6)


@pytest.fixture(scope="module")
def in_fp32(card, tmp_path_factory):
    """The last point of a training in fp32."""
    folder = tmp_path_factory.mktemp("fp32") / "phase"
    train(without_dropout(steps=12), card, folder)
    return journal(folder)[-1]["metrics"]


@pytest.mark.parametrize("precision", ["tf32", "bf16", FP16])
def test_every_precision_learns_the_same(card, tmp_path, in_fp32, precision):
    train(without_dropout(steps=12, precision=precision), card, tmp_path / "phase")
    found = journal(tmp_path / "phase")[-1]["metrics"]
    for name in ("train/loss", "held_out/mlm_loss"):
        assert found[name] == pytest.approx(in_fp32[name], rel=0.01)


@pytest.fixture(scope="module", params=[False, True], ids=["rows", "packed"])
def without_options(request, card, tmp_path_factory):
    """A recipe, and the last point of its training without further options."""
    given = without_dropout(steps=12, precision="bf16", packing=request.param)
    folder = tmp_path_factory.mktemp("plain") / "phase"
    train(given, card, folder, micro_batch_tokens=128)
    return given, journal(folder)[-1]["metrics"]


@pytest.mark.parametrize(
    "options",
    [
        {"compiled": True},
        WITH_CUDA_GRAPHS,
        {"compiled_optimizer": True},
        {"activation_checkpointing": True},
        {"micro_batch_tokens": "auto"},
        {"deterministic": True},
        {"profile": (3, 4)},
    ],
    ids=named,
)
def test_no_option_alters_what_is_learned(card, tmp_path, without_options, options):
    given, expected = without_options
    train(given, card, tmp_path / "phase", **{"micro_batch_tokens": 128, **options})
    found = journal(tmp_path / "phase")[-1]["metrics"]
    for name in ("train/loss", "held_out/mlm_loss"):
        assert found[name] == pytest.approx(expected[name], rel=0.01)


@pytest.mark.parametrize("options", [{"compiled": True}, WITH_CUDA_GRAPHS], ids=named)
def test_a_stopped_compiled_phase_ends_with_the_same_bits(card, tmp_path, options):
    check_same_bits(card, tmp_path, "lamb", options)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs here")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sharded_optimizer": True},
        {"fsdp": True},
        {"fsdp": True, "load_balancing": "1,0", "activation_checkpointing": True},
        {"load_balancing": "measured"},
        {"load_balancing": "1,0"},
    ],
    ids=named,
)
def test_two_gpus_learn_what_one_learns(card, tmp_path, options):
    given = without_dropout(steps=12)
    train(given, card, tmp_path / "one")
    train(given, card, tmp_path / "two", ranks=2, **options)
    last = [journal(tmp_path / name)[-1]["metrics"] for name in ("one", "two")]
    assert last[1]["held_out/mlm_loss"] == pytest.approx(last[0]["held_out/mlm_loss"], rel=1e-3)
