"""What all submissions through the executor cluster-generic share: they wait for a server, and end with snakemake."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from bertline.cluster import waiting
from bertline.console import BertlineError

# Environment variable with the path of a file, to which submissions add their jobs. The process that cancels the jobs
# at the end of snakemake makes and removes it.
SUBMITTED = "SNAKEMAKE_CLUSTER_SIDECAR_VARS"
# Messages of PBS, Grid Engine, LSF and kubectl when no answer of the server arrived. The request may have arrived all
# the same. PBS also "cannot connect" for a user who has no permission, error 15007, and to a host without a server,
# error 15008.
NO_ANSWER = re.compile(
    r"cannot connect to server(?!.*errno=1500[78])|commlib error|unable to (contact|send message to) qmaster"
    r"|LSF is down|LIM is down|batch daemon (is )?not responding|communication time ?out"
    r"|connection (to the server .* was )?(refused|reset|timed out)|no route to host|client connection lost"
    r"|TLS handshake timeout|i/o timeout|context deadline exceeded|Client\.Timeout exceeded"
    r"|no such host|server misbehaving|temporary failure in name resolution|network is unreachable"
    # A load balancer closes the connection, or answers itself.
    r"|\bEOF\b|GOAWAY|bad gateway|service ?unavailable|an error on the server"
    r"|unable to return a response in the time|received too many requests"
    r"|etcdserver: (request timed out|leader changed|no leader)|the server is currently unable to handle the request",
    re.IGNORECASE,
)

T = TypeVar("T")


class NoAnswer(BertlineError):
    """The server of the scheduler did not answer."""


def wait_for_answer(attempt: Callable[[bool], T], find: Callable[[], T | None] = lambda: None, name: str = "") -> T:
    """Call `attempt` until it does not raise NoAnswer, for at most a day, and return what it returns.

    Args:
        attempt: called with whether it is a repetition, because a request without an answer may have been accepted.
        find: looks for such a request when snakemake has ended; raises NoAnswer if it is not known to be accepted.
        name: of the job in the queue, for a message.

    Raises:
        BertlineError: what `attempt` raised, or if snakemake has ended meanwhile.
    """

    return waiting.wait_for_answer(attempt, NoAnswer, _announce, _has_ended, find, name)


def submitted() -> Path:
    """Return the file to which submissions add their jobs. Raises BertlineError outside snakemake's submissions."""
    if SUBMITTED not in os.environ:
        raise BertlineError(
            f"{SUBMITTED} is not set: snakemake sets it, with a profile of bertline; start snakemake instead"
        )
    return Path(os.environ[SUBMITTED])


def _has_ended() -> bool:
    return not submitted().exists()


def _announce(error: BaseException) -> None:
    print(f"a submission waits for the scheduler: {error}", file=sys.stderr, flush=True)


def record_job(number: str, cancel: Callable[[list[str]], object]) -> None:
    """Record a new job for the end of snakemake, or cancel it if snakemake has ended.

    The file of jobs is renamed before it is read (`take_jobs`), so one of the two finds the job, without a lock, which
    not every file system has.

    Raises BertlineError if snakemake has ended.
    """
    record(number)
    cancel_if_ended(number, cancel)


def record(number: str) -> None:
    """Record a job for the end of snakemake: before it is made, if its number is known then."""
    with suppress(FileNotFoundError), open(submitted(), "a", opener=_open_existing) as file:
        file.write(f"{number}\n")


def cancel_if_ended(number: str, cancel: Callable[[list[str]], object]) -> None:
    """Cancel a job if snakemake has ended.

    Args:
        number: of the job.
        cancel: cancels jobs with such numbers; raises BertlineError if that fails.

    Raises:
        BertlineError: if snakemake has ended.
    """
    if _has_ended():
        try:
            cancel([number])
        except BertlineError as error:
            raise BertlineError(
                f"snakemake has ended; its new job {number} was not canceled ({error}); cancel it by hand"
            ) from None
        raise BertlineError(f"snakemake has ended; its new job {number} was canceled")


def _open_existing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_CREAT)


def take_jobs(submitted: Path) -> list[str]:
    """Return the jobs that were recorded in `submitted`, and remove it; later ones cancel themselves."""
    taken = submitted.with_suffix(".taken")
    submitted.replace(taken)
    numbers = taken.read_text().split()
    taken.unlink()
    return numbers


def is_new(mark: Path) -> bool:
    """Make an empty file; return whether it was not there.

    Also if a full volume does not take it: a status that is not printed would end snakemake with all jobs.
    """
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch(exist_ok=False)
    except OSError:
        return not mark.exists()
    return True
