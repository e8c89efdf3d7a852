"""A network whose weights are divided among the ranks learns what a whole one learns, and leaves the same files."""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import partial

import pytest
import torch
from gradient_helpers import accumulate
from safetensors.torch import load_file
from synthetic_dataset import MODEL, recipe, write_dataset
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from training_processes import Trainer, journal, train

from bertline.console import BertlineError
from bertline.files import sha256_of_file
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed import fsdp
from bertline.training.distributed.fsdp import apply_fsdp, check_fsdp, own_part, split_whole
from bertline.training.distributed.process_group import Group
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import make_model
from bertline.training.micro_batch import fix_shapes_of_phase
from bertline.training.optimizers.registry import OPTIMIZERS, make_optimizer, optimizer_tensors
from bertline.training.options import Options

WITHOUT_DROPOUT = {**MODEL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
STEPS = 6
GIVEN = recipe(steps=STEPS, learning_rate=2e-3)
# Rank 0 computes four micro-batches of a step and rank 1 two; of the seven held-out samples two and one.
OPTIONS = {"ranks": 2, "load_balancing": "3,1", "micro_batch_tokens": 96, "evaluate_every": 3}
SHARDED = {**OPTIONS, "fsdp": True}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset", held_out=7)


@pytest.fixture(scope="module")
def plain(card, tmp_path_factory):
    output = tmp_path_factory.mktemp("plain") / "phase"
    train(GIVEN, card, output, **OPTIONS)
    return output


@pytest.fixture(scope="module")
def sharded(card, tmp_path_factory):
    output = tmp_path_factory.mktemp("sharded") / "phase"
    train(GIVEN, card, output, **SHARDED)
    return output


@pytest.fixture(scope="module")
def stopped(card, tmp_path_factory):
    """After the first step."""
    output = tmp_path_factory.mktemp("stopped") / "phase"
    trainer = Trainer(GIVEN, card, output, stop_after_minutes=0.0, **SHARDED)
    assert trainer.finish() == 75, trainer.log.read_text()
    return output


def assert_same_phase(found, expected, *, steps=STEPS, tolerance=5e-3, of_journal=1e-4):
    """The same files, their numbers but for rounding, and the same curve."""
    step = f"checkpoints/step-{steps:08d}"
    for name in ("model.safetensors", f"{step}/model.safetensors", f"{step}/optimizer.safetensors"):
        ours, theirs = load_file(found / name), load_file(expected / name)
        assert ours.keys() == theirs.keys()
        for key, tensor in theirs.items():
            # Not number by number: where a gradient is nearly zero, Adam makes much of its last bit.
            assert torch.linalg.vector_norm(ours[key] - tensor) <= tolerance * torch.linalg.vector_norm(tensor), key
    ours, theirs = journal(found), journal(expected)
    for point, other in zip(ours, theirs, strict=True):
        assert point["step"] == other["step"]
        for name in {"train/loss", "train/gradient_norm", "held_out/mlm_loss"} & other["metrics"].keys():
            assert point["metrics"][name] == pytest.approx(other["metrics"][name], rel=of_journal)


def check(options, settings):
    needs_whole_matrices = OPTIMIZERS[settings["optimizer"]].needs_whole_matrices
    check_fsdp(options, {"kfac": None, **settings}, needs_whole_matrices=needs_whole_matrices)


def test_lamb_learns_what_it_learns_with_whole_weights(plain, sharded):
    assert_same_phase(sharded, plain)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        # A rank without samples.
        (
            {"optimizer": "adamw", "packing": True, "precision": "bf16"},
            {"load_balancing": "0,1", "activation_checkpointing": True},
        ),
        # Ranks without rows of some matrices.
        pytest.param(
            {"optimizer": "muon", "precision": "bf16"},
            {"load_balancing": "1,1,1,1", "ranks": 4},
            marks=pytest.mark.slow,
        ),
        # Ranks without rows of the smallest tensors, and in the last micro-batches without samples.
        pytest.param({"lamb_variant": "paper"}, {"load_balancing": "5,1,1,1", "ranks": 4}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_other_recipes_learn_what_they_learn_with_whole_weights(card, tmp_path, settings, options):
    given = recipe(steps=STEPS, learning_rate=2e-3, **settings)
    given["model"] = {**MODEL, "attention_probs_dropout_prob": 0.0}
    train(given, card, tmp_path / "plain", **{**OPTIONS, **options})
    train(given, card, tmp_path / "sharded", **{**SHARDED, **options})
    # A number of bf16 has 8 bits.
    loose = {"tolerance": 1e-2, "of_journal": 1e-3} if settings.get("precision") == "bf16" else {}
    assert_same_phase(tmp_path / "sharded", tmp_path / "plain", **loose)


def test_muon_moves_weights_as_it_moves_whole_ones(card, tmp_path):
    """One update, by a matrix that both ranks store a part of and only one orthogonalises."""
    given = recipe(steps=2, optimizer="muon", learning_rate=2e-3)
    given["model"] = {**MODEL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for name, options in (("plain", OPTIONS), ("sharded", SHARDED)):
        train(given, card, tmp_path / name, **options)
    plain, sharded = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "sharded"))
    for name, weight in plain.items():
        if ".layers." in name and weight.ndim == 2:
            torch.testing.assert_close(sharded[name], weight, rtol=0, atol=1e-6)
    assert_same_phase(tmp_path / "sharded", tmp_path / "plain", steps=2)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_stacked_matrices_are_split_where_they_end_whatever_rows_the_ranks_store(monkeypatch, ranks, count):
    tensor = torch.arange(36.0).view(18, 2)
    monkeypatch.setattr(fsdp, "is_sharded", lambda _: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: ranks)
    found = []
    for rank, part in enumerate([*tensor.chunk(ranks), *[tensor[:0]] * ranks][:ranks]):
        monkeypatch.setattr(distributed, "get_rank", lambda rank=rank: rank)
        found.append(split_whole(part, count, like=tensor))
    assert all(len(parts) == count for parts in found)
    for expected, *parts in zip(tensor.chunk(count), *found, strict=True):
        assert torch.equal(torch.cat(parts), expected)


def test_a_killed_phase_ends_with_the_same_bits(card, tmp_path, sharded):
    output = tmp_path / "phase"
    trainer = Trainer(GIVEN, card, output, checkpoint_every=2, **SHARDED)
    assert trainer.kill_when((output / "checkpoints/step-00000002").exists)
    resumed = train(GIVEN, card, output, **SHARDED).log.read_text()
    assert "resuming" in resumed
    assert "no longer the same bits" not in resumed
    assert sha256_of_file(output / "model.safetensors") == sha256_of_file(sharded / "model.safetensors")


def test_a_phase_continues_with_whole_weights(card, tmp_path, stopped, plain):
    shutil.copytree(stopped, tmp_path / "phase")
    resumed = train(GIVEN, card, tmp_path / "phase", **OPTIONS)
    assert "fsdp was True and is False" in resumed.log.read_text()
    assert_same_phase(tmp_path / "phase", plain)


@pytest.mark.slow
def test_a_phase_continues_with_fsdp(card, tmp_path, plain):
    train(GIVEN, card, tmp_path / "phase", keep_steps=(1,), **OPTIONS)
    shutil.rmtree(tmp_path / f"phase/checkpoints/step-{STEPS:08d}")
    (tmp_path / "phase/recipe.json").unlink()
    resumed = train(GIVEN, card, tmp_path / "phase", **SHARDED)
    assert "at step 1" in resumed.log.read_text()
    assert "fsdp was False and is True" in resumed.log.read_text()
    assert_same_phase(tmp_path / "phase", plain)


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_is_skipped_by_all_ranks(card, tmp_path):
    given = recipe(steps=STEPS, learning_rate=1e30, warmup=0)
    trainer = Trainer(given, card, tmp_path / "phase", **SHARDED)
    assert trainer.finish() == 1
    assert "not finite, 10 times in a row" in trainer.log.read_text()


@pytest.mark.slow
def test_compiled_layers_learn_what_they_learn_with_whole_weights(card, tmp_path):
    given = {**GIVEN, "model": WITHOUT_DROPOUT}
    train(given, card, tmp_path / "plain", **OPTIONS)
    train(given, card, tmp_path / "sharded", **SHARDED, compiled=True)
    assert_same_phase(tmp_path / "sharded", tmp_path / "plain")


@pytest.mark.parametrize("checkpointing", [False, True])
def test_layers_whose_weights_are_sharded_are_compiled_without_a_break(card, monkeypatch, checkpointing):
    """Traced forward and backward, which takes no compiler; one rank."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    cpu, found = torch.device("cpu"), []
    group = Group(0, 1, cpu)
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        for sharded in (False, True):
            data, given = open_training_data(card, 32, cpu), {**recipe(precision="bf16"), "model": WITHOUT_DROPOUT}
            model = make_model(given, data)
            model.encoder.activation_checkpointing = checkpointing
            if sharded:
                apply_fsdp(model, group)
            batching = fix_shapes_of_phase(Batching(32, 3), data, given, 1)
            accumulator = GradientAccumulator(model, data, given, group, batching, compiled=sharded)
            accumulator.seek(0)
            accumulate(accumulator, 0)
            accumulator.close()
            found.append(torch.cat([own_part(weight.grad).flatten() for weight in model.parameters()]))
    finally:
        distributed.destroy_process_group()
    assert torch.linalg.vector_norm(found[1] - found[0]) < 1e-2 * torch.linalg.vector_norm(found[0])


def bytes_of(tensors):
    """Of the memory in which this rank's parts of them lie, some of it in common."""
    storages = [own_part(tensor).untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_a_rank_holds_its_part_of_weights_gradients_and_moments_and_no_more(card):
    """One of three ranks; the others are fake. A number of rows that three does not divide has a few more."""
    cpu, bytes_held = torch.device("cpu"), []
    given = {**recipe(optimizer="adamw"), "model": {**MODEL, "num_hidden_layers": 3}}
    data = open_training_data(card, 32, cpu)
    for rank in range(3):
        distributed.init_process_group("fake", rank=rank, world_size=3, store=FakeStore())
        try:
            model, group = make_model(given, data), Group(rank, 3, cpu)
            total = 4 * sum(weight.numel() for weight in model.parameters())
            apply_fsdp(model, group)
            accumulator = GradientAccumulator(model, data, given, group, Batching(32, 3))
            optimizer = make_optimizer(model, given["settings"])
            accumulator.seek(0)
            accumulate(accumulator, 0)
            accumulator.close()
            optimizer.step()
            moments = [tensor for name, tensor in optimizer_tensors(optimizer, model).items() if "exp" in name]
            gradients = [weight.grad for weight in model.parameters()]
            assert len(moments) == 2 * len(gradients)
            held = [bytes_of(kind) for kind in (model.parameters(), gradients, moments[::2], moments[1::2])]
            bytes_held.append(held)
        finally:
            distributed.destroy_process_group()
    for of_ranks in zip(*bytes_held, strict=True):
        assert max(of_ranks) < 1.1 * total / 3
        assert sum(of_ranks) >= total


@pytest.mark.parametrize(
    ("options", "settings", "fault"),
    [
        ({}, {"optimizer": "soap"}, "soap needs whole matrices"),
        ({"sharded_optimizer": True}, {"optimizer": "lamb"}, "leave --shard-optimizer out"),
        ({"compiled": True, "cuda_graphs": True}, {"optimizer": "lamb"}, "leave --cuda-graphs out"),
        ({"compiled_optimizer": True}, {"optimizer": "lamb"}, "leave --compile-optimizer out"),
        ({"micro_batch_tokens": "auto"}, {"optimizer": "adamw"}, "give micro_batch_tokens a number"),
        ({"load_balancing": "measured"}, {"optimizer": "adamw"}, "give --load-balancing weights"),
        ({"load_balancing": "measured-again"}, {"optimizer": "adamw"}, "give --load-balancing weights"),
        ({}, {"optimizer": "adamw", "kfac": {}}, "kfac needs whole matrices"),
    ],
)
def test_options_that_exclude_fsdp_are_refused(options, settings, fault):
    with pytest.raises(BertlineError, match=rf"^--fsdp: .*{fault}"):
        check(Options(fsdp=True, **options), settings)


def is_accepted(options):
    with suppress(BertlineError):
        check(options, {"optimizer": "adamw"})
        return True
    return False


def test_fsdp_alone_is_accepted_and_what_excludes_it_without_it():
    given = [{"fsdp": True, "activation_checkpointing": True}, {"cuda_graphs": True, "compiled": True}]
    assert [is_accepted(Options(**options)) for options in [*given, given[0] | given[1]]] == [True, True, False]
