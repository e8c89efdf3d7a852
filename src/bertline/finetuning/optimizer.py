"""AdamW without the start-up time of PyTorch's optimizer classes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.adamw import adamw

# As in Google's run_squad.py and run_classifier.py.
BETAS = (0.9, 0.999)
EPSILON = 1e-6


class AdamW:
    """The fused update of `torch.optim.AdamW`, to the last bit.

    Making a `torch.optim.Optimizer` imports PyTorch's compiler, one second of processor time: a tenth of a small
    fine-tuning. Nothing here is kept between processes, so its state needs no names.
    """

    def __init__(self, parameters: Iterable[Tensor], *, weight_decay: float) -> None:
        """Biases and normalisations, the parameters of one dimension, are not decayed, as in pretraining."""
        given = list(parameters)
        self._groups = [
            ([parameter for parameter in given if parameter.ndim > 1], weight_decay),
            ([parameter for parameter in given if parameter.ndim <= 1], 0.0),
        ]
        self._first = {parameter: torch.zeros_like(parameter) for parameter in given}
        self._second = {parameter: torch.zeros_like(parameter) for parameter in given}
        self._steps = {parameter: torch.zeros((), device=parameter.device) for parameter in given}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update every parameter that has a gradient, and forget the gradients."""
        for group, weight_decay in self._groups:
            used = [parameter for parameter in group if parameter.grad is not None]
            adamw(
                used,
                [parameter.grad for parameter in used if parameter.grad is not None],
                [self._first[parameter] for parameter in used],
                [self._second[parameter] for parameter in used],
                [],
                [self._steps[parameter] for parameter in used],
                fused=True,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=learning_rate,
                weight_decay=weight_decay,
                eps=EPSILON,
                maximize=False,
            )
            for parameter in used:
                parameter.grad = None
