"""Repetition of a request to a scheduler whose server is away or too busy, while snakemake runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

from bertline.console import BertlineError

MAX_SECONDS = 24 * 3600
MAX_PAUSE = 60.0  # seconds between two attempts
POLL_SECONDS = 1.0  # between two looks at whether snakemake has ended, in a pause

T = TypeVar("T")


def wait_for_answer(
    attempt: Callable[[bool], T],
    unanswered: type[Exception],
    announce: Callable[[BaseException], None],
    has_ended: Callable[[], bool],
    find: Callable[[], T | None] = lambda: None,
    name: str = "",
) -> T:
    """Call `attempt` until it does not raise `unanswered`, for at most a day, and return what it returns.

    Args:
        attempt: called with whether it is a repetition, because a request without an answer may have been accepted.
        unanswered: the exception of a request to repeat.
        announce: called with the first of these.
        has_ended: returns whether snakemake has ended, or was asked to. Then nothing may be submitted any more.
        find: called once when snakemake has ended after an unanswered request; returns what `attempt` would have
            returned if it was accepted, None if it was not, and raises `unanswered` if that remains unknown.
        name: of the job in the queue, for a message.

    Raises what `attempt` raised last, and BertlineError if snakemake has ended and no request is known to be accepted.
    """

    def before_sleep(state: tenacity.RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome and (error := state.outcome.exception()):
            announce(error)

    def pause(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not has_ended():
            time.sleep(min(POLL_SECONDS, left))

    retrying = tenacity.Retrying(
        sleep=pause,
        retry=tenacity.retry_if_exception_type(unanswered),
        wait=tenacity.wait_exponential(max=MAX_PAUSE),
        stop=tenacity.stop_after_delay(MAX_SECONDS),
        before_sleep=before_sleep,
        reraise=True,
    )
    for trial in retrying:
        with trial:
            repeated = trial.retry_state.attempt_number > 1
            if not has_ended():
                answer = attempt(repeated)
            elif (found := _find_lost(find, unanswered, name) if repeated else None) is not None:
                answer = found
            else:
                raise BertlineError("snakemake has ended; this job is not submitted")
    return answer


def _find_lost(find: Callable[[], T | None], unanswered: type[Exception], name: str) -> T | None:
    """Call `find`. Raises BertlineError if it remains unknown whether a request was accepted."""
    try:
        return find()
    except unanswered:
        raise BertlineError(
            f"snakemake has ended; this job may be in the queue as {name}; look for it there and cancel it"
        ) from None
