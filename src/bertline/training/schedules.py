"""Learning rates by step."""

from __future__ import annotations

import math


def learning_rate_at(step: int, *, peak: float, total: int, warmup: float, schedule: str, power: float = 0.5) -> float:
    """The learning rate of update number `step`, counted from 1 to `total`.

    During warm-up it rises linearly to `peak`. Then:

    - polynomial: peak x (1 - step / total) ** power. As in NVIDIA's runs the decay counts from step 0, not from the end
      of the warm-up, so the rate drops as warm-up ends (to 0.846 of the peak with a warm-up of 0.2843).
    - linear, cosine: from `peak` at the end of the warm-up to 0 at `total`.
    - constant: `peak`.

    Parameters
    ----------
    warmup: a share of `total` below 1, a number of steps from 1 on.
    """
    warmup_steps = warmup if warmup >= 1 else warmup * total
    if step < warmup_steps:
        return peak * step / warmup_steps
    left = (total - step) / max(1e-9, total - warmup_steps)
    if schedule == "polynomial":
        return peak * max(0.0, 1 - step / total) ** power
    if schedule == "linear":
        return peak * max(0.0, left)
    if schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * (1 - max(0.0, left))))
    if schedule == "constant":
        return peak
    raise ValueError(f"unknown schedule {schedule}")
