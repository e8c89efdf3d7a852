"""Copies of weights in half precision that serve all micro-batches of a step.

Under autocast each pass through a network converts every float32 weight that it uses, although weights change only once
a step. Here matrix products take a copy that was made before the step's first pass; the gradient still belongs to the
float32 weight, as with the master weights of Micikevicius et al. (2017, arXiv 1710.03740, section 3.1). The results are
the same to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

WORD_EMBEDDINGS = "encoder.embeddings.word"  # in all networks


class WeightCopies:
    """Copies of the weights of linear layers and of the word embeddings, for training. Evaluation takes the weights."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None) -> None:
        """Make `model` use copies of `dtype`, 2 bytes a weight; None, for full precision, leaves it as it is.

        Weights keep their names, and a state_dict has no copies.
        """
        self._modules: list[Any] = []
        if dtype is not None:
            linear = [module for module in model.modules() if type(module) in (nn.Linear, _LinearWithCopy)]
            for module in linear:
                module.__class__ = _LinearWithCopy
            self._modules = [*linear, model.get_submodule(WORD_EMBEDDINGS)]
        for module in self._modules:
            # A buffer, which CUDA graphs read in place.
            module.register_buffer("weight_copy", torch.empty_like(module.weight, dtype=dtype), persistent=False)
        self.update()

    @torch.no_grad()
    def update(self) -> None:
        """Copy the weights. Call it after they have changed, before the next pass of training."""
        for module in self._modules:
            module.weight_copy.copy_(module.weight)


def copy_of_weight(module: nn.Module) -> Tensor | None:
    """Return the copy of `module.weight` for matrix products; None in evaluation, or if there is none."""
    return getattr(module, "weight_copy", None) if module.training else None


class _LinearWithCopy(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        copy = copy_of_weight(self)
        return F.linear(input, self.weight if copy is None else _UseCopy.apply(self.weight, copy), self.bias)


class _UseCopy(torch.autograd.Function):
    """The copy in place of the weight, whose gradient the weight gets in its own type."""

    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor, copy: Tensor) -> Tensor:
        ctx.dtype = weight.dtype  # type: ignore[attr-defined]
        return copy.view_as(copy)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.to(ctx.dtype), None
