"""Requests to stop: by SIGTERM, by SIGUSR1 (what Slurm sends before the walltime ends), or by a deadline.

This module imports no PyTorch, so that handlers are installed before that takes its seconds.
"""

from __future__ import annotations

import signal
import time

# How a trainer's process ended, in the words of sysexits.h. srun gives the highest status of its tasks.
LOST = 69  # it lost the connection to another one, which failed: EX_UNAVAILABLE
FAILED = 70  # by itself, and said why: EX_SOFTWARE
STOPPED = 75  # it was asked to stop and saved its state: EX_TEMPFAIL, run me again


class StopSignal:
    """Records a request to stop. Make it in the main thread, as early as possible."""

    def __init__(self, minutes: float | None = None) -> None:
        """Install the handlers; `minutes` from now is the deadline, None for none."""
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._received = False
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: object) -> None:
        self._received = True

    @property
    def received(self) -> bool:
        """Whether a signal came or the deadline is over."""
        return self._received or (self._deadline is not None and time.monotonic() > self._deadline)
