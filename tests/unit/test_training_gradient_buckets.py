"""Gradients are reduced in buckets while backward runs, with the bits of a reduction after it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from training_processes import CONTEXT

from bertline.training.distributed.gradients import Gradients

RANKS, WIDTH = 3, 65
PASSES = (3, 1, 0)  # micro-batches of each rank
WHOLE, FEW, EACH = 1 << 30, 2 * 4 * WIDTH * WIDTH, 1  # bytes of a bucket
CASES = [(size, overlap) for size in (WHOLE, FEW, EACH) for overlap in (False, True)]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(6)))


def losses(model: nn.Module, rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [model(torch.randn(9, WIDTH, generator=generator)).square().sum() for _ in range(PASSES[rank])]


def reduce(folder: Path, rank: int) -> None:
    """Of every case, two steps: gradients, the statistic, and the buckets that were reduced during backward."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    during, all_reduce = 0, distributed.all_reduce

    def counted(*arguments, **options):
        nonlocal during
        during += 1
        return all_reduce(*arguments, **options)

    distributed.all_reduce = counted
    results = []
    for size, overlap in CASES:
        model = network()
        gradients = Gradients(model, ("passes",), world_size=RANKS, bucket_bytes=size)
        for _ in range(2):
            gradients.zero()
            during = 0
            for number, loss in enumerate(losses(model, rank)):
                if overlap and number == PASSES[rank] - 1:
                    gradients.begin_last()
                loss.backward()
                gradients.add({"passes": 1.0})
            started = during
            totals = gradients.reduce()
        results.append((gradients.tensors()[0].clone(), totals["passes"], started))
    torch.save(results, folder / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[torch.Tensor, float, int]]]:
    """Of each rank."""
    folder = tmp_path_factory.mktemp("ranks")
    processes = [CONTEXT.Process(target=reduce, args=(folder, rank)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * RANKS
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.mark.parametrize("size", [WHOLE, FEW, EACH])
def test_a_bucket_reduced_during_backward_has_the_bits_of_one_reduced_after_it(reduced, size):
    after, during = (CASES.index((size, overlap)) for overlap in (False, True))
    for of_rank in reduced:
        assert torch.equal(of_rank[during][0], of_rank[after][0])
        assert torch.equal(of_rank[during][0], reduced[0][during][0])
        assert of_rank[during][1] == of_rank[after][1] == sum(PASSES)
    started = [[of_rank[case][2] for of_rank in reduced] for case in (after, during)]
    assert started[0] == [0, 0, 0]
    # All but the last, which the statistics are in; a rank without micro-batches has no backward.
    assert started[1] == {WHOLE: [0, 0, 0], FEW: [2, 2, 0], EACH: [11, 11, 0]}[size]


def test_the_reduction_is_the_sum_over_the_ranks(reduced):
    model = network()
    for rank in range(RANKS):
        for loss in losses(model, rank):
            loss.backward()
    for flat, *_ in reduced[0]:
        expected = torch.cat([nn.functional.pad(p.grad.flatten(), (0, -p.numel() % 64)) for p in model.parameters()])
        torch.testing.assert_close(flat, expected, rtol=1e-5, atol=1e-4)
