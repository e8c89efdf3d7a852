"""Progress of a phase: counts, and the step with the best weights on held-out text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bertline.training.step import StepResult


@dataclass
class Progress:
    """Counts of a phase in training, all stored in a checkpoint's state.json."""

    started: int  # milliseconds since 1970
    first_position: int  # of the first global batch in the order of samples
    step: int = 0  # updates of the weights
    skipped: int = 0  # global batches without an update
    backed_off: int = 0  # those of `skipped` for which fp16's loss scale was too high
    skipped_in_a_row: list[int] = field(default_factory=list)  # numbers of the last ones, without back-offs
    tokens: int = 0
    unreported: bool = False  # the last step has no point in the journal yet: its evaluation was interrupted
    points: int | None = None  # of the journal; None before the first, and if the checkpoint did not state it

    @property
    def reported_step(self) -> int:
        """The last step whose point of the journal, if it has one, was written."""
        return self.step - 1 if self.unreported else self.step

    @property
    def next_batch(self) -> int:
        """Number of the next global batch, counted from 0."""
        return self.step + self.skipped

    def count(self, result: StepResult) -> None:
        """Count a step or a skipped global batch."""
        if result.updated:
            self.step += 1
            self.skipped_in_a_row = []
            self.tokens += int(result.batch.lengths.sum())
            return
        if result.backed_off:
            self.backed_off += 1
        else:
            self.skipped_in_a_row.append(self.next_batch)
        self.skipped += 1

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Progress:
        """Restore a checkpoint's counts; other keys of its state are ignored."""
        return cls(**{name: state[name] for name in cls.__dataclass_fields__ if name in state})


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
