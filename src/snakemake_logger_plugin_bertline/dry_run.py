"""What a dry run of the graph shows: the jobs that would run by their names, and why."""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_bertline.display import NameOf, clock_time, is_shown, message_of
from snakemake_logger_plugin_bertline.forecast import ExpectedOf, Forecast, ProgressOf, RemainingOf

# With more jobs, those of a rule are one line.
MAX_LISTED = 40
# Snakemake's reasons for a job: next to the first, the others add nothing; of the second, the files are of interest.
MISSING, UPDATED = "Missing output files", "Updated input files"


@dataclass
class PlannedJob:
    """A job that would run, with Snakemake's reasons, such as `Missing output files: a, b; Forced execution`."""

    rule: str
    name: str
    reasons: str


class DryRun:
    """A list of the jobs that would run."""

    def __init__(self) -> None:
        self.name_of: NameOf = lambda rule, wildcards: rule
        self.jobs: dict[int, PlannedJob] = {}
        self.checkpoints: set[str] = set()
        self.forecast = Forecast(list)
        # In a file or a pipe, no row is folded.
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)
        self.console_of_errors = Console(stderr=True, highlight=False)

    def describe_jobs(
        self, name_of: NameOf, progress_of: ProgressOf, expected_of: ExpectedOf, remaining_jobs: RemainingOf
    ) -> None:
        """Take what describes jobs from the workflow; nothing runs that could have a progress."""
        self.name_of = name_of
        self.forecast.expected_of, self.forecast.remaining_jobs = expected_of, remaining_jobs

    def show(self, record: logging.LogRecord) -> None:
        """Collect a job, or show a message that belongs to none."""
        match getattr(record, "event", None):
            case LogEvent.JOB_INFO:
                rule, wildcards = record.rule_name, dict(record.wildcards or {})  # type: ignore[attr-defined]
                if not record.output:  # type: ignore[attr-defined]
                    return  # a target such as `all`: nothing runs
                job = PlannedJob(rule, self.name_of(rule, wildcards), record.reason)  # type: ignore[attr-defined]
                self.jobs[record.jobid] = job  # type: ignore[attr-defined]
                if record.is_checkpoint:  # type: ignore[attr-defined]
                    self.checkpoints.add(job.name)
            case LogEvent.ERROR | None if is_shown(record):
                console = self.console_of_errors if record.levelno >= logging.WARNING else self.console
                console.print(message_of(record), soft_wrap=True)

    def stop(self) -> None:
        """Show the jobs."""
        rules = list(dict.fromkeys(job.rule for job in self.jobs.values()))
        jobs, self.jobs = sorted(self.jobs.values(), key=lambda job: (rules.index(job.rule), job.name)), {}
        if not jobs:
            return
        table = Table.grid(padding=(0, 2))
        if len(jobs) <= MAX_LISTED:
            for job in jobs:
                table.add_row(Text(job.name), Text(", ".join(_reasons(job)), "dim"))
        else:
            table.add_column(justify="right")
            for rule, count in Counter(job.rule for job in jobs).items():
                of_rule = [job for job in jobs if job.rule == rule]
                reasons = dict.fromkeys(reason for job in of_rule for reason in _reasons(job, files=False))
                table.add_row(f"{count:,}", Text(rule.replace("_", " ")), Text(", ".join(reasons), "dim"))
        self.console.print(table)
        verb = "job would run" if len(jobs) == 1 else "jobs would run"
        self.console.print(f"{len(jobs):,} {verb}{self._time()}. VERBOSE=1 shows their files, commands and resources.")
        if self.checkpoints:
            self.console.print(
                f"More follow: their number depends on the result of: {', '.join(sorted(self.checkpoints))}."
            )

    def _time(self) -> str:
        """Describe how long the jobs would take."""
        with suppress(Exception):  # the list is complete without
            self.forecast.update()
        left = self.forecast.left
        if left is None or not left.seconds:
            return ""
        return f", in {'about' if left.is_complete else 'more than'} {clock_time(left.seconds)}"


def _reasons(job: PlannedJob, *, files: bool = True) -> list[str]:
    """Return the reasons for a job, without the names of the files that it would make."""
    reasons = []
    for reason in re.split(r"; (?=[A-Z])", job.reasons):
        kind, _, names = reason.partition(":")
        if kind == MISSING:
            return ["missing"]
        reason = f"{kind}:{names}" if files and kind == UPDATED else kind
        reasons.append(reason[:1].lower() + reason[1:].rstrip())
    return reasons
