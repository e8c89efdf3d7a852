"""Lion: the sign of an interpolated momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.training.distributed.fsdp import own_part
from bertline.training.optimizers.parameters import NamedParameters, decay_groups


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al. 2023, arXiv 2302.06675, algorithm 2) with decoupled weight decay.

    With gradient g, momentum m, learning rate r and weight decay d, the update of weights w is

        w = w - r (sign(beta1 m + (1 - beta1) g) + d w)
        m = beta2 m + (1 - beta2) g

    There is one moment, no bias correction and no epsilon. State per parameter: `exp_avg`, m.
    """

    def __init__(self, parameters: Iterable[Any], *, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update."""
        return {"exp_avg": torch.zeros_like(weight)}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. `closure` is not supported."""
        if closure is not None:
            raise ValueError("Lion takes no closure")
        for group in self.param_groups:
            updated = [weight for weight in group["params"] if weight.grad is not None]
            if not updated:
                continue
            for weight in updated:
                if not self.state[weight]:
                    self.state[weight] = self.new_state(weight)
            weights, gradients = [own_part(weight) for weight in updated], [own_part(weight.grad) for weight in updated]
            momenta = [own_part(self.state[weight]["exp_avg"]) for weight in updated]
            beta1, beta2 = group["betas"]
            directions = torch._foreach_lerp(momenta, gradients, 1 - beta1)
            torch._foreach_sign_(directions)
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, directions, alpha=-group["lr"])
            torch._foreach_lerp_(momenta, gradients, 1 - beta2)


def make_lion(parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> Lion:
    """Make the optimizer of a phase's settings."""
    beta1, beta2 = settings["lion"]["betas"]
    groups = decay_groups(parameters, settings["weight_decay"])
    return Lion(groups, lr=settings["learning_rate"], betas=(beta1, beta2))
