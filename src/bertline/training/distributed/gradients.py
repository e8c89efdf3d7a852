"""Reduction of a step's gradients over all ranks, together with a few statistics.

Several ranks keep all gradients in one flat buffer, reduced by one all_reduce per step. Its layout is the parameters'
order and never changes, so a resumed run adds the same numbers in the same order. (DistributedDataParallel rebuilds its
buckets after the first step; with four ranks, results then differ after a resume.) A single rank has nothing to reduce
and uses the gradients as backward made them: clearing a buffer and adding to it would be two more passes over them.
CUDA graphs write to fixed addresses, so with them a single rank needs the buffer, too. Gradients of sharded weights are
reduced in backward, which leaves only the statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, distributed, nn

from bertline.training.distributed.fsdp import norms_of_whole, own_part, reduces_in_backward

ALIGNMENT = 64  # elements, so that every gradient starts on a cache line


class Gradients:
    """Gradients of a model and statistics of a step."""

    def __init__(
        self, model: nn.Module, statistics: Sequence[str], *, world_size: int, always_flat: bool = False
    ) -> None:
        """Allocate the buffer, for a single rank only with `always_flat`."""
        self._world_size = world_size
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._names = tuple(statistics)
        device = self._parameters[0].device
        self._flat: Tensor | None = None
        if reduces_in_backward(model) or (world_size == 1 and not always_flat):
            self.statistics = torch.zeros(len(self._names), dtype=torch.float32, device=device)
            return
        starts, size = [], 0
        for parameter in self._parameters:
            starts.append(size)
            size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self._buffer = torch.zeros(size + len(self._names), dtype=torch.float32, device=device)
        self._flat, self.statistics = self._buffer[:size], self._buffer[size:]
        for parameter, start in zip(self._parameters, starts, strict=True):
            parameter.grad = self._buffer[start : start + parameter.numel()].view_as(parameter)

    def zero(self) -> None:
        """Set gradients and statistics to zero."""
        if self._flat is not None:
            self._buffer.zero_()
            return
        self.statistics.zero_()
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def add(self, values: Mapping[str, Tensor | float]) -> None:
        """Add `values` to this rank's statistics, by name."""
        for name, value in values.items():
            self.statistics[self._names.index(name)] += value

    def reduce(self) -> dict[str, float]:
        """Sum gradients and statistics over all ranks; return the statistics."""
        if self._world_size > 1:
            distributed.all_reduce(self.statistics if self._flat is None else self._buffer)
        return dict(zip(self._names, self.statistics.tolist(), strict=True))

    def clip(self, max_norm: float, scale: float = 1.0) -> float:
        """Divide the gradients by `scale`, then clip them to the global norm `max_norm`.

        Returns the norm before clipping, non-finite if a gradient is.
        """
        gradients = self.tensors()
        norms = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        norm = float(norms_of_whole(norms, like=self._parameters[0])) / scale
        factor = min(1.0, max_norm / norm) / scale if norm > 0 else 1.0 / scale
        if factor != 1.0:
            torch._foreach_mul_(gradients, factor)
        return norm

    def tensors(self) -> list[Tensor]:
        """Return this rank's gradients: all in one tensor, or one tensor per parameter."""
        if self._flat is not None:
            return [self._flat]
        return [own_part(parameter.grad) for parameter in self._parameters if parameter.grad is not None]
