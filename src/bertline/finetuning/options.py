"""Options of a fine-tuning, which change how it is computed but not its batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from bertline.training.options import MAX_SHARING


@dataclass(frozen=True)
class Options:
    """Types, defaults and help of the options."""

    threads: int | None = None
    """Threads of this node, divided among its processes (default: all)."""
    micro_batch_tokens: int = 32768
    """Tokens, with padding, that a process computes at once, at least one input; larger batches are accumulated."""
    activation_checkpointing: bool = False
    """Compute layers again in the backward pass: less memory for a third more work."""
    load_balancing: str = "equal"
    """Division of a batch: equal; measured, for unlike devices; 3,1,1: rank weights."""
    checkpoint_every_minutes: float = 10.0
    """Minutes between two checkpoints."""
    fine_tunings_per_gpu: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_SHARING))] = 1
    """Number of fine-tunings of one process that may use a GPU at once, at most 16."""
