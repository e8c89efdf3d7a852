"""Activation functions of compiled programs on a GPU, against PyTorch's in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from bertline.modeling.activations import GeluOfFewInstructions, gelu


@pytest.mark.parametrize("compiled", [False, True])
def test_gelu_and_its_gradient_are_exact_to_half_a_millionth(compiled):
    function = GeluOfFewInstructions.apply
    function = torch.compile(function, fullgraph=True) if compiled else function
    given = torch.cat([torch.linspace(-20, 20, 400_001), torch.tensor([0.0, 1e-30, -1e-30, 1e4, -1e4])])
    exact, found = given.double().requires_grad_(), given.clone().requires_grad_()
    expected, result = F.gelu(exact), function(found)
    weights = torch.rand(len(given), generator=torch.Generator().manual_seed(1))
    (expected * weights).sum().backward()
    (result * weights).sum().backward()
    torch.testing.assert_close(result.double(), expected, rtol=1e-7, atol=5e-7)
    torch.testing.assert_close(found.grad.double(), exact.grad, rtol=1e-7, atol=5e-7)


def test_in_bfloat16_it_is_rounded_once():
    given = torch.linspace(-4, 4, 4001).bfloat16().requires_grad_()
    result = GeluOfFewInstructions.apply(given)
    result.sum().backward()
    assert result.dtype == given.grad.dtype == torch.bfloat16
    # Half a unit in the last place of 8 bits.
    torch.testing.assert_close(result.double(), F.gelu(given.double()), rtol=2**-8, atol=1e-6)


def test_what_is_not_finite_stays_so():
    given = torch.tensor([torch.nan, torch.inf]).requires_grad_()
    result = GeluOfFewInstructions.apply(given)
    assert result[0].isnan()
    assert result[1] == torch.inf


def test_elsewhere_it_is_that_of_pytorch():
    given = torch.randn(100, generator=torch.Generator().manual_seed(2))
    assert torch.equal(gelu(given), F.gelu(given))
    assert torch.equal(torch.compile(gelu, backend="aot_eager")(given.bfloat16()), F.gelu(given.bfloat16()))
