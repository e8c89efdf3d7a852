"""Why a job failed, found in what snakemake wrote; the texts are in the form of Snakemake 9."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertline.cluster.failures import INTERRUPTED, UNFINISHED, last_words, read_reasons, report_what_succeeded
from snakemake_logger_plugin_bertline import display

BLOCK = """[Sat Nov 21 15:17:15 2026]
Error in rule {rule}:
    message: None
    jobid: {number}
    input: a.txt
    log: {log} (check log file(s) for error details)
    shell:
        true
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def reasons_in(said: str) -> list[str]:
    Path("snakemake.log").write_text(said)
    return read_reasons([Path("snakemake.log")])


def test_the_reason_is_the_last_line_of_the_jobs_own_log_printed_once():
    Path("a.log").write_text("10:00 reading\nerror: a.txt is empty; fill it\n\n")
    outer = BLOCK.format(rule="read_files", number=7, log="a.log, logs/slurm/12.log")
    said = BLOCK.format(rule="read_files", number=0, log="a.log") + outer
    assert reasons_in(said) == ["read_files: error: a.txt is empty; fill it (a.log)"]


def test_the_display_finds_an_interruption_by_the_same_line():
    assert display.INTERRUPTED == INTERRUPTED


def test_a_job_that_was_done_at_its_next_attempt_is_not_named():
    Path("a.log").write_text("all is well")
    inner = BLOCK.format(rule="read_files", number=0, log="a.log")
    outer = BLOCK.format(rule="read_files", number=7, log="a.log, logs/slurm/12.log")
    assert reasons_in(inner + outer + "\nFinished jobid: 7 (Rule: read_files)\n") == []


def test_another_job_that_was_done_inside_a_slurm_job_does_not_hide_a_failure():
    """Inside a Slurm job every job has number 0."""
    Path("a.log").write_text("error: a.txt is empty; fill it\n")
    said = BLOCK.format(rule="read_files", number=0, log="a.log") + "\nFinished jobid: 0 (Rule: other)\n"
    assert reasons_in(said) == ["read_files: error: a.txt is empty; fill it (a.log)"]


def test_lines_of_srun_about_the_tasks_are_not_a_reason():
    said = "error: the loss is nan\nsrun: error: gpu1: task 0: Exited with exit code 1\n"
    Path("a.log").write_text(said)
    assert last_words(Path("a.log")) == "error: the loss is nan"


def test_what_failed_before_ctrl_c_has_a_line():
    Path("a.log").write_text("Traceback (most recent call last):\nRuntimeError: boom\n")
    failed = BLOCK.format(rule="read_files", number=1, log="a.log")
    said = failed + "Terminating processes on user request, this might take some time.\n"
    assert reasons_in(said) == ["read_files: RuntimeError: boom (a.log)"]


def test_after_ctrl_c_only_what_was_saved_and_what_was_wrong_has_a_line():
    Path("a.log").write_text(
        "12:00:01 step 7/9\n12:00:02 asked to stop: step 8 is saved; run the same command to resume\n"
    )
    Path("b.log").write_text("50%|####")
    Path("c.log").write_text("error: c.txt is empty; fill it\n")
    said = "Terminating processes on user request, this might take some time.\n"
    for number, log in enumerate(("a.log", "b.log", "c.log"), 1):
        said += BLOCK.format(rule=f"rule_{log[0]}", number=number, log=log)
    assert reasons_in(said) == [
        "rule_a: stopped: step 8 is saved; the same command continues (a.log)",
        "rule_c: error: c.txt is empty; fill it (c.log)",
    ]


def test_without_a_record_nothing_is_reported(tmp_path, monkeypatch, capfd):
    """As after Ctrl-C when one target was asked for: of the plan's runs none has been described."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.json").touch()
    report_what_succeeded(["results/runs/demo/record-0123456789abcdef.json"], ["metrics.json"])
    assert capfd.readouterr() == ("", "")
    assert not UNFINISHED.exists()
