"""Base class of the optimizers that are not PyTorch's, and parameter groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bertline.training.distributed.fsdp import own_part

NamedParameters = Sequence[tuple[str, Tensor]]
# Linear layers that stack several, and how many. Query, key and value are separate maps that share only their input:
# orthogonalised by Muon as one [3H, H] matrix, the size of the query's update would depend on the value's gradient, and
# each of the three would get singular values of about 1 / sqrt(3); LAMB's trust ratio would be that of all three.
STACKED_LAYERS = {"qkv": 3, "gated_intermediate": 2}


class Optimizer(torch.optim.Optimizer):
    """Optimizer that updates all weights of a parameter group at once; with FSDP, this rank's rows of each."""

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update."""
        raise NotImplementedError

    def update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], states: dict[str, list[Tensor]]
    ) -> None:
        """Update `weights`, those of the parameter group with a gradient, and their states by name, in place."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. `closure` is not supported."""
        if closure is not None:
            raise ValueError(f"{type(self).__name__} takes no closure")
        for group in self.param_groups:
            updated = [weight for weight in group["params"] if weight.grad is not None]
            for weight in updated:
                if not self.state[weight]:
                    self.state[weight] = self.new_state(weight)
            if updated:
                weights, gradients = map(own_part, updated), (own_part(weight.grad) for weight in updated)
                names = self.state[updated[0]]
                states = {name: [own_part(self.state[weight][name]) for weight in updated] for name in names}
                self.update(group, list(weights), list(gradients), states)


def decay_groups(parameters: NamedParameters, weight_decay: float) -> list[dict[str, Any]]:
    """Split `parameters` into a group with `weight_decay` and one without, of biases and normalisations."""
    decayed = [weight for name, weight in parameters if _is_decayed(name)]
    others = [weight for name, weight in parameters if not _is_decayed(name)]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def is_hidden_matrix(name: str, weight: Tensor) -> bool:
    """Return whether `weight` is a matrix of the encoder's layers."""
    return ".layers." in f".{name}" and weight.ndim == 2


def matrices_in(name: str) -> int:
    """Return how many matrices the weight of this name stacks, or vectors the bias."""
    layer = name.rpartition(".")[0]
    return STACKED_LAYERS.get(layer.rpartition(".")[2], 1)


def _is_decayed(name: str) -> bool:
    return not name.endswith("bias") and "normalization" not in name
