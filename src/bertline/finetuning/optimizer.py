"""AdamW without the start-up time of PyTorch's optimizer classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from bertline.training.optimizers.adamw import new_adamw_state, update_adamw

# As in Google's run_squad.py and run_classifier.py.
BETAS = (0.9, 0.999)
EPSILON = 1e-6


class AdamW:
    """AdamW, bit-identical to the fused `torch.optim.AdamW`.

    Creating a `torch.optim.Optimizer` imports PyTorch's compiler, which takes one second of processor time: a tenth of
    a small fine-tuning.
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, weight_decay: float, factors: Iterable[float] | None = None
    ) -> None:
        """Group parameters by factor and decay: those of one dimension, biases and normalisations, have no decay.

        Args:
            factors: of each parameter's learning rate; None for 1.
        """
        given = list(parameters)
        by_group: dict[tuple[float, float], list[Tensor]] = {}
        for parameter, factor in zip(given, factors or [1.0] * len(given), strict=True):
            by_group.setdefault((factor, weight_decay if parameter.ndim > 1 else 0.0), []).append(parameter)
        self._groups = [(group, factor, decay) for (factor, decay), group in by_group.items()]
        self._states = {parameter: new_adamw_state(parameter) for parameter in given}

    def step(self, learning_rate: float) -> None:
        """Update every parameter that has a gradient and reset the gradients to None."""
        for group, factor, weight_decay in self._groups:
            used = [parameter for parameter in group if parameter.grad is not None]
            update_adamw(
                used,
                [self._states[parameter] for parameter in used],
                lr=learning_rate * factor,
                betas=BETAS,
                eps=EPSILON,
                weight_decay=weight_decay,
            )
            for parameter in used:
                parameter.grad = None

    def tensors(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Return the state by the parameters' names, given in the parameters' order."""
        return {
            f"{name}.{key}": tensor
            for name, state in zip(names, self._states.values(), strict=True)
            for key, tensor in state.items()
        }

    @torch.no_grad()
    def load(self, names: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
        """Restore a state returned by `tensors`."""
        for name, state in zip(names, self._states.values(), strict=True):
            for key, tensor in state.items():
                tensor.copy_(tensors[f"{name}.{key}"])


def layerwise_factors(model: nn.Module, decay: float) -> list[float]:
    """Return the learning rate factors of the model's parameters, in their order.

    With L layers, the factor is `decay` ** (L - i) for layer i, counted from 0, `decay` ** (L + 1) for the embeddings,
    and 1 for pooler and heads (Howard and Ruder 2018, arXiv 1801.06146, section 3.2; for BERT's family Clark et al.
    2020, arXiv 2003.10555, appendix B).
    """
    names = [name for name, _ in model.named_parameters()]
    layers = [int(found[1]) if (found := re.match(r"encoder\.layers\.(\d+)\.", name)) else None for name in names]
    depth = 1 + max((layer for layer in layers if layer is not None), default=-1)
    return [
        decay ** (depth + 1 if name.startswith("encoder.embeddings.") else 0 if layer is None else depth - layer)
        for name, layer in zip(names, layers, strict=True)
    ]
