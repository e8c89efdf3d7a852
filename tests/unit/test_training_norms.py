"""Norms of gradients, weights and updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertline.training.norms import PART, norms_of


@pytest.mark.parametrize("elements", [1, 1000, PART, PART + 1, 40 * PART])
def test_a_norm_does_not_depend_on_the_size_of_its_tensor(elements: int) -> None:
    """As of all gradients in one tensor, which several processes have."""
    tensor = torch.randn(elements, generator=torch.Generator().manual_seed(1))
    expected = np.linalg.norm(tensor.numpy().astype(np.float64))
    norms = norms_of([tensor, torch.ones(4), tensor[:0]])
    assert norms.tolist() == pytest.approx([expected, 2, 0], rel=2e-5)
