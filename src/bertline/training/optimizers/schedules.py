"""Learning rate schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

SCALING_POWERS = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}
# Settings of K-FAC that may change with the step.
SCHEDULED = ("decay", "damping", "kl_clip", "factor_interval", "inverse_interval")


def share_or_steps(value: float, total: int) -> float:
    """Return the number of steps given by `value`: a fraction of `total` if below 1, else a number of steps."""
    return value if value >= 1 else value * total


def learning_rate_at(
    step: int,
    *,
    peak: float,
    total: int,
    warmup: float,
    schedule: str,
    power: float = 1.0,
    end: float = 0.0,
    decay: float = 0.0,
    after_warmup: bool = False,
) -> float:
    """Return the learning rate of update number `step`, counted from 1, under a schedule of `total` steps.

    During warm-up it rises linearly to `peak`. After `total` steps it stays at `end`. Between:

    - polynomial: from `peak` at step 0 to `end` at `total`, as (1 - step / total) ** power. As in NVIDIA's published
      recipe, the decay counts from step 0, not from the end of the warm-up, so the rate drops as warm-up ends (to 0.846
      of the peak with a warm-up of 0.2843), and with an `end` of 0 the last update has no effect. With `after_warmup`
      the decay counts from the end of the warm-up, as in transformers and hetseq.
    - linear, cosine: from `peak` at the end of the warm-up to `end` at `total` + 1, so that the last update still has
      an effect: one with a rate of 0 would waste a pass over a global batch.
    - wsd (warm-up, stable, decay; Hu et al. 2024, arXiv 2404.06395): `peak` until the last `decay` steps,
      then linearly to `end` at `total` + 1.
    - constant: `peak`.

    Args:
        peak, end: learning rates.
        warmup, decay: a fraction if below 1, else a number of steps. The fraction is of `total`, or of `total` + 1 if
            the schedule ends there.

    Raises ValueError for an unknown schedule.
    """
    if schedule in ("linear", "cosine", "wsd"):
        total += 1
    warmup_steps = share_or_steps(warmup, total)
    if step < warmup_steps:
        return peak * step / warmup_steps
    left = max(0.0, (total - step) / max(1e-9, total - warmup_steps))
    if schedule == "polynomial":
        return end + (peak - end) * (left if after_warmup else max(0.0, 1 - step / total)) ** power
    if schedule == "linear":
        return end + (peak - end) * left
    if schedule == "cosine":
        return end + (peak - end) * 0.5 * (1 + math.cos(math.pi * (1 - left)))
    if schedule == "wsd":
        return end + (peak - end) * max(0.0, min(1.0, (total - step) / share_or_steps(decay, total)))
    if schedule == "constant":
        return peak
    raise ValueError(f"unknown schedule {schedule}")


def value_at(step: int, given: Any) -> Any:
    """Return a setting's value for update number `step`.

    Args:
        given: the value, or pairs [first step, value]: the last pair that has started counts.
    """
    if not isinstance(given, list):
        return given
    return next(value for first, value in reversed(given) if first <= step)


def batch_size_factor(settings: Mapping[str, Any], batch_size: int) -> float:
    """Return the factor of learning rates: (batch_size / base_batch_size) ** (0, 0.5 or 1).

    The square root preserves the variance of an update (Krizhevsky 2014, arXiv 1404.5997; used for LAMB by You et al.
    2019), linear scaling the mean over an epoch's updates (Goyal et al. 2017, arXiv 1706.02677). That of a phase is its
    full batch size, even during a batch-size warm-up.
    """
    power = SCALING_POWERS[settings["learning_rate_scaling"]]
    return (batch_size / settings["base_batch_size"]) ** power if power else 1.0


def learning_rate_of_phase(settings: Mapping[str, Any], step: int) -> float:
    """Return the learning rate of update number `step`, counted from 1, for a phase's settings."""
    factor = batch_size_factor(settings, settings["global_batch_size"])
    return learning_rate_at(
        step,
        peak=settings["learning_rate"] * factor,
        total=schedule_steps(settings),
        warmup=settings["warmup"],
        schedule=settings["schedule"],
        power=settings["power"],
        end=settings["end_learning_rate"] * factor,
        decay=settings["decay"],
        after_warmup=settings["polynomial_from"] == "warmup",
    )


def schedule_steps(settings: Mapping[str, Any]) -> int:
    """Return over how many steps the schedule of a phase's settings runs."""
    return int(settings["schedule_steps"] or settings["steps"])
