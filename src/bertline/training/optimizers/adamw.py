"""AdamW: PyTorch's fused update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from bertline.training.optimizers.base import NamedParameters, decay_groups


def make_adamw(parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> torch.optim.AdamW:
    """Make the optimizer of a phase's settings."""
    beta1, beta2 = settings["betas"]
    groups = decay_groups(parameters, settings["weight_decay"])
    return torch.optim.AdamW(
        groups, lr=settings["learning_rate"], betas=(beta1, beta2), eps=settings["epsilon"], fused=True
    )


def new_adamw_state(weight: Tensor) -> dict[str, Tensor]:
    """Return the state of `weight` before its first update; the fused kernel reads `step` on the weight's device."""
    return {
        "step": torch.zeros((), device=weight.device),
        "exp_avg": torch.zeros_like(weight),
        "exp_avg_sq": torch.zeros_like(weight),
    }


@torch.no_grad()
def update_adamw(
    group: Mapping[str, Any], weights: list[Tensor], gradients: list[Tensor], states: Mapping[str, list[Tensor]]
) -> None:
    """Update `weights` of a parameter group and their states by name, bit-identically to `torch.optim.AdamW`.

    For Muon, which is one class for two rules.
    """
    beta1, beta2 = group["betas"]
    adamw(
        weights,
        gradients,
        states["exp_avg"],
        states["exp_avg_sq"],
        [],
        states["step"],
        **{name: group[name] for name in ("lr", "eps", "weight_decay")},
        beta1=beta1,
        beta2=beta2,
        fused=True,
        amsgrad=False,
        maximize=False,
    )
