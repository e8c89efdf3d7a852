"""Muon for the hidden matrices of the encoder, AdamW for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bertline.training.distributed.fsdp import map_whole
from bertline.training.optimizers.adamw import new_adamw_state, update_adamw
from bertline.training.optimizers.base import NamedParameters, Optimizer, decay_groups, is_hidden_matrix, matrices_in

# The quintic of Jordan et al. (2024, kellerjordan.github.io/posts/muon), as in torch.optim.Muon: after five steps the
# singular values are between about 0.5 and 1.5, which trains as well as exactly 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
MIN_NORM = 1e-7
# AdamW's updates have about this root mean square, so that one learning rate serves both (Liu et al. 2025, arXiv
# 2502.16982, equation 4; torch's adjust_lr_fn="match_rms_adamw").
ADAMW_RMS = 0.2


class Muon(Optimizer):
    """Muon (Jordan et al. 2024; scaled as in Liu et al. 2025, arXiv 2502.16982), combined with AdamW.

    A matrix of the encoder's layers is updated by its momentum with all singular values set to about 1, and decoupled
    weight decay, as `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")` computes it one matrix at a time. Here all
    matrices of a shape, or of its transpose, are orthogonalised in one batch: BERT-base's 72 in two.

    The other parameters are updated exactly as by `torch.optim.AdamW(fused=True)`. State per parameter:
    `momentum_buffer` of its shape for hidden matrices; `step`, `exp_avg` and `exp_avg_sq` for the others.
    """

    def __init__(self, parameters: NamedParameters, settings: Mapping[str, Any], *, compiled: bool) -> None:
        """Make the optimizer. Of the settings, those in `muon` are for hidden matrices, the others for AdamW."""
        # The number of matrices of each weight.
        self._parts = {weight: matrices_in(name) for name, weight in parameters if is_hidden_matrix(name, weight)}
        others = [(name, weight) for name, weight in parameters if weight not in self._parts]
        adamw = {"betas": settings["betas"], "eps": settings["epsilon"]}
        groups = [{**group, **adamw} for group in decay_groups(others, settings["weight_decay"])]
        hidden = {"params": list(self._parts), **settings["muon"]}
        super().__init__([hidden, *groups], {"lr": settings["learning_rate"]})
        # That of the iteration; torch.optim.Muon uses bfloat16.
        self.dtype = torch.bfloat16 if settings["precision"] == "bf16" else torch.float32

    def orthogonalises(self, weight: Tensor) -> bool:
        """Return whether `weight` is a hidden matrix, updated by Muon."""
        return weight in self._parts

    def new_state(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the state of `weight` before its first update."""
        if self.orthogonalises(weight):
            return {"momentum_buffer": torch.zeros_like(weight)}
        return new_adamw_state(weight)

    def update(
        self, group: dict[str, Any], weights: list[Tensor], gradients: list[Tensor], states: dict[str, list[Tensor]]
    ) -> None:
        """Update a parameter group."""
        updated = [weight for weight in group["params"] if weight.grad is not None]
        if not self.orthogonalises(updated[0]):
            update_adamw(group, weights, gradients, states)
            return
        buffers = states["momentum_buffer"]
        torch._foreach_lerp_(buffers, gradients, 1 - group["momentum"])
        updates = torch._foreach_lerp(gradients, buffers, group["momentum"]) if group["nesterov"] else buffers
        learning_rate = group["lr"] * group["learning_rate_ratio"]
        torch._foreach_mul_(weights, 1 - learning_rate * group["weight_decay"])
        parts = [self._parts[weight] for weight in updated]
        directions = map_whole(partial(self._orthogonalized, parts), updates, like=updated)
        for weight, direction, whole, count in zip(weights, directions, updated, parts, strict=True):
            scale = ADAMW_RMS * max(whole.shape[0] // count, whole.shape[1]) ** 0.5
            weight.add_(direction, alpha=-learning_rate * scale)

    def _orthogonalized(self, parts: list[int], numbers: Sequence[int], updates: Sequence[Tensor]) -> list[Tensor]:
        """Orthogonalise the updates of the weights of these `numbers`, of which `parts` are the numbers of matrices."""
        directions = [torch.empty_like(update) for update in updates]
        by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}
        for number, update, direction in zip(numbers, updates, directions, strict=True):
            count = parts[number]
            for update_part, direction_part in zip(update.chunk(count), direction.chunk(count), strict=True):
                # Make it wide: the iteration then multiplies square matrices of the smaller side.
                if update_part.shape[0] > update_part.shape[1]:
                    update_part, direction_part = update_part.T, direction_part.T
                by_shape.setdefault(tuple(update_part.shape), []).append((update_part, direction_part))
        for pairs in by_shape.values():
            found = orthogonalize(torch.stack([update for update, _ in pairs]).to(self.dtype))
            torch._foreach_copy_([direction for _, direction in pairs], list(found))
        return directions


def orthogonalize(matrices: Tensor) -> Tensor:
    """Approximate the nearest semi-orthogonal matrices: five Newton-Schulz steps move U S V^T towards U V^T.

    Args:
        matrices: [N, R, C] with R <= C; the iteration runs in their floating type.

    Returns the same shape and type; singular values are between about 0.5 and 1.5, and a zero matrix stays zero.
    """
    a, b, c = COEFFICIENTS
    # The Frobenius norm bounds the spectral norm, which must be at most 1.
    norms = torch.linalg.vector_norm(matrices, dim=(-2, -1), keepdim=True)
    matrices = matrices / norms.clamp(min=MIN_NORM)
    for _ in range(ITERATIONS):
        gram = matrices @ matrices.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        matrices = torch.baddbmm(matrices, polynomial, matrices, beta=a)
    return matrices
