"""Dropout: how much, how strongly, and that compiled it is the same."""

from __future__ import annotations

import pytest
import torch

from bertline.modeling.attention import attend
from bertline.modeling.dropout import Dropout, drop


@pytest.mark.parametrize("probability", [0.1, 0.25, 0.5, 0.9])
def test_the_share_is_dropped_and_the_mean_stays(probability):
    torch.manual_seed(1)
    dropped = drop(torch.ones(3, 1001, 333), probability)
    assert float((dropped == 0).double().mean()) == pytest.approx(probability, abs=0.002)
    assert float(dropped.double().mean()) == pytest.approx(1, abs=0.01)
    assert len(dropped.unique()) == 2


def test_every_element_is_dropped_equally_often_and_alone():
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


def test_attention_with_dropout_has_the_mean_of_attention_without():
    generator = torch.Generator().manual_seed(6)
    query, key, value = torch.randn(3, 2, 5, 4, 8, generator=generator).unbind(0)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    torch.manual_seed(7)
    total = sum(attend(query, key, value, mask, dropout=0.1) for _ in range(3000)) / 3000
    torch.testing.assert_close(total, attend(query, key, value, mask, dropout=0.0), rtol=0, atol=0.05)
