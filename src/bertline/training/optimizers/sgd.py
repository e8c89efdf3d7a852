"""SGD with momentum, the usual base of K-FAC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.training.optimizers.base import NamedParameters, Optimizer, decay_groups


class Sgd(Optimizer):
    """Stochastic gradient descent with momentum and coupled weight decay, as `torch.optim.SGD` without dampening.

    With gradient g, momentum b, learning rate r and weight decay d, the update of weights w is

        b = momentum b + g + d w
        w = w - r b

    State per parameter: `momentum_buffer`, b.
    """

    def __init__(self, parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> None:
        groups = decay_groups(parameters, settings["weight_decay"])
        super().__init__(groups, {"lr": settings["learning_rate"], **settings["sgd"]})

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update."""
        return {"momentum_buffer": torch.zeros_like(weight)}

    def update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], states: dict[str, list[Tensor]]
    ) -> None:
        """Update a parameter group."""
        buffers = states["momentum_buffer"]
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, gradients)
        if group["weight_decay"]:
            torch._foreach_add_(buffers, weights, alpha=group["weight_decay"])
        torch._foreach_add_(weights, buffers, alpha=-group["lr"])
