"""The loss scale of fp16: gradients are those of a multiple of the loss, so that small ones do not underflow."""

from __future__ import annotations

GROWS_AFTER = 2000  # steps
SMALLEST, LARGEST, FIRST = 1.0, 2.0**24, 2.0**16


class LossScale:
    """Dynamic loss scale (Micikevicius et al. 2017, arXiv 1710.03740, section 3.2): 1 for every precision but fp16."""

    def __init__(self, precision: str) -> None:
        self._moves = precision == "fp16"
        self.value = FIRST if self._moves else 1.0
        self._good_steps = 0

    def update(self, finite: bool) -> bool:
        """Halve the scale after a non-finite step, double it after 2,000 successive finite ones.

        Returns whether this was an ordinary back-off: the step is to be skipped, and nothing is wrong.
        """
        if not self._moves:
            return False
        if finite:
            self._good_steps += 1
            if self._good_steps % GROWS_AFTER == 0:
                self.value = min(LARGEST, 2 * self.value)
            return False
        self._good_steps = 0
        ordinary = self.value > SMALLEST
        self.value = max(SMALLEST, self.value / 2)
        return ordinary

    def state(self) -> list[float]:
        """Return the state for `restore`."""
        return [self.value, self._good_steps]

    def restore(self, state: list[float]) -> None:
        """Restore `state()`."""
        self.value, self._good_steps = state[0], int(state[1])
