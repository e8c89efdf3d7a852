"""Requests to stop: SIGTERM, Ctrl-C, SIGUSR1 (which Slurm sends before the walltime ends), SIGHUP, or a deadline.

This module does not import PyTorch, so that handlers are installed before its import, which takes seconds.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from bertline.console import BertlineError, handle_signals
from bertline.training.contract import STEP_IS_SAVED, STOPPED, TOKEN, is_rank_zero

if TYPE_CHECKING:
    from bertline.training.distributed.process_group import Group

logger = logging.getLogger(__name__)


def print_that_ctrl_c_saves() -> None:
    """Print what the first Ctrl-C does, in a signal handler: nobody may read it, as after `| tee`, which ended."""
    with suppress(OSError):
        os.write(2, b"Ctrl-C: saving; press it again to end at once, without saving\n")


class StopSignal:
    """A recorder of requests to stop. Create it in the main thread, as early as possible."""

    def __init__(self, minutes: float | None = None) -> None:
        """Install the handlers; the deadline is `minutes` from now, None for no deadline.

        Raises BertlineError if `minutes` is not a number.
        """
        if minutes is not None and math.isnan(minutes):
            raise BertlineError("--stop-after-minutes: given nan, allowed are minutes")
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._received = False
        handle_signals((signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP), self._receive)

    def _receive(self, number: int, frame: object) -> None:
        self._received = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the next one ends the process, whatever it does
            if TOKEN not in os.environ and is_rank_zero():  # otherwise the launcher says it
                print_that_ctrl_c_saves()

    @property
    def received(self) -> bool:
        """Whether a signal was received or the deadline has passed."""
        return self._received or (self._deadline is not None and time.monotonic() > self._deadline)


def end_with_saved(step: int) -> NoReturn:
    """Say that `step` is saved, and raise SystemExit with status 75."""
    logger.info(STEP_IS_SAVED.format(step=step))
    raise SystemExit(STOPPED)


def end_if_asked(group: Group, stop_signal: StopSignal | None) -> None:
    """Raise SystemExit with status 75 on every rank if any rank's `stop_signal` is set while all wait."""
    if group.all_reduce_max(stop_signal is not None and stop_signal.received):
        logger.info("asked to stop while waiting; run the same command to wait again")
        raise SystemExit(STOPPED)
