"""Dropout: how much, how strongly, and that compiled it is the same."""

from __future__ import annotations

import pytest
import torch

from bertline.modeling.attention import Packed, attend, attend_in_rows
from bertline.modeling.dropout import Dropout, drop, drop_by_hash, keep


@pytest.mark.parametrize("probability", [0.1, 0.25, 0.5, 0.9])
def test_the_share_is_dropped_and_the_mean_stays(probability):
    torch.manual_seed(1)
    dropped = drop(torch.ones(3, 1001, 333), probability)
    assert float((dropped == 0).double().mean()) == pytest.approx(probability, abs=0.002)
    assert float(dropped.double().mean()) == pytest.approx(1, abs=0.01)
    assert len(dropped.unique()) == 2


@pytest.mark.parametrize("probability", [1e-9, 0.1, 1 - 1e-9])
def test_a_probability_is_never_rounded_to_one_of_the_ends_and_factors_are_exact(probability):
    drawn = keep([1 << 20], probability, torch.Generator().manual_seed(6)).unique().tolist()
    share = min(max(1, round(probability * 65536)), 65535) / 65536
    assert drawn == [0.0, torch.tensor(1 / (1 - share)).item()]


def test_every_element_is_dropped_equally_often_and_independently():
    """Four elements share a draw: their order in it must not matter, nor one tell of the next."""
    torch.manual_seed(2)
    zeros = (drop(torch.ones(40_000, 12), 0.3) == 0).double()
    assert torch.allclose(zeros.mean(0), torch.full((12,), 0.3, dtype=torch.float64), atol=0.01)
    correlations = torch.corrcoef(zeros.T) - torch.eye(12)
    assert correlations.abs().max() < 0.025


def test_it_follows_the_seed_and_is_off_outside_training():
    module, hidden = Dropout(0.5), torch.ones(100)
    torch.manual_seed(3)
    first, second = module(hidden), module(hidden)
    torch.manual_seed(3)
    assert torch.equal(module(hidden), first)
    assert not torch.equal(first, second)
    assert torch.equal(module.train(False)(hidden), hidden)


def test_gradients_pass_where_elements_stay():
    torch.manual_seed(4)
    hidden = torch.ones(1000, requires_grad=True)
    dropped = drop(hidden, 0.2)
    dropped.sum().backward()
    assert torch.equal(hidden.grad, dropped.detach())


def test_compiled_it_drops_the_same_elements():
    hidden = torch.ones(64, 64)

    def twice(given: torch.Tensor) -> torch.Tensor:
        return drop(given, 0.3) + 10 * drop(given, 0.3)

    torch.manual_seed(5)
    expected = twice(hidden)
    torch.manual_seed(5)
    assert torch.equal(torch.compile(twice, backend="aot_eager", fullgraph=True)(hidden), expected)
    assert len(expected.unique()) == 4  # two draws, not one used twice


@pytest.fixture(scope="module")
def hashed():
    """What `drop_by_hash` drops in 40 calls: deviations from the probability, in standard deviations, [40, 2^20]."""
    torch.manual_seed(11)
    dropped = torch.stack([(drop_by_hash(torch.ones(1024, 1024), 0.1) == 0).flatten() for _ in range(40)])
    return (dropped.float() - 0.1) / 0.3


def test_a_hash_drops_the_share_in_every_call_row_and_column(hashed):
    """Sums of independent draws would be normal: of those that are looked at, none beyond 5.5 deviations."""
    grid = hashed.view(40, 1024, 1024)
    for kept, summed in (((0,), (1, 2)), ((1,), (0, 2)), ((2,), (0, 1)), ((0, 1), (2,)), ((0, 2), (1,))):
        sums = grid.sum(summed) / torch.tensor(grid.shape)[list(summed)].prod().sqrt()
        assert sums.abs().max() < 5.5, kept
        assert sums.std() == pytest.approx(1, abs=5 / (2 * sums.numel()) ** 0.5)


def test_neighbours_and_calls_are_dropped_independently_by_a_hash(hashed):
    count = hashed.shape[1]
    for distance in (1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 64, 128, 512, 768, 1024, 1025, 2048, 4096, 65536):
        products = (hashed[:, distance:] * hashed[:, :-distance]).sum(1) / (count - distance) ** 0.5
        assert products.abs().max() < 5, distance
    calls = (hashed @ hashed.T / count**0.5).fill_diagonal_(0)
    assert calls.abs().max() < 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_a_hash_passes_gradients_where_elements_stay(dtype):
    hidden = torch.ones(64, 64, dtype=dtype, requires_grad=True)
    torch.manual_seed(12)
    dropped = torch.compile(drop_by_hash, fullgraph=True)(hidden, 0.25)
    dropped.sum().backward()
    assert dropped.dtype == dtype
    assert torch.equal(hidden.grad, dropped.detach())
    assert dropped.detach().unique().tolist() == pytest.approx([0, 4 / 3], rel=0.01)
    again = torch.compile(drop_by_hash, fullgraph=True)(hidden, 0.25)
    assert not torch.equal(again, dropped)


PACKED = Packed(torch.tensor([0, 4, 4, 7], dtype=torch.int32), torch.tensor([0, 1, 2, 3, 0, 1, 2]), 4)
WAYS = {
    "here": lambda heads, dropout: attend(*(tensor[None] for tensor in heads), PACKED, dropout=dropout)[0],
    "in rows": lambda heads, dropout: attend_in_rows(*heads, PACKED, dropout).flatten(1),
}


def packed_heads() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(8)
    return [torch.randn(7, 2, 8, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(3)]


@pytest.mark.parametrize("way", WAYS)
def test_packed_attention_with_dropout_has_the_mean_of_attention_without(way):
    heads = [tensor.detach() for tensor in packed_heads()]
    torch.manual_seed(9)
    total = sum(WAYS[way](heads, 0.1) for _ in range(3000)) / 3000
    torch.testing.assert_close(total, WAYS[way](heads, 0.0), rtol=0, atol=0.05)


@pytest.mark.parametrize("way", WAYS)
def test_packed_attention_drops_the_share_of_weights(way):
    """Values are the positions' unit vectors, and all keys alike: the context shows the weights."""
    alike = torch.zeros(7, 1, 7)
    values = torch.eye(7)[:, None]
    torch.manual_seed(10)
    weights = torch.stack([WAYS[way]([alike, alike, values], 0.3) for _ in range(4000)])
    lengths = torch.tensor([4.0, 4, 4, 4, 3, 3, 3])
    same = PACKED.cu_seqlens[1:2] > torch.arange(7)
    same = same[:, None] == same
    assert not weights[:, ~same].any()
    assert set((weights * lengths[:, None]).unique().mul(1000).round().tolist()) == {0, round(1000 / 0.7)}
    torch.testing.assert_close(
        (weights == 0).double().mean(0)[same], torch.full((25,), 0.3).double(), rtol=0, atol=0.03
    )
    drops = (weights[:, same] == 0).double()
    assert (torch.corrcoef(drops.T) - torch.eye(25)).abs().max() < 0.08


def test_the_gradient_of_packed_attention_is_that_of_the_same_weights_dropped():
    """By finite differences in float64, each with the same random numbers."""

    def attended(*heads: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(11)
        return WAYS["here"](heads, 0.4)

    assert torch.autograd.gradcheck(attended, packed_heads())
    assert not torch.equal(attended(*packed_heads()), WAYS["here"](packed_heads(), 0.0))


def test_packed_attention_in_half_precision_is_close_to_that_in_double():
    found = []
    for dtype in (torch.float64, torch.bfloat16):
        heads = [tensor.detach().to(dtype).requires_grad_() for tensor in packed_heads()]
        torch.manual_seed(12)
        context = WAYS["here"](heads, 0.2)
        assert context.dtype == dtype
        context.double().square().sum().backward()
        found.append([context, *(tensor.grad for tensor in heads)])
    for exact, rounded in zip(*found, strict=True):
        torch.testing.assert_close(rounded.double(), exact, rtol=0.1, atol=0.1)


def test_compiled_packed_attention_drops_the_same_weights():
    compiled = torch.compile(WAYS["here"], backend="aot_eager", fullgraph=True)
    found = []
    for attended in (WAYS["here"], compiled):
        heads = packed_heads()
        torch.manual_seed(13)
        context = attended(heads, 0.3)
        found.append([context, *torch.autograd.grad(context.square().sum(), heads)])
    for ours, expected in zip(*found, strict=True):
        assert torch.equal(ours, expected)


def test_attention_with_dropout_has_the_mean_of_attention_without():
    generator = torch.Generator().manual_seed(6)
    query, key, value = torch.randn(3, 2, 5, 4, 8, generator=generator).unbind(0)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    torch.manual_seed(7)
    total = sum(attend(query, key, value, mask, dropout=0.1) for _ in range(3000)) / 3000
    torch.testing.assert_close(total, attend(query, key, value, mask, dropout=0.0), rtol=0, atol=0.05)
