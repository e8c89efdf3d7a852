"""All gradients in one flat buffer, reduced by one all_reduce a step.

The buffer's layout is the parameters' order and never changes, so a resumed run adds the same numbers in the same
order. (DistributedDataParallel rebuilds its buckets after the first step; four ranks then differ after a resume.)
A few statistics ride along at the buffer's end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, distributed, nn

ALIGNMENT = 64  # elements, so that every gradient starts on a cache line


class FlatGradients:
    """Owns the gradients of `model`: each parameter's `grad` is a view into `buffer`."""

    def __init__(self, model: nn.Module, statistics: Sequence[str]) -> None:
        parameters = list(model.parameters())
        starts, size = [], 0
        for parameter in parameters:
            starts.append(size)
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.names = tuple(statistics)
        self.buffer = torch.zeros(size + len(self.names), dtype=torch.float32, device=parameters[0].device)
        self.gradients = self.buffer[:size]
        self.statistics = self.buffer[size:]
        for parameter, start in zip(parameters, starts, strict=True):
            parameter.grad = self.buffer[start : start + parameter.numel()].view_as(parameter)

    def zero(self) -> None:
        """Forget gradients and statistics."""
        self.buffer.zero_()

    def add(self, name: str, value: Tensor | float) -> None:
        """Add to a statistic of this rank."""
        self.statistics[self.names.index(name)] += value

    def reduce(self) -> dict[str, float]:
        """Sum gradients and statistics over all ranks; returns the statistics."""
        distributed.all_reduce(self.buffer)
        return dict(zip(self.names, self.statistics.tolist(), strict=True))

    def clip(self, max_norm: float, scale: float = 1.0) -> float:
        """Divide the gradients by `scale`, then scale them down to the global norm `max_norm` if they exceed it.

        Returns the norm before, not finite where a gradient is not.
        """
        norm = float(torch.linalg.vector_norm(self.gradients)) / scale
        factor = min(1.0, max_norm / norm) / scale if norm > 0 else 1.0 / scale
        if factor != 1.0:
            self.gradients.mul_(factor)
        return norm
