"""The metrics journal: one JSON object per line, appended by rank 0, next to the checkpoints."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import parse_json, write_text
from bertline.results.journal import describe_metrics

logger = logging.getLogger(__name__)


class Journal:
    """A journal at `path` to append to. Lines that a crash truncated or a resume retracts are removed first."""

    def __init__(self, path: Path, *, last_step: int, points: int | None = None) -> None:
        """Open the journal, keeping the points up to and including `last_step`; -1 keeps none.

        Reports if they are fewer than `points`, their number when the checkpoint was written, if it has that.
        """
        self.path = path
        self._open(last_step, points)

    def _open(self, last_step: int, points: int | None) -> None:
        path, kept, dropped = self.path, [], 0
        if last_step >= 0 and not path.exists():
            logger.warning("%s is missing: its points up to step %d are lost, and training continues", path, last_step)
        for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], start=1):
            step = _step_of(line)
            if step is None or step > last_step:  # retracted, or truncated by a crash: only the end of a journal is
                dropped = dropped or number
            elif dropped:
                raise BertlineError(
                    f"{path} line {dropped} is damaged, or its step is too large: points of step {step} follow it; "
                    "delete the line, and run the same command again"
                )
            else:
                kept.append(line.decode())
        if path.exists() and points is not None and (lost := points - len(kept)) > 0:
            logger.warning(
                "%s lacks %d of its points up to step %d: they are lost, and training continues", path, lost, last_step
            )
        write_text(path, "".join(f"{line}\n" for line in kept))
        self._points = len(kept)
        self._file = path.open("a", encoding="utf-8")

    def cut_back(self, step: int, *, points: int | None = None) -> None:
        """Remove the points after `step`. Reports if the others are fewer than `points`."""
        self.close()
        self._open(step, points)

    def append(self, step: int, metrics: Mapping[str, float]) -> int:
        """Write one point now; return their number. Non-finite values, which JSON cannot represent, are left out."""
        finite = {key: value for key, value in metrics.items() if math.isfinite(value)}
        point = {"step": step, "timestamp": time.time_ns() // 1_000_000, "metrics": finite}
        with self._named():
            self._file.write(json.dumps(point, sort_keys=True, allow_nan=False) + "\n")
            self._file.flush()
        self._points += 1
        return self._points

    def make_durable(self) -> None:
        """Wait until everything written is on the disk."""
        with self._named():
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Make the journal durable and close it."""
        self.make_durable()
        with self._named():
            self._file.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Give an OSError, as of a full disk, the name of the journal."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error


def _step_of(line: bytes) -> int | None:
    """Return the step of a line; None if it is not a point."""
    try:
        point = parse_json(line.decode())
        return point["step"] if type(point["step"]) is int and isinstance(point["metrics"], dict) else None
    except (ValueError, KeyError, TypeError):
        return None


def log_point(step: int, total_steps: int, metrics: Mapping[str, float], *, seconds_left: float | None) -> None:
    """Log a point as one line, with the time left if it is known."""
    left = "" if seconds_left is None else f", {timedelta(seconds=round(seconds_left))} left"
    logger.info("step %d/%d, %s%s", step, total_steps, describe_metrics(metrics), left)
