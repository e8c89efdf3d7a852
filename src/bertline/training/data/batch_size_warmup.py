"""Batch-size warm-up: a smaller global batch in the first steps, in which gradients are large and similar.

A step's size and the number of samples before it are closed forms of the step, so a resume has nothing to restore.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
        if step >= self.steps:
            return self.full
        unit = math.gcd(self.first, self.full)
        return self.first + unit * ((self.full - self.first) // unit * step // self.steps)

    def position_at(self, step: int) -> int:
        """Return the number of samples in all global batches before `step`: the position of its first sample."""
        inside = min(step, self.steps)
        unit = math.gcd(self.first, self.full)
        rounded = floor_sum(inside, (self.full - self.first) // unit, self.steps) if inside else 0
        return inside * self.first + unit * rounded + (step - inside) * self.full


def batch_size_warmup_of(settings: Mapping[str, Any]) -> BatchSizeWarmup:
    """Return the warm-up of a phase's settings; without `batch_size_warmup` it has 0 steps."""
    full, warmup = settings["global_batch_size"], settings["batch_size_warmup"]
    if warmup is None:
        return BatchSizeWarmup(full, full, 0)
    return BatchSizeWarmup(warmup["from"], full, math.ceil(share_or_steps(warmup["steps"], settings["steps"])))


def floor_sum(count: int, numerator: int, denominator: int) -> int:
    """Sum floor(numerator * i / denominator) for i from 0 to count - 1, in O(log denominator) exact steps.

    All arguments are non-negative integers; `denominator` is at least 1. Lattice points under a line are counted by
    swapping the triangle's axes, as in Euclid's algorithm (Graham, Knuth and Patashnik 1994, Concrete Mathematics,
    section 3.5).
    """
    total, offset = 0, 0
    while True:
        total += numerator // denominator * (count * (count - 1) // 2) + offset // denominator * count
        numerator, offset = numerator % denominator, offset % denominator
        height, rest = divmod(numerator * count + offset, denominator)
        if height == 0:
            return total
        count, numerator, denominator, offset = height, denominator, numerator, rest
