"""The display of a run, from Snakemake's events: counts, time left, failures."""

from __future__ import annotations

import io
import json
import logging
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from snakemake_interface_logger_plugins.common import LogEvent

from bertline.planning.job_names import job_name, job_progress
from bertline.planning.plan import Plan
from bertline.results import paths
from bertline.training.stop import StopSignal
from snakemake_logger_plugin_bertline.display import Display
from snakemake_logger_plugin_bertline.schedule import GraphJob, RemainingJobs


@pytest.fixture
def display() -> Display:
    return display_on(width=120, height=40)


def display_on(width: int, height: int) -> Display:
    shown = Display()
    shown.console = shown.live.console = Console(file=io.StringIO(), width=width, height=height)
    return shown


def log(display: Display, event: LogEvent | None, message: str = "", level: int = logging.INFO, **fields: Any) -> None:
    record = logging.LogRecord("snakemake", level, "", 0, message, None, None)
    record.__dict__.update(event=event, **fields)
    display.show(record)


def start(display: Display, *numbers: int, rule: str = "encode_shard") -> None:
    for number in numbers:
        log(display, LogEvent.JOB_INFO, jobid=number, rule_name=rule, wildcards={"shard": str(number)}, log=[])


def start_group(display: Display, *numbers: int) -> None:
    """As Snakemake does when it sends a group to a cluster."""
    log(display, LogEvent.GROUP_INFO, jobs=[SimpleNamespace(jobid=number) for number in numbers])
    start(display, *numbers)


def shown_below(display: Display) -> str:
    display.forecast.update()
    console = Console(file=io.StringIO(), width=display.console.width)
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
    settings = {"steps": 500, "global_batch_size": 8, "batch_size_warmup": None}
    plan = Plan({}, {}, tmp_path, phases={"0": {"settings": settings}}, runs={"a": {"phases": {"phase1": "0"}}})
    display.name_of, display.forecast.progress_of = partial(job_name, plan), partial(job_progress, plan)
    log(display, LogEvent.JOB_INFO, jobid=7, rule_name="pretrain_phase", wildcards={"phase": "0"}, log=[])
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


@pytest.mark.parametrize(("width", "height"), [(120, 24), (80, 24), (60, 24), (40, 24), (80, 10), (80, 4)])
def test_a_small_terminal_has_the_bar_and_the_time_left_and_a_line_for_each_job_that_fits(
    width: int, height: int
) -> None:
    display = display_on(width, height)
    display.name_of = lambda rule, wildcards: f"finetune task: bert-base/glue/{'a' * 9}/seed{wildcards['shard']}"
    state = "step 1,090 of 1,500, loss 1.5492, learning rate 0.0000523, 18,681 tokens per second"
    display.forecast.progress_of = lambda rule, wildcards: (state, 500.0)
    rest = [GraphJob(number, "finetune_task") for number in range(9)]
    display.forecast.remaining_jobs = lambda: RemainingJobs(rest, 9)
    log(display, LogEvent.RUN_INFO, stats={"finetune_task": 9, "total": 9})
    start(display, *range(9), rule="finetune_task")
    *jobs, more, bar = shown_below(display).splitlines()
    assert len(jobs) == min(8, height - 3)
    assert f"and {9 - len(jobs)} more jobs" in more
    for number, job in enumerate(jobs):
        assert f"/seed{number}  st" in job
        assert job.endswith("0:08:20 left")
    assert "0 of 9 jobs, 0 %" in bar
    assert "about 0:08:20 left" in bar or width == 40


def test_a_job_without_its_outputs_has_failed(display: Display) -> None:
    """Snakemake logs no failure of it, only the exception."""
    log(display, LogEvent.RUN_INFO, stats={"encode_shard": 4, "total": 4})
    start(display, 2)
    start_group(display, 14, 15)
    missing = "MissingOutputException in rule encode_shard in file x:\nJob {} completed successfully, but some output "
    missing += "files are missing. Missing files after 5 seconds:\na.h5 (missing locally)"
    log(display, LogEvent.ERROR, missing.format("2 "), logging.ERROR)
    assert lines(display).count("failed after") == 1
    assert "a.h5" in lines(display)
    log(display, LogEvent.ERROR, missing.format("15 "), logging.ERROR)
    assert lines(display).count("failed after") == 3
    assert not display.running


def test_the_time_left_of_groups_is_that_of_their_jobs_one_after_the_other(display: Display) -> None:
    rest = {number: GraphJob(number, "encode_shard", group=number // 4 * 4) for number in range(12)}
    display.forecast.remaining_jobs = lambda: RemainingJobs(list(rest.values()), 1)
    log(display, LogEvent.RUN_INFO, stats={"encode_shard": 12, "total": 12})
    start_group(display, 0, 1, 2, 3)
    for number in range(4):
        display.running[number].started -= 400
        log(display, LogEvent.JOB_FINISHED, job_id=number)
        del rest[number]
    start_group(display, 4, 5, 6, 7)
    for number in range(4, 8):
        display.running[number].started -= 100
    display.forecast.update()
    assert display.forecast.left is not None
    assert display.forecast.left.seconds == pytest.approx(300 + 400, abs=2)


def test_a_training_that_waits_for_a_gpu_says_so(
    display: Display, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from bertline.training.distributed.claims import claim

    caplog.set_level(logging.INFO)
    _, lock = claim(["gpu"], tmp_path, 1)
    asked = StopSignal(0.0)
    with pytest.raises(SystemExit):
        claim(["gpu"], tmp_path, 1, asked)
    lock.release()
    said = tmp_path / "a.log"
    fields = {"jobid": 1, "rule_name": "finetune_task", "wildcards": {}, "log": [str(said)]}
    log(display, LogEvent.JOB_INFO, **fields)
    said.write_text(f"12:00:00 {caplog.messages[0]}\n")
    assert re.search(r"finetune_task +waits for a GPU", shown_below(display))
    said.write_text(said.read_text() + "12:05:00 cola: 8,551 training inputs\n")
    assert re.search(r"finetune_task +0 s", shown_below(display))
