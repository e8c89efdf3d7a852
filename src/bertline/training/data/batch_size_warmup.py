"""Batch-size warm-up: a smaller global batch in the first steps, in which gradients are large and similar.

A step's size and the number of samples before it depend on the step alone, so a resume has nothing to restore.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bertline.encoding.ranges import offsets_of
from bertline.training.optimizers.schedules import share_or_steps


@dataclass(frozen=True)
class BatchSizeWarmup:
    """Linear growth of the batch size from `first` at step 0 to `full` at step `steps`; constant afterwards.

    Sizes are rounded down to multiples of the greatest common divisor of `first` and `full`: a number of ranks or a
    micro-batch size that divides these two divides all sizes between them.
    """

    first: int  # samples, at least 1
    full: int  # samples, at least `first`
    steps: int  # 0: none

    def batch_size_at(self, step: int) -> int:
        """Return the number of samples in the global batch of `step`."""
        return self.position_at(step + 1) - self.position_at(step)

    def position_at(self, step: int) -> int:
        """Return the number of samples in all global batches before `step`: the position of its first sample."""
        inside = min(step, self.steps)
        return int(self._positions[inside]) + (step - inside) * self.full

    @cached_property
    def _positions(self) -> np.ndarray:
        unit, steps = math.gcd(self.first, self.full), np.arange(self.steps, dtype=np.int64)
        return offsets_of(self.first + unit * ((self.full - self.first) // unit * steps // max(1, self.steps)))


def batch_size_warmup_of(settings: Mapping[str, Any]) -> BatchSizeWarmup:
    """Return the warm-up of a phase's settings; without `batch_size_warmup` it has 0 steps."""
    full, warmup = settings["global_batch_size"], settings["batch_size_warmup"]
    if warmup is None:
        return BatchSizeWarmup(full, full, 0)
    return BatchSizeWarmup(warmup["from"], full, math.ceil(share_or_steps(warmup["steps"], settings["steps"])))
