"""The display of a run, from Snakemake's events: counts, time left, failures."""

from __future__ import annotations

import io
import json
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from snakemake_interface_logger_plugins.common import LogEvent

from bertline.planning.job_names import job_name, job_progress
from bertline.planning.plan import Plan
from bertline.results import paths
from snakemake_logger_plugin_bertline.display import Display
from snakemake_logger_plugin_bertline.schedule import GraphJob, RemainingJobs


@pytest.fixture
def display() -> Display:
    shown = Display()
    shown.console = shown.live.console = Console(file=io.StringIO(), width=120)
    return shown


def log(display: Display, event: LogEvent | None, message: str = "", level: int = logging.INFO, **fields: Any) -> None:
    record = logging.LogRecord("snakemake", level, "", 0, message, None, None)
    record.__dict__.update(event=event, **fields)
    display.show(record)


def start(display: Display, *numbers: int, rule: str = "encode_shard") -> None:
    for number in numbers:
        log(display, LogEvent.JOB_INFO, jobid=number, rule_name=rule, wildcards={"shard": str(number)})


def shown_below(display: Display) -> str:
    display.forecast.update()
    console = Console(file=io.StringIO(), width=120)
    console.print(display._render())
    return console.file.getvalue()  # type: ignore[attr-defined]


def lines(display: Display) -> str:
    return display.console.file.getvalue()  # type: ignore[attr-defined]


def test_the_time_left_is_that_of_jobs_of_the_same_rule(display: Display) -> None:
    rest = {number: GraphJob(number, "encode_shard") for number in range(1, 11)} | {11: GraphJob(11, "finetune_task")}
    display.forecast.remaining_jobs = lambda: RemainingJobs(list(rest.values()), 1)
    log(display, LogEvent.RUN_INFO, stats={"encode_shard": 10, "finetune_task": 1, "total": 11})
    assert "left" not in shown_below(display)  # nothing is measured yet
    start(display, 1)
    display.running[1].started -= 60
    display.began -= 60
    log(display, LogEvent.JOB_FINISHED, job_id=1)
    del rest[1]
    log(display, LogEvent.PROGRESS, done=1, total=11)
    # Nine more of a minute each; how long a fine-tuning takes is unknown.
    assert "1 of 11 jobs, more than 0:0" in shown_below(display)
    start(display, 11, rule="finetune_task")
    log(display, LogEvent.JOB_FINISHED, job_id=11)
    log(display, LogEvent.PROGRESS, done=2, total=11)
    del rest[11]
    assert re.search(r"2 of 11 jobs, \d+ %, about 0:0", shown_below(display))
    # A checkpoint of the graph added jobs of which nothing is known.
    rest |= {number: GraphJob(number, "write_shard") for number in range(12, 40)}
    log(display, LogEvent.PROGRESS, done=2, total=40)
    assert "2 of 40 jobs, more than" in shown_below(display)


def test_a_training_shows_its_last_point(tmp_path: Path, display: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        {"step": step, "timestamp": 1000 * step, "metrics": {"train/loss": 9 - step / 100}}
        for step in range(10, 210, 10)
    ]
    journal = tmp_path / paths.PHASE.format(phase="0") / paths.STARTED_JOURNAL
    journal.parent.mkdir(parents=True)
    journal.write_text("".join(f"{json.dumps(point)}\n" for point in points) + '{"step": 210, "time')
    monkeypatch.chdir(tmp_path)
    plan = Plan({}, {}, tmp_path, phases={"0": {"settings": {"steps": 500}}}, runs={"a": {"phases": {"phase1": "0"}}})
    display.name_of, display.forecast.progress_of = partial(job_name, plan), partial(job_progress, plan)
    log(display, LogEvent.JOB_INFO, jobid=7, rule_name="pretrain_phase", wildcards={"phase": "0"})
    assert "pretrain phase: a/phase1  step 200 of 500, loss 7.0000, 0:05:00 left" in shown_below(display)
    journal.write_text("what is this\n")  # a display must not end a run
    assert "pretrain phase: a/phase1" in shown_below(display)


def test_failures_and_warnings_are_lines(display: Display) -> None:
    log(display, LogEvent.RUN_INFO, stats={"encode_shard": 3, "total": 3})
    start(display, 1, 2)
    log(display, LogEvent.JOB_ERROR, jobid=1)
    log(display, LogEvent.JOB_ERROR, jobid=1)  # Snakemake logs some failures twice
    log(display, LogEvent.GROUP_ERROR, job_error_info=[{"jobid": 2}])
    log(display, None, "Select jobs to execute...")
    log(display, None, "the disk is slow", logging.WARNING)
    log(display, LogEvent.ERROR, "Exiting because a job failed", logging.ERROR)
    shown = lines(display)
    assert shown.count("failed after") == 2
    assert "the disk is slow\nExiting because a job failed\n" in shown
    assert "Select jobs" not in shown


def test_many_jobs_do_not_fill_the_terminal(display: Display) -> None:
    log(display, LogEvent.RUN_INFO, stats={"encode_shard": 600, "total": 600})
    start(display, *range(600))
    assert "and 592 more jobs" in shown_below(display)
    assert len(shown_below(display).splitlines()) <= 12
