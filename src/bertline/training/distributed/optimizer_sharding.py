"""Optimizer sharding: each rank updates some of the parameters and is the only one to store their moments.

ZeRO, stage 1 (Rajbhandari et al. 2019, arXiv 1910.02054, section 5), split between tensors, not within them: LAMB's
norms and Muon's matrices stay whole, and every tensor is updated as without sharding, to the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed, nn

from bertline.training.distributed.assignment import assign
from bertline.training.distributed.process_group import Group, broadcast_each
from bertline.training.optimizers.registry import optimizer_tensors


class OptimizerSharding:
    """Assignment of a model's parameters to the ranks that update them."""

    def __init__(self, model: nn.Module, group: Group, *, enabled: bool) -> None:
        """Assign parameters to ranks, largest first; unless `enabled`, every rank updates all of them."""
        self._model, self._group, self.enabled = model, group, enabled
        self.owners: dict[str, int] = {}
        if enabled:
            sizes = {name: weight.numel() for name, weight in model.named_parameters()}
            self.owners = assign(sizes, group.world_size)

    def owns(self, name: str) -> bool:
        """Return whether this rank updates the parameter."""
        return self.owners.get(name, self._group.rank) == self._group.rank

    def broadcast_weights(self) -> None:
        """Broadcast every parameter from the rank that updated it."""
        if self.enabled:
            broadcast_each((weight.data, self.owners[name]) for name, weight in self._model.named_parameters())

    def all_moments(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """Return on rank 0 what `optimizer_tensors` returns without sharding; all ranks must call it."""
        mine = optimizer_tensors(optimizer, self._model)
        if not self.enabled:
            return mine
        described = [[key, list(one.shape), str(one.dtype).removeprefix("torch.")] for key, one in mine.items()]
        gathered = {key: tensor.cpu() for key, tensor in mine.items()}
        for rank in range(1, self._group.world_size):
            for key, shape, dtype in self._group.broadcast(described, source=rank):
                if self._group.rank == rank:
                    # LAMB's step is in host memory, from which NCCL cannot send.
                    distributed.send(mine[key].to(self._group.device), dst=0)
                elif self._group.is_rank_zero:
                    received = torch.empty(shape, dtype=getattr(torch, dtype), device=self._group.device)
                    distributed.recv(received, src=rank)
                    gathered[key] = received.cpu()
        return gathered
