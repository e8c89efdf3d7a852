"""Options of a fine-tuning, which change how it is computed but not its batches."""

from __future__ import annotations

from dataclasses import dataclass

from bertline.training.options import MICRO_BATCH_TOKENS


@dataclass(frozen=True)
class Options:
    """Types, defaults and help of the options."""

    threads: int | None = None
    """Of this node, divided among its processes (default: all)."""
    micro_batch_tokens: int = MICRO_BATCH_TOKENS
    """Computed at once by a process, with padding, at least one input; batches of more are accumulated."""
    activation_checkpointing: bool = False
    """Compute layers again in the backward pass: less memory for a third more work."""
    load_balancing: str = "equal"
    """Of a batch among the ranks: equal; measured, for unlike devices; 3,1,1: weights."""
    checkpoint_every_minutes: float = 10.0
    """Minutes between two checkpoints."""
    fine_tunings_per_gpu: int = 1
    """Number of fine-tunings of one process that may use a GPU at once."""
