"""A GPU computes what a CPU computes, and a phase on it ends the same in every way it can be run. Needs a GPU."""

from __future__ import annotations

import pytest
import torch
from gradient_helpers import accumulate
from synthetic_dataset import MODEL, recipe, write_dataset
from training_processes import Trainer, journal, train

from bertline.encoding.masking import Masking
from bertline.files import sha256_of_file
from bertline.modeling.attention import attend, attend_in_rows
from bertline.modeling.float8 import compute_in_float8, knows_float8
from bertline.training.data.batches import Layout, global_batch, mask_batch, micro_batches
from bertline.training.data.opening import open_training_data
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import make_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
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
    if precision == "fp8":
        compute_in_float8(model.encoder.layers)
    model.to(device)
    layout = Layout(32, 5, packed=packed, fixed=compiled)
    accumulator = GradientAccumulator(model, data, given, Group(0, 1, device), layout, compiled=compiled)
    accumulator.seek(3)
    accumulate(accumulator, 3)
    accumulator.close()
    parts = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    return torch.cat([*parts, accumulator.gradients.statistics]).cpu()


@pytest.mark.parametrize("packed", [False, True])
def test_masks_are_those_of_the_cpu(card, packed):
    masking, found = Masking(0.3, whole_word=True), []
    for device in (CPU, GPU):
        data = open_training_data(card, 32, device)
        batch = global_batch(data.train.lengths, start=5, size=40, seed=3, masking=masking)
        [made] = micro_batches(batch, data.train, Layout(32, 40, packed=packed), masking=masking, padding_id=0)
        masked = mask_batch(made.to(device), seed=3, masking=masking, vocabulary=data.vocabulary)
        found.append([tensor.cpu() for tensor in masked])
    for on_cpu, on_gpu in zip(*found, strict=True):
        assert torch.equal(on_cpu, on_gpu)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("precision", "least"), [("fp32", 0.999999), ("bf16", 0.999), ("fp8", 0.97)])
def test_gradients_are_those_of_the_cpu(card, packed, compiled, precision, least):
    if precision == "fp8" and not knows_float8(GPU):
        pytest.skip("this GPU knows no fp8")
    expected = gradient_of(card, CPU)
    found = gradient_of(card, GPU, packed=packed, compiled=compiled, precision=precision)
    torch.testing.assert_close(found[-5:], expected[-5:], rtol=0.1 if precision == "fp8" else 0.02, atol=3)
    assert torch.cosine_similarity(found[:-5], expected[:-5], dim=0) > least


def test_packed_attention_is_that_of_padded_rows():
    from test_modeling_attention import heads, packed_of

    lengths = [5, 1, 12, 6]
    packed = packed_of(lengths, room=3, longest=12)
    packed = packed._replace(cu_seqlens=packed.cu_seqlens.to(GPU), positions=packed.positions.to(GPU))
    given = [tensor.detach().to(GPU, torch.bfloat16) for tensor in heads(sum(lengths))]
    found = attend(*(tensor[None] for tensor in given), packed, dropout=0.0)[0]
    expected = attend_in_rows(*given, packed).flatten(1)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_every_precision_learns_the_same(card, tmp_path, precision):
    for name in ("fp32", precision):
        train(without_dropout(steps=12, precision=name), card, tmp_path / name)
    expected, found = (journal(tmp_path / name)[-1]["metrics"] for name in ("fp32", precision))
    assert found["train/loss"] == pytest.approx(expected["train/loss"], rel=0.01)
    assert found["held_out/mlm_loss"] == pytest.approx(expected["held_out/mlm_loss"], rel=0.01)


@pytest.mark.parametrize(
    "options",
    [
        {"compiled": True},
        {"compiled": True, "cuda_graphs": True},
        {"compiled_optimizer": True},
        {"activation_checkpointing": True},
        {"micro_batch_tokens": None},
        {"deterministic": True},
        {"profile": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("packing", [False, True])
def test_no_option_alters_what_is_learned(card, tmp_path, options, packing):
    given = without_dropout(steps=12, precision="bf16", packing=packing)
    train(given, card, tmp_path / "plain", micro_batch_tokens=128)
    train(given, card, tmp_path / "other", **{"micro_batch_tokens": 128, **options})
    last = [journal(tmp_path / name)[-1]["metrics"] for name in ("plain", "other")]
    assert last[1]["train/loss"] == pytest.approx(last[0]["train/loss"], rel=0.01)
    assert last[1]["held_out/mlm_loss"] == pytest.approx(last[0]["held_out/mlm_loss"], rel=0.01)


@pytest.mark.parametrize("options", [{}, {"compiled": True}, {"compiled": True, "cuda_graphs": True}], ids=str)
@pytest.mark.parametrize("optimizer", ["lamb", "adamw", "muon"])
def test_a_stopped_phase_ends_with_the_same_bits(card, tmp_path, optimizer, options):
    given = recipe(steps=6, optimizer=optimizer, learning_rate=2e-3, precision="bf16")
    options = {"deterministic": True, "micro_batch_tokens": 128, **options}
    train(given, card, tmp_path / "whole", **options)
    assert Trainer(given, card, tmp_path / "phase", stop_after_minutes=0.0, **options).finish() == 75
    resumed = train(given, card, tmp_path / "phase", **options)
    assert "no longer the same bits" not in resumed.log.read_text()
    found, expected = (sha256_of_file(tmp_path / name / "model.safetensors") for name in ("phase", "whole"))
    assert found == expected


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
    ids=str,
)
def test_two_gpus_learn_what_one_learns(card, tmp_path, options):
    given = without_dropout(steps=12)
    train(given, card, tmp_path / "one")
    train(given, card, tmp_path / "two", ranks=2, **options)
    last = [journal(tmp_path / name)[-1]["metrics"] for name in ("one", "two")]
    assert last[1]["held_out/mlm_loss"] == pytest.approx(last[0]["held_out/mlm_loss"], rel=1e-3)
