"""Repetition of a pass over the runs, for followers of live trainings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from bertline.console import BertlineError

logger = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 1e6


def check_interval(seconds: float) -> None:
    """Raise BertlineError for seconds that cannot be waited."""
    if not 0 < seconds <= MAX_WAIT_SECONDS:  # NaN, too
        raise BertlineError(f"{seconds:g} seconds cannot be waited; give a number above 0, such as 10")


def repeat(one_pass: Callable[[], int], sent: str, seconds: float) -> None:
    """Call `one_pass` every `seconds` seconds until interrupted.

    A failed pass is repeated, and reported if its reason is new.

    Args:
        sent: format of the line that is logged if a pass returns a number other than 0.

    Raises BertlineError for seconds that cannot be waited.
    """
    check_interval(seconds)
    reported = ""
    try:
        while True:
            try:
                if number := one_pass():
                    logger.info(sent, number)
                reported = ""
            except (BertlineError, OSError) as error:  # the latter of a full disk, which somebody may empty
                if reported != (reported := str(error)):
                    logger.warning("%s; trying again every %g seconds", error, seconds)
            time.sleep(seconds)
    except KeyboardInterrupt:
        logger.info("stopped following")
