"""Progress of a phase: the part of its state that is neither tensors nor files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
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

    def state(self) -> dict[str, Any]:
        """Return the state for `from_state`, JSON-compatible."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Progress:
        """Restore `state()`; other keys are ignored."""
        return cls(**{name: state[name] for name in cls.__dataclass_fields__})
