"""Why a job failed, found in what snakemake wrote; the texts are in the form of Snakemake 9."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertline.cluster.failures import last_words, read_reasons

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


def test_a_job_that_was_done_at_its_next_attempt_is_not_named():
    Path("a.log").write_text("all is well")
    inner = BLOCK.format(rule="read_files", number=0, log="a.log")
    outer = BLOCK.format(rule="read_files", number=7, log="a.log, logs/slurm/12.log")
    assert reasons_in(inner + outer + "\nFinished jobid: 7 (Rule: read_files)\n") == []


def test_lines_of_srun_about_the_tasks_are_not_a_reason():
    said = "error: the loss is nan\nsrun: error: gpu1: task 0: Exited with exit code 1\n"
    Path("a.log").write_text(said)
    assert last_words(Path("a.log")) == "error: the loss is nan"
