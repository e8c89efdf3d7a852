"""LAMB, in the variants of NVIDIA's runs and of its paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.training.distributed.fsdp import norms_of_whole, split_whole
from bertline.training.norms import norms_of
from bertline.training.optimizers.base import NamedParameters, Optimizer, decay_groups, matrices_in


class Lamb(Optimizer):
    """LAMB (You et al. 2019, arXiv 1904.00962).

    Both moments are bias-corrected, gradients are averaged into the first one, epsilon is outside the root, weight
    decay is added to the update, and the update is scaled by the trust ratio |weight| / |update|. Query, key and value,
    which are stored as one tensor, have a ratio each, as in NVIDIA's network; so have the two halves of a gated layer.
    The training loop clips the gradient to a global norm before.

    The two variants differ in the matrices and vectors to which a trust ratio applies:

    - nvidia: those with weight decay, as in NVIDIA's BERT runs (apex FusedLAMB with use_nvlamb false).
    - paper: all, as in Algorithm 2 with phi(z) = z. Its single lambda is that of each parameter group here.

    In both, the ratio is 1 if weight or update is zero: taken literally, Algorithm 2 would keep a bias that starts at
    zero there forever.
    """

    def __init__(self, parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> None:
        """Make the optimizer. `compiled` uses two kernels per tensor, not a dozen over all: half the time on a CPU."""
        groups = decay_groups(parameters, settings["weight_decay"])
        super().__init__(
            groups, {"lr": settings["learning_rate"], "betas": settings["betas"], "eps": settings["epsilon"]}
        )
        self.variant = settings["lamb_variant"]
        self._matrices = {weight: matrices_in(name) for name, weight in parameters}
        # One program for tensors of any size: one per size, or one for all at once, would take minutes to compile.
        self._program = torch.compile(update_lamb, dynamic=True, fullgraph=True) if compiled else None

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update; `step` is read on the host."""
        return {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}

    def update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], states: dict[str, list[Tensor]]
    ) -> None:
        """Update a parameter group."""
        torch._foreach_add_(states["step"], 1)
        step, (beta1, beta2) = int(states["step"][0]), group["betas"]
        first, second = states["exp_avg"], states["exp_avg_sq"]
        scaled = bool(group["weight_decay"]) or self.variant == "paper"
        if scaled:
            weights, gradients, first, second = (
                self._split(group, tensors) for tensors in (weights, gradients, first, second)
            )
        numbers = 1 - beta1**step, (1 - beta2**step) ** 0.5, group["lr"]
        fixed = {name: group[name] for name in ("betas", "eps", "weight_decay")}
        fixed |= {"scaled": scaled, "like": group["params"][0]}
        if self._program is None:
            update_lamb(weights, gradients, first, second, *numbers, **fixed)
            return
        # As tensors: a program is specialised to the values of Python numbers, and these change at every step.
        scalars = torch.tensor(numbers, device=weights[0].device).unbind()
        for tensors in zip(weights, gradients, first, second, strict=True):
            weight, gradient, of_first, of_second = (tensor.view(-1) for tensor in tensors)
            self._program([weight], [gradient], [of_first], [of_second], *scalars, **fixed)

    def _split(self, group: dict[str, Any], tensors: list[Tensor]) -> list[Tensor]:
        """Return views of `tensors`, of the weights of the group with a gradient, without stacked matrices."""
        updated = [weight for weight in group["params"] if weight.grad is not None]
        return [
            part
            for tensor, weight in zip(tensors, updated, strict=True)
            for part in split_whole(tensor, self._matrices[weight], like=weight)
        ]


def update_lamb(
    weights: list[Tensor],
    gradients: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    correction1: float | Tensor,
    correction2: float | Tensor,
    learning_rate: float | Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    scaled: bool,
    like: Tensor,
) -> None:
    """Update weights and their moments in place.

    Args:
        correction1, correction2: the divisors of the first moment and of the second one's root.
        learning_rate: a tensor in a compiled program.
        scaled: whether to scale the updates by trust ratios.
        like: see `norms_of_whole`.
    """
    beta1, beta2 = betas
    torch._foreach_lerp_(first, gradients, 1 - beta1)
    torch._foreach_mul_(second, beta2)
    torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)

    divisors = torch._foreach_sqrt(second)
    torch._foreach_div_(divisors, correction2)
    torch._foreach_add_(divisors, eps)
    updates = torch._foreach_div(first, divisors)
    torch._foreach_div_(updates, correction1)
    if weight_decay:
        torch._foreach_add_(updates, weights, alpha=weight_decay)
    if scaled:
        norms = norms_of([*weights, *updates])
        weight_norms, update_norms = norms_of_whole(norms, like=like).chunk(2)
        both = (weight_norms > 0) & (update_norms > 0)
        ratios = torch.where(both, weight_norms / update_norms, 1.0)
        torch._foreach_mul_(updates, list(ratios.unbind()))
    if isinstance(learning_rate, Tensor):  # `alpha` takes no tensor
        torch._foreach_mul_(updates, learning_rate)
        torch._foreach_sub_(weights, updates)
    else:
        torch._foreach_add_(weights, updates, alpha=-learning_rate)
