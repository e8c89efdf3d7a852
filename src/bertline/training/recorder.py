"""Recording of a phase's metrics: from its steps to journal points and log lines."""

from __future__ import annotations

from pathlib import Path

from bertline.training.distributed.process_group import Group
from bertline.training.flops import peak_of_all
from bertline.training.journal import Journal, log_point
from bertline.training.meter import Meter
from bertline.training.step import Learner


class Recorder:
    """Recorder of metrics: all ranks average them, rank 0 writes them."""

    def __init__(self, learner: Learner, group: Group, path: Path, *, last_step: int) -> None:
        """Open the journal at `path`, without the points after `last_step`. All ranks must call it."""
        peak = peak_of_all(group.device)
        self.meter = Meter(learner.model, group, peak=peak, has_pairs=learner.data.has_pairs)
        self._total_steps = learner.settings["steps"]
        self._journal = Journal(path, last_step=last_step) if group.is_rank_zero else None

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Write a point of the journal and a line of the log."""
        if self._journal is None:
            return
        self._journal.append(step, metrics)
        seconds_left = self.meter.seconds_a_step() * (self._total_steps - step)
        log_point(step, self._total_steps, metrics, seconds_left=seconds_left)

    def cut_back(self, step: int) -> None:
        """Remove the points after `step`."""
        if self._journal is not None:
            self._journal.close()
            self._journal = Journal(self._journal.path, last_step=step)

    def make_durable(self) -> None:
        """Wait until every point is on the disk."""
        if self._journal is not None:
            self._journal.make_durable()

    def close(self) -> None:
        """Make the journal durable and close it."""
        if self._journal is not None:
            self._journal.close()
