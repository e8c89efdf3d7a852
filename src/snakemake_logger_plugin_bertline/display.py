"""What a run of the graph shows on a terminal, from the events that Snakemake logs."""

from __future__ import annotations

import atexit
import logging
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_bertline.forecast import ExpectedOf, Forecast, Job, ProgressOf, RemainingOf

# Running jobs with a line of their own.
MAX_SHOWN = 8
# Lines of a terminal that have none: the line about more jobs, the bar, and the one of the cursor.
OTHER_LINES = 3
BAR_WIDTH, MIN_BAR_WIDTH = 30, 5
# Messages without an event that are shown to the user; others of their level are only in the log.
SHOWN_MESSAGES = ("Nothing to be done", "Complete log", "Building DAG")
# What Snakemake adds about a failed job, of which a line says that it failed; the workflow's last lines say why.
REPEATED_MESSAGES = ("Exiting because a job execution failed", "At least one job did not complete", "Complete log")
# Of a job whose outputs are missing there is only this error, without the event of a failure.
OUTPUT_MISSING = re.compile(r"^Job (\d+) +completed successfully, but some output files are missing", re.MULTILINE)
INTERRUPTED = "Terminating processes on user request"
REFRESH_PER_SECOND = 2

# A job's name, by its rule and wildcards.
NameOf = Callable[[str, Mapping[str, str]], str]


def is_shown(record: logging.LogRecord) -> bool:
    """Return whether a message that belongs to no job is for the user."""
    said = "" if record.msg is None else record.getMessage()
    return record.levelno >= logging.WARNING or said.startswith(SHOWN_MESSAGES)


def message_of(record: logging.LogRecord) -> Text:
    """Return the text of a message, red if it is an error."""
    return Text(record.getMessage(), style="red" if record.levelno >= logging.ERROR else "")


class Display:
    """Lines of finished jobs, and below them the running ones, progress and time left.

    Snakemake's logging thread calls `show`, a thread of rich draws, and one of the forecast finds the time left.
    """

    def __init__(self) -> None:
        self.name_of: NameOf = lambda rule, wildcards: rule
        self.running: dict[int, Job] = {}
        self.groups: dict[int, list[int]] = {}  # the jobs of a job's group, by their numbers
        self.forecast = Forecast(lambda: list(self.running.values()))
        self.done = self.total = 0
        self.began = time.monotonic()
        self.failed: set[tuple[str, str]] = set()  # rules and names of jobs that failed and have not succeeded since
        self.is_interrupted = False
        self.console = Console(stderr=True, highlight=False)
        self.live = Live(
            console=self.console,
            get_renderable=self._draw,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
        )
        atexit.register(self.stop)  # a cursor that stays hidden is worse than a late line

    def describe_jobs(
        self, name_of: NameOf, progress_of: ProgressOf, expected_of: ExpectedOf, remaining_jobs: RemainingOf
    ) -> None:
        """Take what describes jobs from the workflow.

        Nothing of bertline is imported here, because the workflow decides which bertline it uses.
        """
        self.name_of = name_of
        self.forecast.progress_of, self.forecast.expected_of = progress_of, expected_of
        self.forecast.remaining_jobs = remaining_jobs

    def stop(self) -> None:
        """Remove what is below the lines."""
        self.forecast.stop()
        self.live.stop()

    def show(self, record: logging.LogRecord) -> None:
        """Show an event of Snakemake's log; most are only counted."""
        match getattr(record, "event", None):
            case LogEvent.RUN_INFO:
                self._begin(record.stats)  # type: ignore[attr-defined]
            case LogEvent.GROUP_INFO:
                group = [job.jobid for job in record.jobs]  # type: ignore[attr-defined]
                self.groups |= dict.fromkeys(group, group)
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
                if found := OUTPUT_MISSING.search(record.getMessage()):
                    number = int(found[1])
                    for member in self.groups.get(number, [number]):
                        self._end(member, failed=True)

    def _is_repeated(self, record: logging.LogRecord) -> bool:
        said = "" if record.msg is None else record.getMessage()
        # The first comes before the event of the failure.
        return "CalledProcessError" in said or (bool(self.failed) and any(text in said for text in REPEATED_MESSAGES))

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True)

    def _begin(self, stats: Mapping[str, int]) -> None:
        self.total = stats["total"]
        self.began = time.monotonic()
        self.forecast.start()
        self.live.start()

    def _start(self, record: logging.LogRecord) -> None:
        number, rule, wildcards = record.jobid, record.rule_name, dict(record.wildcards or {})  # type: ignore[attr-defined]
        log = next(iter(record.log), None)  # type: ignore[attr-defined]
        group_size = len(self.groups.get(number, [number]))
        self.running[number] = Job(number, rule, wildcards, self.name_of(rule, wildcards), log, group_size)
        self.forecast.begin(self.running[number])

    def _end(self, number: int, *, failed: bool = False) -> None:
        job = self.running.pop(number, None)
        if job is None:  # a failure is logged twice
            return
        self.forecast.end(job, failed=failed)
        if failed:
            self.failed.add((job.rule, job.name))
        else:
            self.failed.discard((job.rule, job.name))
        how = "stopped" if self.is_interrupted else "failed"
        end = Text(f"{how} after {clock_time(job.elapsed)}", "red") if failed else Text(clock_time(job.elapsed), "dim")
        self._print(Text.assemble((f"{datetime.now():%H:%M:%S}", "dim"), f"  {job.name}  ", end))

    def _draw(self) -> RenderableType:
        """Return what is below the lines; nothing, rather than an error in the thread that draws."""
        try:
            return self._render()
        except Exception:
            return Text()

    def _render(self) -> Group:
        """Return a line for each job and the bar. A line that were folded could push the bar out of the terminal."""
        width, height = self.console.size
        jobs = list(self.running.values())
        shown = jobs[: max(0, min(MAX_SHOWN, height - OTHER_LINES))]
        names = min(max((len(job.name) for job in shown), default=0), width // 2)
        lines: list[RenderableType] = []
        for job in shown:
            name = job.name if len(job.name) <= names else f"…{job.name[1 - names :]}"
            lines.append(_line(f"{name:{names}}  ", (self._state(job, width - names - 2), "cyan")))
        if len(jobs) > len(shown):
            lines.append(_line((f"and {len(jobs) - len(shown):,} more jobs", "dim")))
        share, left = self._share_and_left()
        counts = f"{self.done:,} of {self.total:,} jobs{left}"
        bar = Table.grid(padding=(0, 2))
        if (room := min(BAR_WIDTH, width - len(counts) - 2)) >= MIN_BAR_WIDTH:
            bar.add_row(ProgressBar(total=1.0, completed=share, width=room), _line(counts))
        else:
            bar.add_row(_line(counts))
        return Group(*lines, bar)

    def _share_and_left(self) -> tuple[float, str]:
        """Return the share of the run that is done, and describe the time left: by time, or without it by jobs."""
        left = self.forecast.left
        if left is None or self.done >= self.total or not (seconds := left.now):
            return self.done / max(1, self.total), ""
        if not left.is_complete:
            return self.done / max(1, self.total), f", more than {clock_time(seconds)} left"
        passed = time.monotonic() - self.began
        share = passed / (passed + seconds)
        return share, f", {100 * share:.0f} %, about {clock_time(seconds)} left"

    def _state(self, job: Job, width: int) -> str:
        """Describe a running job: the last point of a training, or the time since its start.

        Of a long description the end is left out, but not the time left.
        """
        description, left = self.forecast.progress.get(job.number) or (clock_time(job.elapsed), None)
        end = "" if left is None else f", {clock_time(left)} left"
        room = max(1, width - len(end))
        return (description if len(description) <= room else f"{description[: room - 1]}…") + end


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def clock_time(seconds: float) -> str:
    """Describe a time: `42 s`, `1:05:10`."""
    return f"{seconds:.0f} s" if seconds < 100 else str(timedelta(seconds=round(seconds)))
