"""Base class of Shampoo and SOAP: factors of the gradient for the two sides of each matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bertline.training.optimizers.base import NamedParameters, Optimizer, decay_groups, matrices_in

SIDES = ("left", "right")


class FactoredOptimizer(Optimizer):
    """Optimizer with running averages L of G G^T and R of G^T G for the gradients G of each matrix.

    Weights that stack several matrices, such as query, key and value, are treated as these. A side longer than
    `largest_side`, such as the embeddings' vocabulary, has no factor; nor have biases and normalisations.

    State per parameter: `step`, `exp_avg`, `exp_avg_sq`, and for each side with a factor `{left,right}_factor` and
    `{left,right}_{derived}`, [matrices, size, size].
    """

    name: str  # of a subclass, and of its own settings
    derived: str  # name of the matrix that a subclass computes from a factor

    def __init__(self, parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> None:
        """Make the optimizer of a phase's settings."""
        self.largest_side = settings[self.name]["largest_side"]
        # The number of matrices of each weight with two dimensions.
        self._matrices = {weight: matrices_in(name) for name, weight in parameters if weight.ndim == 2}
        groups = []
        for group in decay_groups(parameters, settings["weight_decay"]):
            by_sides: dict[tuple[str, ...], list[Tensor]] = {}  # the weights of a group have the same state tensors
            for weight in group["params"]:
                by_sides.setdefault(tuple(self._sides(weight)), []).append(weight)
            # Sharding may leave a rank without parameters, but an optimizer needs a group.
            groups += [{**group, "params": weights} for weights in by_sides.values() or [[]]]
        super().__init__(groups, {"lr": settings["learning_rate"], **settings[self.name]})

    def _sides(self, weight: Tensor) -> dict[str, int]:
        """Return the sizes of the sides of `weight` that have a factor."""
        if weight not in self._matrices:
            return {}
        sizes = zip(SIDES, self._as_matrices(weight, weight).shape[1:], strict=True)
        return {side: size for side, size in sizes if size <= self.largest_side}

    def _as_matrices(self, tensor: Tensor, weight: Tensor) -> Tensor:
        """View `tensor`, of the shape of `weight`, as [matrices, rows, columns]."""
        return tensor.unflatten(0, (self._matrices[weight], -1)) if weight in self._matrices else tensor

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update; `step` is read on the host."""
        state = {"step": weight.new_zeros((), device="cpu"), "exp_avg": weight.new_zeros(weight.shape)}
        state["exp_avg_sq"] = weight.new_zeros(weight.shape)
        for side, size in self._sides(weight).items():
            for name in (f"{side}_factor", f"{side}_{self.derived}"):
                state[name] = weight.new_zeros(self._matrices[weight], size, size)
        return state

    def update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], states: dict[str, list[Tensor]]
    ) -> None:
        """Update a parameter group."""
        for number, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            state = {name: tensors[number] for name, tensors in states.items()}
            state["step"] += 1
            state |= {name: self._as_matrices(state[name], weight) for name in ("exp_avg", "exp_avg_sq")}
            views = self._as_matrices(weight, weight), self._as_matrices(gradient, weight)
            self.update_weight(*views, state, int(state["step"]), group)

    def update_weight(
        self, weight: Tensor, gradient: Tensor, state: Mapping[str, Tensor], step: int, group: Mapping[str, Any]
    ) -> None:
        """Update `weight`, [matrices, rows, columns] or a vector, and its state in place; `step` counts from 1."""
        raise NotImplementedError


def update_factors(gradient: Tensor, state: Mapping[str, Tensor], decay: float) -> None:
    """Add the products of `gradient`, [matrices, rows, columns], to the running averages of `state`."""
    if "left_factor" in state:
        state["left_factor"].lerp_(gradient @ gradient.mT, 1 - decay)
    if "right_factor" in state:
        state["right_factor"].lerp_(gradient.mT @ gradient, 1 - decay)
