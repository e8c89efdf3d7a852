"""What alters how a phase is run, and not its result: the trainer's options beside the recipe."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Options of workflow/scripts/pretrain.py, whose help says more."""

    threads: int = 1  # of this node
    # A micro-batch has as many full-length rows as fit, at least one. None: found by trying.
    micro_batch_tokens: int | None = 16384
    compiled: bool = False
    cuda_graphs: bool = False
    compiled_optimizer: bool = False
    sharded_optimizer: bool = False
    sharded_weights: bool = False
    recompute: bool = False
    deterministic: bool = False
    division: str = "equal"  # of a global batch among the ranks: equal, measured, measured-again, or as in "3,1"
    log_every: int = 10  # steps
    evaluate_every: int = 200  # steps; 0 for only at the start and the end
    checkpoint_every: int = 0  # steps; 0 for only by the clock
    checkpoint_every_minutes: float = 15.0
    keep_checkpoints: int = 2
    keep_every: int = 0  # steps; checkpoints of their multiples stay
    keep_best: bool = False  # the checkpoint with the lowest held-out MLM loss stays
    wait_for_lock: bool = True
    profile: bool = False  # rank 0 writes checkpoints/profile/
