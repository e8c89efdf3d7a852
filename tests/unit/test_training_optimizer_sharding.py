"""An optimizer that is shared out among the ranks moves the parameters as one that is not."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer, train

from bertline.training.distributed.optimizer_sharding import OptimizerSharding
from bertline.training.distributed.process_group import Group
from bertline.training.optimizers.registry import OPTIMIZERS, make_optimizer


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


def files_of(output, step):
    folder = output / "checkpoints" / f"step-{step:08d}"
    return [load_file(folder / name) for name in ("model.safetensors", "optimizer.safetensors")]


@pytest.mark.parametrize(
    "kind", ["lamb", pytest.param("adamw", marks=pytest.mark.slow), pytest.param("muon", marks=pytest.mark.slow)]
)
def test_two_ranks_end_with_the_weights_and_moments_that_they_end_with_unsharded(card, tmp_path, kind):
    """So a phase may go on with shards or without."""
    given = recipe(steps=6, optimizer=kind, learning_rate=2e-3)
    whole, output = tmp_path / "whole", tmp_path / "phase"
    train(given, card, whole, ranks=2)
    # Stopped after the first step.
    trainer = Trainer(given, card, output, ranks=2, sharded_optimizer=True, stop_after_minutes=0.0)
    assert trainer.finish() == 75, trainer.log.read_text()
    resumed = train(given, card, output, ranks=2, sharded_optimizer=True)
    assert "resuming" in resumed.log.read_text()
    assert "no longer the same bits" not in resumed.log.read_text()
    for found, expected in zip(files_of(output, 6), files_of(whole, 6), strict=True):
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            if kind == "muon":  # multiplies other numbers of matrices at once
                torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-5)
            else:
                assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_rank_may_own_no_parameter(kind):
    settings = {**recipe()["settings"], "optimizer": kind}
    model = torch.nn.Linear(2, 2)
    before = [weight.detach().clone() for weight in model.parameters()]
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    make_optimizer(model, settings, owns=lambda _: False).step()
    assert all(map(torch.equal, model.parameters(), before))


def test_every_parameter_has_one_owner_and_the_loads_are_even():
    torch.manual_seed(1)
    model = torch.nn.ModuleDict({f"layer{number}": torch.nn.Linear(8 + number, 16) for number in range(12)})
    held: list[set[str]] = []
    sizes = []
    for rank in range(3):
        shards = OptimizerSharding(model, Group(rank, 3, torch.device("cpu")), enabled=True)
        held.append({name for name, _ in model.named_parameters() if shards.owns(name)})
        optimizer = make_optimizer(model, recipe()["settings"], owns=shards.owns)
        moved = [weight for group in optimizer.param_groups for weight in group["params"]]
        sizes.append(sum(weight.numel() for weight in moved))
        assert len(moved) == len(held[-1])
    names = [name for name, _ in model.named_parameters()]
    assert sorted(name for part in held for name in part) == sorted(names)
    assert max(sizes) < 1.2 * min(sizes)
    alone = OptimizerSharding(model, Group(1, 3, torch.device("cpu")), enabled=False)
    assert all(alone.owns(name) for name in names)
