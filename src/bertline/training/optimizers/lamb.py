"""LAMB, in the variants of NVIDIA's runs and of its paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from bertline.training.distributed.fsdp import is_sharded, norms_of_whole, own_part
from bertline.training.optimizers.parameters import NamedParameters, decay_groups

MOMENTS = ("exp_avg", "exp_avg_sq")


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2019, arXiv 1904.00962).

    Both moments are bias-corrected, gradients are averaged into the first one, epsilon is outside the root, weight
    decay is added to the update, and the update is scaled by the trust ratio |weight| / |update|, with norms over each
    tensor. The training loop clips the gradient to a global norm before.

    The two variants differ in the tensors to which a trust ratio applies:

    - nvidia: those with weight decay, as in NVIDIA's BERT runs (apex FusedLAMB with use_nvlamb false).
    - paper: all, as in Algorithm 2 with phi(z) = z. Its single lambda is that of each parameter group here.

    In both, the ratio is 1 if weight or update is zero: taken literally, Algorithm 2 would keep a bias that starts at
    zero there for ever.
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        variant: Literal["nvidia", "paper"] = "nvidia",
        compiled: bool = False,
    ) -> None:
        """Make the optimizer. `compiled` uses two kernels per tensor, not a dozen over all: half the time on a CPU."""
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self.variant = variant
        # One program for tensors of any size: one per size, or one for all at once, would take minutes to compile.
        self._program = torch.compile(update_tensor, dynamic=True, fullgraph=True) if compiled else None

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update; `step` is read on the host."""
        return {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. `closure` is not supported."""
        if closure is not None:
            raise ValueError("LAMB takes no closure")
        for group in self.param_groups:
            self._update(group)

    def _update(self, group: dict[str, Any]) -> None:
        moved = [weight for weight in group["params"] if weight.grad is not None]
        if not moved:
            return
        for weight in moved:
            if not self.state[weight]:
                self.state[weight] = self.new_state(weight)
        states = [self.state[weight] for weight in moved]
        for state in states:
            state["step"] += 1
        step = int(states[0]["step"])
        beta1, beta2 = group["betas"]
        corrections = 1 - beta1**step, (1 - beta2**step) ** 0.5
        # This rank's rows of sharded weights: everything but the norms is elementwise.
        weights, gradients = [own_part(weight) for weight in moved], [own_part(weight.grad) for weight in moved]
        first, second = ([own_part(state[moment]) for state in states] for moment in MOMENTS)
        scaled = bool(group["weight_decay"]) or self.variant == "paper"
        if self._program is not None:
            # As a tensor: a program is specialised to the values of Python numbers, and these change at every step.
            scalars = torch.tensor([*corrections, group["lr"]], device=weights[0].device)
            for weight, gradient, exp_avg, exp_avg_sq in zip(weights, gradients, first, second, strict=True):
                self._program(
                    weight.view(-1),
                    gradient.flatten(),
                    exp_avg.view(-1),
                    exp_avg_sq.view(-1),
                    scalars,
                    beta1=beta1,
                    beta2=beta2,
                    eps=group["eps"],
                    decay=group["weight_decay"],
                    scaled=scaled,
                )
            return
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)

        divisors = torch._foreach_sqrt(second)
        torch._foreach_div_(divisors, corrections[1])
        torch._foreach_add_(divisors, group["eps"])
        updates = torch._foreach_div(first, divisors)
        torch._foreach_div_(updates, corrections[0])
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        if scaled:
            norms = torch.stack([*torch._foreach_norm(weights), *torch._foreach_norm(updates)])
            weight_norms, update_norms = (norms_of_whole(norms) if is_sharded(moved[0]) else norms).chunk(2)
            both = (weight_norms > 0) & (update_norms > 0)
            ratios = torch.where(both, weight_norms / update_norms, 1.0)
            torch._foreach_mul_(updates, list(ratios.unbind()))
        torch._foreach_add_(weights, updates, alpha=-group["lr"])


def make_lamb(parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> Lamb:
    """Make the optimizer of a phase's settings."""
    beta1, beta2 = settings["betas"]
    return Lamb(
        decay_groups(parameters, settings["weight_decay"]),
        lr=settings["learning_rate"],
        betas=(beta1, beta2),
        eps=settings["epsilon"],
        variant=settings["lamb_variant"],
        compiled=compiled,
    )


def update_tensor(
    weight: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    scalars: Tensor,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    scaled: bool,
) -> None:
    """Update one tensor as `Lamb` does, for compilation: [N] each, in place except for the gradient.

    Args:
        scalars: [3], the divisors of the first moment and of the second one's root, and the learning rate.
        scaled: whether to scale the update by the trust ratio.
    """
    correction1, correction2, learning_rate = scalars.unbind()
    first.lerp_(gradient, 1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    update = first / (second.sqrt() / correction2 + eps) / correction1
    if decay:
        update = update + decay * weight
    if scaled:
        weight_norm, update_norm = torch.linalg.vector_norm(weight), torch.linalg.vector_norm(update)
        both = (weight_norm > 0) & (update_norm > 0)
        update = update * torch.where(both, weight_norm / update_norm, 1.0)
    weight.sub_(update * learning_rate)
