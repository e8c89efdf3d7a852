"""The optimizer of a fine-tuning: AdamW with smaller learning rates for lower layers."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from bertline.training.optimizers.parameters import decay_groups

# As in Google's run_squad.py and run_classifier.py.
BETAS = (0.9, 0.999)
EPSILON = 1e-6


def make_optimizer(model: nn.Module, *, weight_decay: float, layerwise_decay: float) -> torch.optim.AdamW:
    """Make AdamW, without decay of biases and normalisations; each parameter group has its `factor` of `lr`."""
    by_factor: dict[float, list[tuple[str, Tensor]]] = {}
    for (name, weight), factor in zip(model.named_parameters(), layerwise_factors(model, layerwise_decay), strict=True):
        by_factor.setdefault(factor, []).append((name, weight))
    groups = [
        {**group, "factor": factor}
        for factor, parameters in by_factor.items()
        for group in decay_groups(parameters, weight_decay)
    ]
    return torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of each parameter group of `make_optimizer`."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["factor"]


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
