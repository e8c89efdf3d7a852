"""The time left of a graph, and the last points of its trainings.

A thread of its own finds them every few seconds: reading files, or a large graph, takes a while, and neither the run
nor what is drawn may wait for that.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import SEEK_END
from threading import Event, Thread

from snakemake_logger_plugin_bertline.schedule import GraphJob, RemainingJobs, seconds_left, without

INTERVAL = 3.0  # seconds
MAX_SHARE = 0.02  # of the time, in which other threads may have to wait
# Seconds of jobs as long as expected that are added to this run's, so that a few short ones say little of its speed.
EXPECTED_AS_LONG = 60.0
LAST_BYTES = 4096  # of a log, with its last line
# As in bertline.training.contract. Snakemake imports this module before the workflow decides which bertline it uses.
WAITS_FOR_GPU = "other trainings are on"

# The description and the seconds left of a training, by its rule and wildcards; the kind of a job, and the seconds that
# one takes; what is still to run.
ProgressOf = Callable[[str, Mapping[str, str]], tuple[str, float | None] | None]
ExpectedOf = Callable[[str, Mapping[str, str]], tuple[str, float | None]]
RemainingOf = Callable[[], RemainingJobs]


@dataclass
class Job:
    """A running job; `group_size` is the number of jobs in its group, which run one after the other."""

    number: int
    rule: str
    wildcards: dict[str, str]
    name: str
    log: str | None = None
    group_size: int = 1
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since it, or its group, was started or given to the cluster; without the wait for a GPU."""
        return time.monotonic() - self.started


@dataclass(frozen=True)
class TimeLeft:
    """The time left of a graph, at a time of `time.monotonic`; of some of its jobs it may be unknown."""

    seconds: float
    at: float
    is_complete: bool

    @property
    def now(self) -> float:
        """Seconds from now on."""
        return max(0.0, self.seconds - (time.monotonic() - self.at))


class Forecast:
    """What is known of the rest of a run. `progress` and `left` are replaced as a whole, for other threads to read.

    Attributes:
        progress: of trainings, by the number of the job.
        left: None if nothing is known.
    """

    def __init__(self, running: Callable[[], Sequence[Job]]) -> None:
        self.running = running
        self.progress_of: ProgressOf = lambda rule, wildcards: None
        self.expected_of: ExpectedOf = lambda rule, wildcards: (rule, None)
        self.remaining_jobs: RemainingOf = lambda: RemainingJobs([], 1)
        self.progress: dict[int, tuple[str, float | None]] = {}
        self.left: TimeLeft | None = None
        self._finished: list[tuple[Job, float]] = []  # since the last update
        self._failed: set[int] = set()
        self._measured: dict[str, tuple[int, float]] = {}  # number and mean seconds of finished jobs, by kind
        self._took = self._were_to_take = 0.0  # seconds of finished jobs of which something was expected
        self._ended = Event()

    def start(self) -> None:
        """Update every few seconds, until `stop`."""
        Thread(target=self._keep_updating, name="forecast", daemon=True).start()

    def stop(self) -> None:
        """Stop updating; an update that has started is not waited for."""
        self._ended.set()

    def begin(self, job: Job) -> None:
        """Count a job as started, perhaps once more."""
        self._failed.discard(job.number)

    def end(self, job: Job, *, failed: bool) -> None:
        """Take the time of a finished job for that of others of its kind."""
        if failed:
            self._failed.add(job.number)
        else:
            # Snakemake says of all jobs of a group at the same time that they have finished.
            self._finished.append((job, job.elapsed / job.group_size))

    def _keep_updating(self) -> None:
        wait = 0.0
        while not self._ended.wait(wait):
            began = time.thread_time()
            try:
                self.update()
            except Exception:  # the run goes on without
                self.left = None
            wait = max(INTERVAL, (time.thread_time() - began) / MAX_SHARE)

    def update(self) -> None:
        """Find the progress of trainings and the time left."""
        running = {job.number: job for job in self.running()}
        found = {number: self.progress_of(job.rule, job.wildcards) for number, job in running.items()}
        waiting, limits = _find_waiting(running)
        for number in waiting:  # it has not started yet
            running.pop(number).started = time.monotonic()
            found[number] = "waits for a GPU", None
        self.progress = {number: progress for number, progress in found.items() if progress is not None}
        while self._finished:
            job, seconds = self._finished.pop(0)
            kind, expected = self.expected_of(job.rule, job.wildcards)
            number, average = self._measured.get(kind, (0, 0.0))
            self._measured[kind] = (number + 1, average + (seconds - average) / (number + 1))
            if expected is not None:
                self._took, self._were_to_take = self._took + seconds, self._were_to_take + expected
        self.left = self._time_left(self.remaining_jobs(), running, limits)

    def _time_left(self, rest: RemainingJobs, running: Mapping[int, Job], limits: Mapping[str, int]) -> TimeLeft | None:
        at = time.monotonic()
        jobs = without(self._failed - running.keys(), rest.jobs)
        slowdown = self._slowdown(running)
        seconds: dict[int, float] = {}
        is_complete = not any(job.adds_jobs for job in jobs)
        for job in jobs:
            if job.is_target:
                continue
            whole = self._seconds_of(job, running.get(job.number), slowdown)
            if whole is None:
                is_complete = False
            else:
                seconds[job.number] = whole
        if not seconds:
            return None
        elapsed = {number: job.elapsed for number, job in running.items()}
        return TimeLeft(seconds_left(jobs, rest.slots, seconds, elapsed, limits), at, is_complete)

    def _slowdown(self, running: Mapping[int, Job]) -> float:
        """Return how many times as long as expected this run's jobs take: the machine may be busier, or another."""
        took, expected = self._took + EXPECTED_AS_LONG, self._were_to_take + EXPECTED_AS_LONG
        for number, (_, left) in self.progress.items():
            if left is None:
                continue
            _, whole = self.expected_of(running[number].rule, running[number].wildcards)
            if whole is not None:
                took, expected = took + running[number].elapsed + left, expected + whole
        return took / expected

    def _seconds_of(self, job: GraphJob, running: Job | None, slowdown: float) -> float | None:
        """Return the time from start to end of a job: by a training's own speed, or the mean of this run's jobs of its
        kind, or as expected; None if that is unknown."""
        _, left = self.progress.get(job.number, ("", None))
        if left is not None and running is not None:
            return running.elapsed + left
        kind, expected = self.expected_of(job.rule, job.wildcards)
        whole = expected if expected is None else expected * slowdown
        if kind in self._measured:
            _, whole = self._measured[kind]
        return whole


def _find_waiting(running: Mapping[int, Job]) -> tuple[set[int], dict[str, int]]:
    """Find the running jobs that wait for a GPU; return their numbers, and how many of their rules run at a time.

    On one machine Snakemake starts as many fine-tunings as there are cores, and all but a few wait. Where others of its
    rule wait, a job that has logged nothing yet will wait, too.
    """
    last = {number: _last_line(job.log) for number, job in running.items() if job.group_size == 1}
    rules = {running[number].rule for number, line in last.items() if WAITS_FOR_GPU in line}
    waiting = {
        number for number, line in last.items() if running[number].rule in rules and (not line or WAITS_FOR_GPU in line)
    }
    at_work = Counter(job.rule for number, job in running.items() if number not in waiting)
    return waiting, {rule: max(1, at_work[rule]) for rule in rules}


def _last_line(log: str | None) -> str:
    """Return the last line of a log; "" if there is none."""
    if log is None:
        return ""
    with suppress(OSError), open(log, "rb") as file:
        file.seek(max(0, file.seek(0, SEEK_END) - LAST_BYTES))
        return (file.read().decode("utf-8", "replace").rstrip().splitlines() or [""])[-1]
    return ""
