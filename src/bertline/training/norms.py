"""Norms of many tensors at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PART = 1 << 18  # elements


def norms_of(tensors: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of each tensor, [N], of at least one.

    On a CPU, PyTorch 2.13 accumulates the squares in float32: for 110 million elements the norm is 1.3 percent too
    small. Large tensors are therefore divided into parts.
    """
    if tensors[0].device.type != "cpu":
        return torch.stack(torch._foreach_norm(list(tensors)))
    parts = [tensor.flatten().split(PART) if tensor.numel() > PART else (tensor,) for tensor in tensors]
    found = iter(torch._foreach_norm([part for of_tensor in parts for part in of_tensor]))
    of_parts = [[next(found) for _ in of_tensor] for of_tensor in parts]
    return torch.stack([one[0] if len(one) == 1 else torch.linalg.vector_norm(torch.stack(one)) for one in of_parts])
