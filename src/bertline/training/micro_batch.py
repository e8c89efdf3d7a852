"""How many rows a micro-batch has."""

from __future__ import annotations

from typing import Any


def rows_of(micro_batch_tokens: int, settings: dict[str, Any], world_size: int) -> int:
    """Rows of a micro-batch: at most as many as fit, and so that a rank's part of a global batch is cut evenly."""
    most = max(1, micro_batch_tokens // settings["sequence_length"])
    of_rank = -(-settings["global_batch_size"] // world_size)
    pieces = -(-of_rank // most)
    return -(-of_rank // pieces)
