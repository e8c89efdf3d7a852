"""What the last bits of the weights depend on, apart from the recipe. A checkpoint records it, and resume compares."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bertline.training.group import Group
from bertline.training.options import Options

logger = logging.getLogger(__name__)


def exactness_of(options: Options, group: Group, *, rows: int, shares: Sequence[float]) -> dict[str, Any]:
    """How this process computes: the same in every process, JSON-like."""
    return {
        "world_size": group.world_size,
        "shares": list(shares),
        "threads": torch.get_num_threads(),
        "rows": rows,
        "compiled": options.compiled,
        "device": torch.cuda.get_device_name() if group.device.type == "cuda" else "cpu",
        "torch": torch.__version__,
    }


def report_lost_exactness(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Say what is not as it was for the trainer of a checkpoint."""
    for name, value in now.items():
        if before.get(name) != value:
            logger.warning(
                "%s was %s and is %s: same samples in the same batches, but no longer the same bits",
                name, before.get(name), value,
            )  # fmt: skip
