"""Tracking of the step with the best weights on held-out text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class Best:
    """The lowest held-out MLM loss so far, in nats, among the compared steps, and its step."""

    def __init__(self, *, every: int | None, keep: bool) -> None:
        """Compare multiples of the recipe's `every` and the last step; if None, with `keep`, all evaluated steps."""
        self.every, self.keep = every, keep
        self.step: int | None = None
        self.mlm_loss = math.inf

    def is_due(self, step: int) -> bool:
        """Return whether the recipe requires an evaluation after `step`."""
        return self.every is not None and step % self.every == 0

    def update(self, step: int, metrics: Mapping[str, float], *, last: bool) -> bool:
        """Compare an evaluation's metrics; return whether `step` is the best so far. A tie keeps the earlier step."""
        counts = self.keep if self.every is None else last or self.is_due(step)
        loss = metrics.get("held_out/mlm_loss", math.nan)
        if not counts or not loss < self.mlm_loss:
            return False
        self.step, self.mlm_loss = step, loss
        return True

    def state(self) -> dict[str, Any] | None:
        """Return the state for `restore`; None before the first comparison."""
        return None if self.step is None else {"step": self.step, "mlm_loss": self.mlm_loss}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Restore `state()`."""
        self.step, self.mlm_loss = (state["step"], state["mlm_loss"]) if state else (None, math.inf)
