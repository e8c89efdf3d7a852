"""Repetition of a request to a scheduler whose server is away or too busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

MAX_SECONDS = 24 * 3600
MAX_PAUSE = 60.0  # seconds between two attempts

T = TypeVar("T")


def wait_for_answer(
    attempt: Callable[[bool], T], unanswered: type[Exception], announce: Callable[[BaseException], None]
) -> T:
    """Call `attempt` until it does not raise `unanswered`, for at most a day, and return what it returns.

    Args:
        attempt: called with whether it is a repetition, because a request without an answer may have been accepted.
        unanswered: the exception of a request to repeat.
        announce: called with the first of these.

    Raises what `attempt` raised last.
    """

    def before_sleep(state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome and (error := state.outcome.exception()):
            announce(error)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(unanswered),
        wait=tenacity.wait_exponential(max=MAX_PAUSE),
        stop=tenacity.stop_after_delay(MAX_SECONDS),
        before_sleep=before_sleep,
        reraise=True,
    )
    for trial in retrying:
        with trial:
            answer = attempt(trial.retry_state.attempt_number > 1)
    return answer
