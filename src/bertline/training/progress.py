"""How far a phase is: what of its state is neither a tensor nor a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from bertline.training.step import StepResult


@dataclass
class Progress:
    """Counts of a phase in training; a checkpoint's state.json holds all of them."""

    started: int  # milliseconds since 1970
    first_position: int  # of the first global batch in the order of samples
    step: int = 0  # updates of the weights
    skipped: int = 0  # global batches without an update
    backed_off: int = 0  # of these, because fp16's loss scale was too high
    skipped_in_a_row: list[int] = field(default_factory=list)  # the last of them, unless backed off
    tokens: int = 0

    @property
    def next_batch(self) -> int:
        """The number of the next global batch, from 0 on."""
        return self.step + self.skipped

    def count(self, result: StepResult) -> None:
        """Count a step, or a global batch that was skipped."""
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

    def state(self) -> dict[str, Any]:
        """Return what `from_state` takes, JSON-like."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Progress:
        """Restore `state()`; other keys are ignored."""
        return cls(**{name: state[name] for name in cls.__dataclass_fields__})
