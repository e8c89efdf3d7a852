"""LAMB and AdamW over a model's parameters, and their moments by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bertline.console import BertlineError

MOMENTS = ("exp_avg", "exp_avg_sq")


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2019, arXiv 1904.00962) with the semantics of NVIDIA's BERT runs (apex FusedLAMB).

    Both moments are corrected for bias, gradients are averaged into the first one, epsilon stands outside the root,
    decay is added to the update, and the trust ratio |weight| / |update| is applied to parameters with weight decay
    whose weight and update are both not zero. Clipping the gradient to its global norm comes before, in the loop.
    """

    def __init__(self, parameters: Iterable[Any], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. `closure` is not supported."""
        if closure is not None:
            raise ValueError("LAMB takes no closure")
        for group in self.param_groups:
            self._update(group)

    def _update(self, group: dict[str, Any]) -> None:
        weights = [weight for weight in group["params"] if weight.grad is not None]
        if not weights:
            return
        gradients = [weight.grad for weight in weights]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.zeros_like(weight),
                }
        states = [self.state[weight] for weight in weights]
        for state in states:
            state["step"] += 1
        step = int(states[0]["step"])
        beta1, beta2 = group["betas"]
        first, second = ([state[moment] for state in states] for moment in MOMENTS)
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)

        divisors = torch._foreach_sqrt(second)
        torch._foreach_div_(divisors, (1 - beta2**step) ** 0.5)
        torch._foreach_add_(divisors, group["eps"])
        updates = torch._foreach_div(first, divisors)
        torch._foreach_div_(updates, 1 - beta1**step)
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
            weight_norms = torch.stack(torch._foreach_norm(weights))
            update_norms = torch.stack(torch._foreach_norm(updates))
            both = (weight_norms > 0) & (update_norms > 0)
            ratios = torch.where(both, weight_norms / update_norms, 1.0)
            torch._foreach_mul_(updates, list(ratios.unbind()))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])


def make_optimizer(model: nn.Module, settings: Mapping[str, Any]) -> torch.optim.Optimizer:
    """The optimizer that a phase's settings ask for. Biases and normalisations are not decayed."""
    decayed = [weight for name, weight in model.named_parameters() if _is_decayed(name)]
    others = [weight for name, weight in model.named_parameters() if not _is_decayed(name)]
    groups = [
        {"params": decayed, "weight_decay": settings["weight_decay"]},
        {"params": others, "weight_decay": 0.0},
    ]
    beta1, beta2 = settings["betas"]
    common = {"lr": settings["learning_rate"], "betas": (beta1, beta2), "eps": settings["epsilon"]}
    if settings["optimizer"] == "lamb":
        return Lamb(groups, **common)
    if settings["optimizer"] == "adamw":
        return torch.optim.AdamW(groups, **common, fused=True)
    raise BertlineError(f"recipe: optimizer: given '{settings['optimizer']}', allowed are lamb, adamw")


def _is_decayed(name: str) -> bool:
    return not name.endswith("bias") and "normalization" not in name


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as tensors named {parameter}.{step | exp_avg | exp_avg_sq}."""
    return {
        f"{name}.{key}": value
        for name, weight in model.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], *, reset_step: bool
) -> None:
    """Restore what `optimizer_tensors` gave. With `reset_step` bias correction starts anew.

    Raises BertlineError when a moment is missing or has another shape.
    """
    for name, weight in model.named_parameters():
        moments = {}
        for moment in MOMENTS:
            tensor = tensors.get(f"{name}.{moment}")
            if tensor is None or tensor.shape != weight.shape:
                raise BertlineError(f"checkpoint: the moment {name}.{moment} is missing or has another shape")
            moments[moment] = tensor.to(weight)
        step = tensors[f"{name}.step"].clone()
        # Fused AdamW wants its step beside the parameter, LAMB reads it on the host.
        if not isinstance(optimizer, Lamb):
            step = step.to(weight.device)
        optimizer.state[weight] = {"step": torch.zeros_like(step) if reset_step else step, **moments}
