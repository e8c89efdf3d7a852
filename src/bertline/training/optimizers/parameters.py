"""Parameter groups for optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

NamedParameters = Sequence[tuple[str, Tensor]]


def decay_groups(parameters: NamedParameters, weight_decay: float) -> list[dict[str, Any]]:
    """Split `parameters` into a group with `weight_decay` and one without, of biases and normalisations."""
    decayed = [weight for name, weight in parameters if _is_decayed(name)]
    others = [weight for name, weight in parameters if not _is_decayed(name)]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _is_decayed(name: str) -> bool:
    return not name.endswith("bias") and "normalization" not in name
