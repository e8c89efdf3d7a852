"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bertline.training.optimizers.base import NamedParameters, Optimizer, decay_groups, matrices_in

SIDES = ("left", "right")


class Soap(Optimizer):
    """SOAP (Vyas et al. 2024, arXiv 2409.11321, algorithm 3) with decoupled weight decay.

    With gradient G of a matrix, running averages L of G G^T and R of G^T G, and their eigenvectors Q_L and Q_R, Adam
    runs on Q_L^T G Q_R, and its update is rotated back. A power iteration and a QR decomposition update the
    eigenvectors every `basis_interval` steps. As in the authors' code, the first gradient only makes the eigenvectors,
    and epsilon is added before bias correction.

    Weights that stack several matrices, such as query, key and value, are treated as these. A side longer than
    `largest_side`, such as the embeddings' vocabulary, is not rotated; biases and normalisations are not at all.

    State per parameter: `step`, `exp_avg` (not rotated), `exp_avg_sq` (rotated), and for each rotated side
    `{left,right}_factor` and `{left,right}_basis`, [matrices, size, size].
    """

    def __init__(self, parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> None:
        """Make the optimizer."""
        self.largest_side = settings["soap"]["largest_side"]
        # Of weights with at least two dimensions, the number of matrices.
        self._matrices = {weight: matrices_in(name) for name, weight in parameters if weight.ndim == 2}
        groups = []
        for group in decay_groups(parameters, settings["weight_decay"]):
            by_sides: dict[tuple[str, ...], list[Tensor]] = {}  # the weights of a group have the same state tensors
            for weight in group["params"]:
                by_sides.setdefault(tuple(self._rotated_sides(weight)), []).append(weight)
            groups += [{**group, "params": weights} for weights in by_sides.values()]
        own = {key: settings["soap"][key] for key in ("betas", "epsilon", "basis_interval")}
        super().__init__(groups, {"lr": settings["learning_rate"], **own})

    def _rotated_sides(self, weight: Tensor) -> dict[str, int]:
        """Return the sizes of the sides of `weight` that are rotated."""
        if weight not in self._matrices:
            return {}
        sizes = zip(SIDES, self._as_matrices(weight, weight).shape[1:], strict=True)
        return {side: size for side, size in sizes if size <= self.largest_side}

    def _as_matrices(self, tensor: Tensor, weight: Tensor) -> Tensor:
        """View `tensor`, of the shape of `weight`, as [matrices, rows, columns]."""
        return tensor.unflatten(0, (self._matrices[weight], -1))

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update; `step` is read on the host."""
        state = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
        for side, size in self._rotated_sides(weight).items():
            for name in (f"{side}_factor", f"{side}_basis"):
                state[name] = weight.new_zeros(self._matrices[weight], size, size)
        return state

    def update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], states: dict[str, list[Tensor]]
    ) -> None:
        """Update a parameter group."""
        for number, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            state = {name: tensors[number] for name, tensors in states.items()}
            state["step"] += 1
            step = int(state["step"]) - 1  # updates so far, with this one
            if weight in self._matrices:
                averages = ("exp_avg", "exp_avg_sq")
                state |= {name: self._as_matrices(state[name], weight) for name in averages}
                views = self._as_matrices(weight, weight), self._as_matrices(gradient, weight)
            else:
                views = weight, gradient
            if step > 0:
                _update_weight(*views, state, step, group)
            _update_bases(views[1], state, group, first=step == 0, due=step % group["basis_interval"] == 0)


def _update_weight(
    weight: Tensor, gradient: Tensor, state: Mapping[str, Tensor], step: int, group: Mapping[str, Any]
) -> None:
    beta1, beta2 = group["betas"]
    state["exp_avg"].lerp_(gradient, 1 - beta1)
    state["exp_avg_sq"].lerp_(_rotated(gradient, state).square(), 1 - beta2)
    direction = _rotated(state["exp_avg"], state) / (state["exp_avg_sq"].sqrt() + group["epsilon"])
    correction = (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    weight.add_(_rotated(direction, state, back=True), alpha=-group["lr"] * correction)
    weight.mul_(1 - group["lr"] * group["weight_decay"])


def _update_bases(
    gradient: Tensor, state: Mapping[str, Tensor], group: Mapping[str, Any], *, first: bool, due: bool
) -> None:
    """Update the factors, and the eigenvectors if they are `due`, with all at `first`."""
    for dim, side in enumerate(SIDES, start=1):
        if f"{side}_factor" not in state:
            continue
        factor, basis = state[f"{side}_factor"], state[f"{side}_basis"]
        factor.lerp_(gradient @ gradient.mT if side == "left" else gradient.mT @ gradient, 1 - group["betas"][1])
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
