"""K-FAC compared with kfac-pytorch, its factors of padded and packed batches, on ranks, and through checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from synthetic_dataset import MODEL, recipe, write_dataset
from torch.nn import functional as F
from training_processes import Trainer, train, train_killed_five_times

from bertline.console import BertlineError
from bertline.encoding.masking import IGNORED
from bertline.files import read_json, sha256_of_file
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.assignment import assign
from bertline.training.distributed.grid import Grid
from bertline.training.distributed.process_group import Group
from bertline.training.optimizers.kfac import Kfac, check_kfac
from bertline.training.optimizers.schedules import SCHEDULED
from bertline.training.options import Options
from bertline.training.setup import make_learner
from bertline.training.step import train_step

CPU = torch.device("cpu")
KFAC = {
    "method": "eigen", "decay": 0.95, "damping": 0.003, "kl_clip": 0.001, "factor_interval": 1, "inverse_interval": 10,
    "skip": [], "gradient_factor": "batch",
}  # fmt: skip
CHANGING = {
    **KFAC, "method": "inverse", "decay": [[1, 0.5], [8, 0.9]], "damping": [[1, 0.1], [10, 0.01], [16, 0.003]],
    "kl_clip": [[1, 0.001], [12, 0.01]], "factor_interval": [[1, 2], [11, 1]], "inverse_interval": [[1, 3], [12, 4]],
}  # fmt: skip
REFERENCE = read_json(Path(__file__).parent / "references/kfac_pytorch.json")
NO_ATTENTION_DROPOUT = {**MODEL, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


class Network(torch.nn.Module):
    """That of the reference, in the place of an encoder."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.ModuleDict(
            {
                "first": torch.nn.Linear(5, 7),
                "second": torch.nn.Linear(7, 6, bias=False),
                "third": torch.nn.Linear(6, 4),
            }
        )
        for name, weight in self.encoder.named_parameters():
            weight.data = torch.tensor(REFERENCE["weights"][name]).view_as(weight)

    def forward(self, x):
        parts = self.encoder
        return parts["third"](torch.tanh(parts["second"](torch.tanh(parts["first"](x)))))


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["name"])
def test_preconditioned_gradients_are_those_of_kfac_pytorch(case):
    network = Network()
    given = {name: case[name] for name in ("method", "kl_clip", "factor_interval", "inverse_interval")}
    kfac = Kfac(network, {**KFAC, **given}, Group(0, 1, CPU))
    for step, expected in enumerate(case["gradients"], start=1):
        inputs = torch.tensor(REFERENCE["inputs"][step - 1]).view(-1, 5).chunk(case["micro_batches"])
        targets = torch.tensor(REFERENCE["targets"][step - 1]).view(-1, 4).chunk(case["micro_batches"])
        network.zero_grad()
        scale = 64.0  # as with fp16
        with kfac.observe(step, scale):
            for x, target in zip(inputs, targets, strict=True):
                labels = torch.zeros(len(x))
                kfac.start(SimpleNamespace(input_ids=labels, attention_mask=None, tokens=len(x), pair_labels=labels))
                (scale * F.mse_loss(network(x), target) / len(inputs)).backward()
        for weight in network.parameters():
            weight.grad /= scale
        kfac.precondition(step, learning_rate=0.3, samples=8)
        for name, weight in network.encoder.named_parameters():
            torch.testing.assert_close(weight.grad.flatten(), torch.tensor(expected[name]), rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            for weight in network.parameters():
                weight -= 0.1 * weight.grad


def learner_of(given, card, rows=16, **options):
    data = open_training_data(card, 32, CPU)
    batching = Batching(32, rows, packed=given["settings"]["packing"])
    learner = make_learner(given, data, Group(0, 1, CPU), Options(**options), batching=batching)
    learner.accumulator.seek(0)
    return learner


def factors_after_a_step(given, card, **how):
    learner = learner_of(given, card, **how)
    try:
        assert train_step(learner, 1, 0).updated
        return {name: tensor for name, tensor in learner.kfac.tensors().items() if name.endswith("factor")}, learner
    finally:
        learner.accumulator.close()


@pytest.mark.parametrize(
    ("settings", "how"),
    [({}, {"rows": 3}), ({}, {"rows": 5, "activation_checkpointing": True}), ({"packing": True}, {"rows": 4})],
    ids=str,
)
def test_factors_depend_neither_on_padding_nor_on_micro_batches(card, settings, how):
    given = {**recipe(kfac=KFAC), "model": NO_ATTENTION_DROPOUT}
    expected, _ = factors_after_a_step(given, card, rows=1)
    given["settings"] |= settings
    found, _ = factors_after_a_step(given, card, **how)
    assert found.keys() == expected.keys()
    assert len(found) == 2 * (2 * 4 + 1)
    for name, factor in expected.items():
        torch.testing.assert_close(found[name], factor, rtol=1e-4, atol=1e-7)
        assert not torch.equal(factor, 0.95 * torch.eye(factor.shape[-1]).expand_as(factor))


def test_factors_are_averages_over_the_tokens_of_a_global_batch(card):
    """Of the first layer, by the embeddings of each sample alone, and query, key and value apart."""
    given = {**recipe(kfac=KFAC), "model": NO_ATTENTION_DROPOUT}
    learner = learner_of(given, card)
    seen = []
    embed = learner.model.encoder.embeddings.register_forward_hook(lambda *called: seen.append(called[2].detach()))
    batch = learner.accumulator.start_step(0)
    micro_batch = next(learner.accumulator.micro_batches())
    with torch.no_grad():
        learner.accumulator.forward(micro_batch)
    embed.remove()
    learner.accumulator.close()
    rows = [row[:length] for row, length in zip(seen[0], batch.lengths, strict=True)]
    x = torch.cat(rows).double()
    x = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    found, _ = factors_after_a_step(given, card, rows=3)
    name = "encoder.layers.0.qkv.kfac"
    expected = 0.95 * torch.eye(33) + 0.05 * (x.T @ x / len(x)).float()
    torch.testing.assert_close(found[f"{name}.input.factor"][0], expected, rtol=1e-4, atol=1e-6)
    assert found[f"{name}.gradient.factor"].shape == (3, 32, 32)


def test_a_global_batch_without_a_pair_leaves_the_pooler_s_factors_finite():
    """Its pooler has seen no sequence with a label, so their number is 0."""
    network = torch.nn.Module()
    network.encoder = torch.nn.ModuleDict({"pooler": torch.nn.Linear(5, 4)})
    kfac = Kfac(network, KFAC, Group(0, 1, CPU))
    labels = torch.full((3,), IGNORED)
    with kfac.observe(1, 1.0):
        kfac.start(SimpleNamespace(input_ids=labels, attention_mask=None, tokens=3, pair_labels=labels))
        (network.encoder["pooler"](torch.ones(3, 5)) * 0.0).sum().backward()
    kfac.precondition(1, 0.1, samples=3)
    for factor in kfac.factors().values():
        assert torch.equal(factor, 0.95 * torch.eye(factor.shape[-1]).expand_as(factor))
    assert network.encoder["pooler"].weight.grad.isfinite().all()


def test_gradient_factors_of_samples_do_not_depend_on_the_size_of_the_batch():
    """A batch that holds everything twice has the same mean loss and the same factors."""
    factors = []
    for copies in (1, 2):
        network = Network()
        kfac = Kfac(network, {**KFAC, "gradient_factor": "sample"}, Group(0, 1, CPU))
        x = torch.tensor(REFERENCE["inputs"][0]).view(8, 5).repeat(copies, 1)
        target = torch.tensor(REFERENCE["targets"][0]).view(8, 4).repeat(copies, 1)
        with kfac.observe(1, 1.0):
            labels = torch.zeros(len(x))
            kfac.start(SimpleNamespace(input_ids=labels, attention_mask=None, tokens=len(x), pair_labels=labels))
            F.mse_loss(network(x), target).backward()
        kfac.precondition(1, learning_rate=0.3, samples=len(x))
        factors.append({name: tensor for name, tensor in kfac.tensors().items() if name.endswith("factor")})
    for name, factor in factors[0].items():
        torch.testing.assert_close(factors[1][name], factor)
    # The last layer's, by the gradient of each sample's mean of squares.
    gradients = (network(x) - target)[:8].detach() / 2
    expected = 0.95 * torch.eye(4) + 0.05 * gradients.T @ gradients / 8
    torch.testing.assert_close(factors[0]["encoder.third.kfac.gradient.factor"][0], expected)


@pytest.mark.parametrize("method", ["eigen", "inverse"])
def test_a_change_at_a_step_is_another_setting_from_this_step_on(card, method):
    changing = {**CHANGING, "method": method, "inverse_interval": 1}
    changing |= {"decay": [[1, 0.5], [3, 0.9]], "damping": [[1, 0.1], [3, 0.01]], "kl_clip": [[1, 1e-6], [3, 1e-5]]}
    changing |= {"factor_interval": [[1, 1], [3, 2]]}
    parts = [{name: given[part][1] if name in SCHEDULED and isinstance(given, list) else given
              for name, given in changing.items()} for part in (0, 1)]  # fmt: skip
    learners = [learner_of(recipe(kfac=settings), card) for settings in (changing, *parts)]
    for step in range(1, 6):
        now = learners[1] if step < 3 else learners[2]
        if step == 3:
            now.accumulator.seek(2)
            now.kfac.load(learners[1].kfac.tensors())
            now.model.load_state_dict(learners[1].model.state_dict())
            now.optimizer.load_state_dict(learners[1].optimizer.state_dict())
        for learner in (learners[0], now):
            train_step(learner, step, step - 1)
        for (name, weight), other in zip(learners[0].model.named_parameters(), now.model.parameters(), strict=True):
            assert torch.equal(weight, other), (step, name)
    for learner in learners:
        learner.accumulator.close()


def test_layers_are_left_out_by_name(card):
    layers = {"encoder.layers.0", "encoder.layers.1", "encoder.pooler"}
    for skip in ([], ["pooler"], ["layers.1.", "pooler"]):
        learner = learner_of(recipe(kfac={**KFAC, "skip": skip}), card)
        train_step(learner, 1, 0)
        learner.accumulator.close()
        found = {".".join(name.split(".kfac.")[0].split(".")[:3]) for name in learner.kfac.tensors()}
        assert found == {name for name in layers if not any(part in f"{name}." for part in skip)}


def test_a_skipped_batch_leaves_no_trace(card):
    learner = learner_of(recipe(kfac=KFAC), card)
    train_step(learner, 1, 0)
    before = {name: tensor.clone() for name, tensor in learner.kfac.tensors().items()}
    learner.scale.value = math.inf
    assert not train_step(learner, 2, 1).updated
    for name, tensor in learner.kfac.tensors().items():
        assert torch.equal(tensor, before[name])
    learner.scale.value = 1.0
    assert train_step(learner, 2, 2).updated
    assert all(tensor.isfinite().all() for tensor in learner.kfac.tensors().values())
    learner.accumulator.close()


def test_gradients_are_clipped_after_the_preconditioning_and_not_before(card, monkeypatch):
    learner, norms = learner_of(recipe(kfac=KFAC, max_gradient_norm=1e-4), card), []
    precondition = learner.kfac.precondition

    def norm():
        return torch.nn.utils.get_total_norm([weight.grad for weight in learner.model.parameters()]).item()

    def watched(*arguments, **options):
        norms.append(norm())
        precondition(*arguments, **options)
        norms.append(norm())

    monkeypatch.setattr(learner.kfac, "precondition", watched)
    result = train_step(learner, 1, 0)
    learner.accumulator.close()
    assert norms[0] == pytest.approx(result.norm)
    assert min(norms) > 2e-4
    assert norm() == pytest.approx(1e-4, rel=1e-3)


def test_most_expensive_work_is_assigned_first():
    owners = assign({"small": 1, "large": 8, "medium": 5, "other": 4}, 2)
    assert owners == {"large": 0, "medium": 1, "other": 1, "small": 0}


@pytest.mark.parametrize(
    "settings", [{}, pytest.param({"kfac": {**KFAC, "method": "inverse"}}, marks=pytest.mark.slow)], ids=str
)
def test_ranks_with_unlike_parts_learn_what_one_learns(card, tmp_path, settings):
    given = {**recipe(steps=4, learning_rate=2e-3, **{"kfac": KFAC, **settings}), "model": NO_ATTENTION_DROPOUT}
    train(given, card, tmp_path / "one")
    train(given, card, tmp_path / "two", ranks=2, load_balancing="3,1", sharded_optimizer=True)
    name = "checkpoints/step-00000004/optimizer.safetensors"
    one, two = (load_file(tmp_path / output / name) for output in ("one", "two"))
    assert one.keys() == two.keys()
    for key, factor in one.items():
        if key.endswith(".factor"):
            torch.testing.assert_close(two[key], factor, rtol=1e-3, atol=1e-6)
    one, two = (load_file(tmp_path / output / "model.safetensors") for output in ("one", "two"))
    for key, weight in one.items():
        assert torch.linalg.vector_norm(two[key] - weight) <= 1e-3 * torch.linalg.vector_norm(weight)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_may_share_the_work_in_other_ways_with_the_same_result(card, tmp_path, ranks):
    """And be stopped and resumed in yet another: checkpoints are the same."""
    given = {**recipe(steps=4, kfac={**KFAC, "inverse_interval": 3}), "model": NO_ATTENTION_DROPOUT}
    train(given, card, tmp_path / "plain", ranks=ranks)
    shared = {"ranks": ranks, "kfac_share": 1 / ranks}
    assert Trainer(given, card, tmp_path / "phase", stop_after_minutes=0.0, **shared).finish() == 75
    train(given, card, tmp_path / "phase", ranks=ranks, kfac_share=0.5)
    for name in ("model.safetensors", "checkpoints/step-00000004/optimizer.safetensors"):
        assert sha256_of_file(tmp_path / "phase" / name) == sha256_of_file(tmp_path / "plain" / name)


@pytest.mark.parametrize(("ranks", "share"), [(1, 0.5), (4, 0.75), (4, 0.1), (4, 2)])
def test_a_share_that_does_not_divide_the_processes_is_refused(ranks, share):
    with pytest.raises(BertlineError, match=f"^--kfac-share: {share:g} of {ranks} processes"):
        Grid(Group(0, ranks, CPU), share)


@pytest.mark.parametrize(
    ("ranks", "settings"),
    [
        (1, {}),
        pytest.param(1, {"kfac": CHANGING, "optimizer": "adamw"}, marks=pytest.mark.slow),
        pytest.param(2, {"optimizer": "sgd", "packing": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_killed_at_five_moments_it_ends_with_the_same_bits(card, tmp_path, ranks, settings):
    """Inverses are those of a step before the checkpoint."""
    given = {**recipe(steps=60, **{"kfac": KFAC, **settings}), "model": NO_ATTENTION_DROPOUT}
    train(given, card, tmp_path / "straight", ranks=ranks)
    output = tmp_path / "phase"
    train_killed_five_times(given, card, output, ranks=ranks)
    for name in ("model.safetensors", "checkpoints/step-00000060/optimizer.safetensors"):
        assert sha256_of_file(output / name) == sha256_of_file(tmp_path / "straight" / name)


@pytest.mark.parametrize("method", ["inverse", pytest.param("eigen", marks=pytest.mark.slow)])
def test_factors_are_carried_over_to_the_next_phase(card, tmp_path, method):
    common = {"schedule": "constant", "warmup": 0, "optimizer": "adamw", "learning_rate": 1e-3}
    train(recipe(steps=3, kfac={**KFAC, "skip": ["pooler"]}, **common), card, tmp_path / "one")
    following = {
        **recipe(steps=1, kfac={**KFAC, "decay": 0.5, "method": method}, **common),
        "fingerprint": "b" * 16,
        "initial_weights": {"phase": "a" * 16},
    }
    train(following, card, tmp_path / "two", initial_weights=tmp_path / "one")
    before, after = (
        load_file(tmp_path / output / f"checkpoints/step-{step:08d}/optimizer.safetensors")
        for output, step in (("one", 3), ("two", 1))
    )
    name = "encoder.layers.0.output.kfac.gradient.factor"
    # The gradients are small beside the identity, from which the average starts.
    torch.testing.assert_close(after[name], 0.5 * before[name], rtol=0, atol=1e-2)
    assert before[name].diagonal(dim1=1, dim2=2).mean() == pytest.approx(0.95**3, abs=1e-3)
    # A layer that the phase before left out starts from the identity.
    pooler = after["encoder.pooler.kfac.gradient.factor"]
    assert pooler.diagonal(dim1=1, dim2=2).mean() == pytest.approx(0.5, abs=1e-2)


def test_factors_that_are_carried_over_are_saved_before_the_first_inverses(card):
    first, following = (learner_of(recipe(kfac={**KFAC, "method": method}), card) for method in ("eigen", "inverse"))
    train_step(first, 1, 0)
    carried = first.kfac.tensors()
    following.kfac.load(carried)
    saved = following.kfac.tensors()
    assert saved.keys() == {name for name in carried if name.endswith(".factor")}
    for name, tensor in saved.items():
        assert torch.equal(tensor, carried[name])
    following.kfac.load(saved)
    assert train_step(following, 1, 0).updated
    for learner in (first, following):
        learner.accumulator.close()


def test_inverses_of_another_method_are_computed_again_at_any_step(card):
    """Here at one that is no multiple of the interval."""
    first = learner_of(recipe(kfac=KFAC), card)
    train_step(first, 1, 0)
    weights = []
    for interval in (10, 1):
        following = learner_of(recipe(kfac={**KFAC, "method": "inverse", "inverse_interval": interval}), card)
        following.kfac.load(first.kfac.tensors())
        assert train_step(following, 3, 0).updated
        weights.append(following.model.state_dict())
        following.accumulator.close()
    first.accumulator.close()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])


def test_a_gradient_that_kfac_makes_infinite_skips_the_step(card, monkeypatch):
    learner = learner_of(recipe(kfac=KFAC), card)
    before = {name: weight.clone() for name, weight in learner.model.state_dict().items()}
    monkeypatch.setattr(Kfac, "_preconditioned", lambda self, name, gradient: gradient * math.inf)
    result = train_step(learner, 1, 0)
    assert not result.updated
    assert not result.backed_off
    for name, weight in learner.model.state_dict().items():
        assert torch.equal(weight, before[name])
    learner.accumulator.close()


@pytest.mark.parametrize("options", [{"compiled": True}, {"micro_batch_tokens": "auto"}], ids=str)
def test_options_that_exclude_kfac_are_refused(options):
    check_kfac(Options(**options), recipe()["settings"])
    with pytest.raises(BertlineError, match=r": .*kfac.*; (leave|give)"):
        check_kfac(Options(**options), recipe(kfac=KFAC)["settings"])
