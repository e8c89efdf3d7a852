"""What a run of the graph shows on a terminal, from the events that Snakemake logs."""

from __future__ import annotations

import atexit
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import mean

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from snakemake_interface_logger_plugins.common import LogEvent

# Running jobs with a line of their own.
MAX_SHOWN = 8
# Messages without an event that are shown to the user; others of their level are only in the log.
SHOWN_MESSAGES = ("Nothing to be done", "Complete log", "Building DAG")
# What Snakemake adds about a failed job, of which a line says that it failed; the workflow's last lines say why.
REPEATED_MESSAGES = ("Exiting because a job execution failed", "At least one job did not complete", "Complete log")
INTERRUPTED = "Terminating processes on user request"
REFRESH_PER_SECOND = 2

# A job's name, and the description and the seconds left of a training, by its rule and wildcards.
NameOf = Callable[[str, Mapping[str, str]], str]
ProgressOf = Callable[[str, Mapping[str, str]], tuple[str, float | None] | None]


@dataclass
class Job:
    """A running job."""

    rule: str
    wildcards: dict[str, str]
    name: str
    started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since it was started, or given to the cluster."""
        return time.monotonic() - self.started


def is_shown(record: logging.LogRecord) -> bool:
    """Return whether a message that belongs to no job is for the user."""
    said = "" if record.msg is None else record.getMessage()
    return record.levelno >= logging.WARNING or said.startswith(SHOWN_MESSAGES)


def message_of(record: logging.LogRecord) -> Text:
    """Return the text of a message, red if it is an error."""
    return Text(record.getMessage(), style="red" if record.levelno >= logging.ERROR else "")


class Display:
    """Lines of finished jobs, and below them the running ones, progress and time left.

    Snakemake's logging thread calls `show`, a thread of rich draws.
    """

    def __init__(self) -> None:
        self.name_of: NameOf = lambda rule, wildcards: rule
        self.progress_of: ProgressOf = lambda rule, wildcards: None
        self.running: dict[int, Job] = {}
        self.waiting: dict[str, int] = {}
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)  # of finished jobs, by rule
        self.done = self.total = 0
        self.began = 0.0
        self.failed: set[tuple[str, str]] = set()  # rules and names of jobs that failed and have not succeeded since
        self.is_interrupted = False
        self.console = Console(stderr=True, highlight=False)
        self.live = Live(
            console=self.console,
            get_renderable=self._render,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
        )
        atexit.register(self.stop)  # a cursor that stays hidden is worse than a late line

    def describe_jobs(self, name_of: NameOf, progress_of: ProgressOf) -> None:
        """Take what describes a job from the workflow.

        Nothing of bertline is imported here, because the workflow decides which bertline it uses.
        """
        self.name_of, self.progress_of = name_of, progress_of

    def stop(self) -> None:
        """Remove what is below the lines."""
        self.live.stop()

    def show(self, record: logging.LogRecord) -> None:
        """Show an event of Snakemake's log; most are only counted."""
        match getattr(record, "event", None):
            case LogEvent.RUN_INFO:
                self._begin(record.stats)  # type: ignore[attr-defined]
            case LogEvent.JOB_INFO:
                self._start(record)
            case LogEvent.JOB_FINISHED:
                self._end(record.job_id)  # type: ignore[attr-defined]
            case LogEvent.JOB_ERROR:
                self._end(record.jobid, failed=True)  # type: ignore[attr-defined]
            case LogEvent.GROUP_ERROR:
                for job in record.job_error_info:  # type: ignore[attr-defined]
                    self._end(job["jobid"], failed=True)
            case LogEvent.PROGRESS:
                self.done, self.total = record.done, record.total  # type: ignore[attr-defined]
            case None if record.msg is not None and record.getMessage().startswith(INTERRUPTED):
                self.is_interrupted = True
                self._print(Text("Ctrl-C: trainings save and end; press it again to end at once, without saving"))
            case LogEvent.ERROR | None if is_shown(record) and not self._is_repeated(record):
                self._print(message_of(record))

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        said = "" if record.msg is None else record.getMessage()
        # The first comes before the event of the failure.
        return "CalledProcessError" in said or (bool(self.failed) and any(text in said for text in REPEATED_MESSAGES))

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True)

    def _begin(self, stats: Mapping[str, int]) -> None:
        self.waiting = {rule: count for rule, count in stats.items() if rule != "total"}
        self.total = stats["total"]
        self.began = time.monotonic()
        self.live.start()

    def _start(self, record: logging.LogRecord) -> None:
        rule, wildcards = record.rule_name, dict(record.wildcards or {})  # type: ignore[attr-defined]
        self.running[record.jobid] = Job(rule, wildcards, self.name_of(rule, wildcards))  # type: ignore[attr-defined]
        self.waiting[rule] = max(0, self.waiting.get(rule, 0) - 1)

    def _end(self, number: int, *, failed: bool = False) -> None:
        job = self.running.pop(number, None)
        if job is None:  # a failure is logged twice
            return
        if failed:
            self.failed.add((job.rule, job.name))
            self.waiting[job.rule] = self.waiting.get(job.rule, 0) + 1  # it may be tried again
        else:
            self.failed.discard((job.rule, job.name))
            self.seconds[job.rule].append(job.elapsed)
        how = "stopped" if self.is_interrupted else "failed"
        end = Text(f"{how} after {_duration(job.elapsed)}", "red") if failed else Text(_duration(job.elapsed), "dim")
        self._print(Text.assemble((f"{datetime.now():%H:%M:%S}", "dim"), f"  {job.name}  ", end))

    def _render(self) -> Group:
        jobs = list(self.running.values())
        table = Table.grid(padding=(0, 2))
        for job in jobs[:MAX_SHOWN]:
            table.add_row(Text(job.name), Text(self._state(job), "cyan"))
        if len(jobs) > MAX_SHOWN:
            table.add_row(Text(f"and {len(jobs) - MAX_SHOWN:,} more jobs", "dim"))
        bar = Table.grid(padding=(0, 2))
        left = f"{self.done:,} of {self.total:,} jobs{self._time_left()}"
        bar.add_row(ProgressBar(total=max(1, self.total), completed=self.done, width=30), Text(left))
        return Group(table, bar)

    def _time_left(self) -> str:
        """Describe the time left, by the jobs of each rule that have finished and the journals of running trainings."""
        known, unknown = 0.0, self.total - self.done - len(self.running) - sum(self.waiting.values())
        waiting = {rule: mean(self.seconds[rule]) * count for rule, count in self.waiting.items() if self.seconds[rule]}
        known += sum(waiting.values())
        unknown += sum(count for rule, count in self.waiting.items() if rule not in waiting)
        for job in list(self.running.values()):
            _, left = self.progress_of(job.rule, job.wildcards) or ("", None)
            if left is None and self.seconds[job.rule]:
                left = max(0.0, mean(self.seconds[job.rule]) - job.elapsed)
            known, unknown = known + (left or 0.0), unknown + (left is None)
        busy = sum(map(sum, self.seconds.values())) + sum(job.elapsed for job in list(self.running.values()))
        at_once = max(1.0, busy / max(1.0, time.monotonic() - self.began))
        if not known:
            return ""
        return f", {'more than' if unknown > 0 else 'about'} {_duration(known / at_once)} left"

    def _state(self, job: Job) -> str:
        """Describe a running job: the last point of a training, or the time since its start."""
        progress = self.progress_of(job.rule, job.wildcards)
        if progress is None:
            return _duration(job.elapsed)
        description, left = progress
        return description if left is None else f"{description}, {_duration(left)} left"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))
