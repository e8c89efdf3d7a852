"""Shampoo: gradients preconditioned from both sides of each matrix, with Adam's step size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.training.optimizers.factors import SIDES, FactoredOptimizer, update_factors

ROOT = 4  # of the factors of a matrix: 2 for each of its 2 sides, even if only one of them has a factor


class Shampoo(FactoredOptimizer):
    """Shampoo (Gupta et al. 2018, arXiv 1802.09568) with running averages, grafting and decoupled weight decay.

    With the factors L and R of a matrix and the running average M of its gradient, all bias-corrected, the direction
    is L^(-1/4) M R^(-1/4), scaled to the norm of Adam's (grafting). The inverse roots are computed every
    `root_interval` steps; before the first time, and for weights without factors, the update is AdamW's. As in
    Distributed Shampoo (Shi et al. 2023, arXiv 2309.06497), but without its blocks of large matrices.
    """

    name, derived = "shampoo", "root"

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update, with roots that change nothing."""
        state = super().new_state(weight)
        for side in SIDES:
            if f"{side}_root" in state:
                state[f"{side}_root"].diagonal(dim1=1, dim2=2).fill_(1)
        return state

    def update_weight(
        self, weight: Tensor, gradient: Tensor, state: Mapping[str, Tensor], step: int, group: Mapping[str, Any]
    ) -> None:
        """Update a weight, its moments, factors and, every `root_interval` steps, roots."""
        beta1, beta2 = group["betas"]
        corrections = 1 - beta1**step, 1 - beta2**step
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].lerp_(gradient.square(), 1 - beta2)
        update_factors(gradient, state, beta2)
        if step % group["root_interval"] == 0:
            for side in SIDES:
                if f"{side}_factor" in state:
                    factor = state[f"{side}_factor"] / corrections[1]
                    state[f"{side}_root"].copy_(_inverse_root(factor, group["factor_epsilon"]))

        mean = state["exp_avg"] / corrections[0]
        direction = mean / ((state["exp_avg_sq"] / corrections[1]).sqrt() + group["epsilon"])
        if step >= group["root_interval"]:
            direction = _preconditioned(mean, state, like=direction)
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(direction, alpha=-group["lr"])


def _preconditioned(mean: Tensor, state: Mapping[str, Tensor], *, like: Tensor) -> Tensor:
    """Return L^(-1/4) `mean` R^(-1/4) with each matrix's norm in `like`; `like` itself if there are no factors."""
    direction = mean
    if "left_root" in state:
        direction = state["left_root"] @ direction
    if "right_root" in state:
        direction = direction @ state["right_root"]
    if direction is mean:
        return like
    norms = [torch.linalg.matrix_norm(tensor, keepdim=True) for tensor in (like, direction)]
    return direction * (norms[0] / (norms[1] + 1e-16))


def _inverse_root(factor: Tensor, epsilon: float) -> Tensor:
    """Return `factor`^(-1/4), [matrices, size, size].

    All eigenvalues are moved up by what the least is below `epsilon`. None is below it afterwards: in float32 the sum
    of a small `epsilon` and a rounding error could be 0.
    """
    values, vectors = torch.linalg.eigh(factor)
    values = (values + (epsilon - values[:, :1]).clamp(min=0)).clamp(min=epsilon)
    return (vectors * values.pow(-1 / ROOT)[:, None, :]) @ vectors.mT
