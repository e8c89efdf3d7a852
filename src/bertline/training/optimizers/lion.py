"""Lion: the sign of an interpolated momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.training.optimizers.base import NamedParameters, Optimizer, decay_groups


class Lion(Optimizer):
    """Lion (Chen et al. 2023, arXiv 2302.06675, algorithm 2) with decoupled weight decay.

    With gradient g, momentum m, learning rate r and weight decay d, the update of weights w is

        w = w - r (sign(beta1 m + (1 - beta1) g) + d w)
        m = beta2 m + (1 - beta2) g

    There is one moment, no bias correction and no epsilon. State per parameter: `exp_avg`, m.
    """

    def __init__(self, parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> None:
        groups = decay_groups(parameters, settings["weight_decay"])
        super().__init__(groups, {"lr": settings["learning_rate"], "betas": settings["lion"]["betas"]})

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update."""
        return {"exp_avg": torch.zeros_like(weight)}

    def update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], states: dict[str, list[Tensor]]
    ) -> None:
        """Update a parameter group."""
        momenta, (beta1, beta2) = states["exp_avg"], group["betas"]
        directions = torch._foreach_lerp(momenta, gradients, 1 - beta1)
        torch._foreach_sign_(directions)
        torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(weights, directions, alpha=-group["lr"])
        torch._foreach_lerp_(momenta, gradients, 1 - beta2)
