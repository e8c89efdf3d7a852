"""The optimizer of a fine-tuning: AdamW with smaller learning rates for lower layers."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from bertline.modeling.heads import TaskNetwork
from bertline.training.optimizers.base import decay_groups

# The values of Google's run_squad.py and run_classifier.py.
BETAS = (0.9, 0.999)
EPSILON = 1e-6


def make_optimizer(model: TaskNetwork, *, weight_decay: float, layerwise_decay: float) -> torch.optim.AdamW:
    """Make AdamW without decay of biases and normalisations; each parameter group has a `factor` for its `lr`."""
    layers = len(model.encoder.layers)
    by_factor: dict[float, list[tuple[str, Tensor]]] = {}
    for name, weight in model.named_parameters():
        by_factor.setdefault(layerwise_factor(name, layers, layerwise_decay), []).append((name, weight))
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


def layerwise_factor(name: str, layers: int, decay: float) -> float:
    """Return the learning rate factor of the parameter `name`.

    With L `layers`, it is `decay` ** (L - i) for layer i, counted from 0, `decay` ** (L + 1) for the embeddings, and 1
    for pooler and heads (Howard and Ruder 2018, arXiv 1801.06146, section 3.2; for BERT's family Clark et al. 2020,
    arXiv 2003.10555, appendix B).
    """
    if name.startswith("encoder.embeddings."):
        return decay ** (layers + 1)
    layer = re.match(r"encoder\.layers\.(\d+)\.", name)
    return decay ** (layers - int(layer[1])) if layer else 1.0
