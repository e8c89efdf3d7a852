"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.training.optimizers.factors import SIDES, FactoredOptimizer, update_factors


class Soap(FactoredOptimizer):
    """SOAP (Vyas et al. 2024, arXiv 2409.11321, algorithm 3) with decoupled weight decay.

    With the eigenvectors Q_L and Q_R of the factors of a matrix with gradient G, Adam runs on Q_L^T G Q_R, and its
    update is rotated back. A power iteration and a QR decomposition update the eigenvectors every `basis_interval`
    steps. As in the authors' code, the first gradient only makes the eigenvectors, and epsilon is added before bias
    correction.

    `exp_avg` is not rotated, `exp_avg_sq` is.
    """

    name, derived = "soap", "basis"

    def update_weight(
        self, weight: Tensor, gradient: Tensor, state: Mapping[str, Tensor], step: int, group: Mapping[str, Any]
    ) -> None:
        """Update a weight with all gradients but the first, and its bases."""
        updates = step - 1
        if updates:
            beta1, beta2 = group["betas"]
            state["exp_avg"].lerp_(gradient, 1 - beta1)
            state["exp_avg_sq"].lerp_(_rotated(gradient, state).square(), 1 - beta2)
            direction = _rotated(state["exp_avg"], state) / (state["exp_avg_sq"].sqrt() + group["epsilon"])
            correction = (1 - beta2**updates) ** 0.5 / (1 - beta1**updates)
            weight.add_(_rotated(direction, state, back=True), alpha=-group["lr"] * correction)
            weight.mul_(1 - group["lr"] * group["weight_decay"])
        update_factors(gradient, state, group["betas"][1])
        _update_bases(state, first=not updates, due=updates % group["basis_interval"] == 0)


def _update_bases(state: Mapping[str, Tensor], *, first: bool, due: bool) -> None:
    """Update the eigenvectors if they are `due`, with all at `first`."""
    for dim, side in enumerate(SIDES, start=1):
        if f"{side}_factor" not in state:
            continue
        factor, basis = state[f"{side}_factor"], state[f"{side}_basis"]
        if first:
            basis.copy_(torch.linalg.eigh(factor).eigenvectors.flip(-1))
        elif due:
            product = factor @ basis
            # By descending eigenvalue: QR gives the first columns the least error.
            order = (basis * product).sum(1).argsort(dim=1, descending=True)
            basis.copy_(torch.linalg.qr(product.take_along_dim(order[:, None, :], dim=2)).Q)
            rows_or_columns = order[:, :, None] if dim == 1 else order[:, None, :]
            state["exp_avg_sq"].copy_(state["exp_avg_sq"].take_along_dim(rows_or_columns, dim=dim))


def _rotated(tensor: Tensor, state: Mapping[str, Tensor], *, back: bool = False) -> Tensor:
    """Rotate `tensor`, [matrices, rows, columns], to the eigenbases, or back."""
    if "left_basis" in state:
        tensor = (state["left_basis"] if back else state["left_basis"].mT) @ tensor
    if "right_basis" in state:
        tensor = tensor @ (state["right_basis"].mT if back else state["right_basis"])
    return tensor
