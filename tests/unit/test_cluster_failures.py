"""Why a job failed, found in what snakemake wrote; the texts are in the form of Snakemake 9."""

from __future__ import annotations

import os
import textwrap
from datetime import datetime
from pathlib import Path

import pytest

from bertline.cluster import slurm_submission
from bertline.cluster.failures import (
    INTERRUPTED,
    TOLD_TO_END,
    UNFINISHED,
    last_words,
    memory_ran_out,
    read_reasons,
    report_what_succeeded,
    time_ran_out,
)
from bertline.training.contract import STEP_IS_SAVED
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
GROUP = """[Sat Nov 21 15:17:15 2026]
    message: Error in group samples
    jobs:
        rule read_files:
            jobid: 5
            output: a.h5
            log: a.log (check log file(s) for error details)
        rule read_files:
            jobid: 6
            output: b.h5
            log: b.log (check log file(s) for error details)
"""
MEMBERS = "".join(
    textwrap.indent(BLOCK.format(rule="read_files", number=number, log=log), "    ")
    for number, log in ((5, "a.log"), (6, "b.log"))
)
KILLED = """CalledProcessError in file "/graph/encode.smk", line 81:
Command 'set -euo pipefail;  python read_files.py > {log} 2>&1' returned non-zero exit status 137.
"""
# With the lines of its start, where the log is named.
WITHOUT_OUTPUT = """[Sat Nov 21 15:17:11 2026]
rule read_files:
    input: a.txt
    output: a.h5, b.h5
    log: a.log
    jobid: 15
    reason: Missing output files: a.h5, b.h5
MissingOutputException in rule read_files in file "/graph/encode.smk", line 81:
Job 15  completed successfully, but some output files are missing. Missing files after 5 seconds. This might be due to:
a.h5 (missing locally, parent dir not present)
b.h5 (missing locally, parent dir contents: c.h5)
"""
UNKNOWN = ["no log of a job says why this run failed; Snakemake's own: snakemake.log"]


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
    assert reasons_in(inner + outer + "\nFinished jobid: 7 (Rule: read_files)\n") == UNKNOWN


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


def test_of_a_group_the_jobs_with_an_error_in_their_log_are_named():
    Path("a.log").write_text("10:00 6 samples\n")
    Path("b.log").write_text("error: b.txt is damaged; make it again\n")
    assert reasons_in(GROUP + MEMBERS) == ["read_files: error: b.txt is damaged; make it again (b.log)"]
    Path("b.log").write_text("Traceback (most recent call last):\n  File\nRuntimeError: boom\n")
    assert reasons_in(GROUP + MEMBERS) == ["read_files: RuntimeError: boom (b.log)"]


def test_of_a_group_without_any_error_in_a_log_the_logs_are_named():
    Path("a.log").write_text("10:00 6 samples\n")
    assert reasons_in(GROUP + MEMBERS) == ["group samples: no log of its jobs has an error (a.log, b.log)"]
    by_slurm = GROUP.replace("    jobs:", "    log: slurm/12.log (check log file(s) for error details)\n    jobs:")
    assert reasons_in(by_slurm + MEMBERS) == ["group samples: no log of its jobs has an error (slurm/12.log)"]
    done = "\nFinished jobid: 5 (Rule: read_files)\n\nFinished jobid: 6 (Rule: read_files)\n"
    assert reasons_in(GROUP + MEMBERS + done) == UNKNOWN


def test_what_a_slurm_job_says_of_its_group_is_the_reason():
    """Its own Snakemake knows which of them failed."""
    Path("b.log").write_text("10:00 half of it\n")
    inner = BLOCK.format(rule="read_files", number=0, log="b.log")
    assert reasons_in(GROUP + inner + MEMBERS) == ["read_files: 10:00 half of it (b.log)"]
    killed = ["read_files: " + memory_ran_out("read_files") + " (b.log)"]
    assert reasons_in(GROUP + KILLED.format(log="b.log") + inner + MEMBERS) == killed


# As the executor's message about a job stands in Snakemake's log: it ends with a line break.
REFUSED = """message: SLURM sbatch failed. The error message was 'sbatch: error: QOSMaxWallDurationPerJobLimit
sbatch: error: Batch job submission failed: Job violates accounting/QOS policy'.
    sbatch call:
        sbatch --parsable --comment rule_read_files --wrap="log: none"
For further error details see the cluster/cloud log and the log files of the involved rule(s)."""


def test_the_reason_of_a_refused_job_is_what_sbatch_said_and_no_log_of_an_earlier_run():
    Path("a.log").write_text("error: of the last run\n")
    refused = BLOCK.format(rule="read_files", number=1, log="a.log").replace("message: None", REFUSED)
    other = BLOCK.format(rule="train", number=2, log="b.log")
    assert reasons_in(refused + other) == [
        "read_files: sbatch refused it: sbatch: error: QOSMaxWallDurationPerJobLimit "
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy",
        "train: ended without output (b.log)",
    ]
    assert reasons_in(f"{INTERRUPTED}, this might take some time.\n{refused}") == []


def test_the_reason_of_a_refused_group_is_what_sbatch_said():
    """Snakemake drops the executor's message."""
    Path("a.log").write_text("error: of the last run\n")
    other = f"{slurm_submission.REFUSED} rule_samples2_read_files: of another group\n"
    refused = f"{slurm_submission.REFUSED} rule_samples_read_files: sbatch: error: Invalid qos specification\n{other}"
    assert reasons_in(refused + GROUP + MEMBERS) == [
        "group samples: sbatch refused it: sbatch: error: Invalid qos specification"
    ]
    # At its next attempt it ran.
    by_slurm = GROUP.replace("    jobs:", "    log: slurm/12.log (check log file(s) for error details)\n    jobs:")
    assert reasons_in(refused + GROUP + MEMBERS + by_slurm + MEMBERS) == ["read_files: error: of the last run (a.log)"]


def test_a_refused_attempt_does_not_hide_why_an_earlier_one_of_the_run_failed():
    ran = BLOCK.format(rule="read_files", number=7, log="a.log, 11.log")
    refused = BLOCK.format(rule="read_files", number=7, log="a.log").replace("message: None", REFUSED)
    refusal = (
        "then sbatch refused it: sbatch: error: QOSMaxWallDurationPerJobLimit "
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"
    )
    Path("a.log").write_text("error: real failure\n")
    for said in (ran + refused, ran + refused + refused, refused + ran + refused):
        assert reasons_in(said) == [f"read_files: error: real failure (a.log); {refusal}"]
    assert reasons_in(refused + ran) == ["read_files: error: real failure (a.log)"]
    Path("a.log").write_text("10:00 half of it\n")
    Path("11.log").write_text(TIME_LIMIT)
    assert reasons_in(ran + refused) == [f"read_files: {time_ran_out('read_files')} (a.log); {refusal}"]
    assert reasons_in(ran + refused + "\nFinished jobid: 7 (Rule: read_files)\n") == UNKNOWN


def test_a_refused_attempt_does_not_hide_why_an_earlier_one_of_a_group_failed():
    said = GROUP.replace("    jobs:", "    log: 12.log (check log file(s) for error details)\n    jobs:") + MEMBERS
    said += "".join(f"{slurm_submission.REFUSED} rule_samples_read_files: {why}\n" for why in ("too long", "too large"))
    said += GROUP + MEMBERS
    refusal = "then sbatch refused it: too large"
    Path("12.log").write_text(TIME_LIMIT)
    assert reasons_in(said) == [f"group samples: {time_ran_out('read_files')} (12.log); {refusal}"]
    Path("b.log").write_text("error: b.txt is damaged; make it again\n")
    assert reasons_in(said) == [f"read_files: error: b.txt is damaged; make it again (b.log); {refusal}"]


def test_without_any_reason_snakemakes_log_is_named_except_after_ctrl_c():
    assert reasons_in("WorkflowError: boom\n") == UNKNOWN
    assert reasons_in(f"{INTERRUPTED}, this might take some time.\n") == []


def test_after_sigterm_the_same_command_continues():
    told = f"{TOLD_TO_END}.\n"
    line = "snakemake was told to end (SIGTERM), and has waited for its running jobs; the same command continues"
    assert reasons_in(told) == [line]
    # As a Slurm job prints it.
    Path("a.log").write_text("error: a.txt is empty; fill it\n")
    failed = BLOCK.format(rule="read_files", number=7, log="a.log")
    assert reasons_in(told + failed) == ["read_files: error: a.txt is empty; fill it (a.log)"]


def test_a_job_that_was_killed_may_have_had_too_little_memory():
    Path("a.log").write_text("10:00 half of it\n")
    failed = BLOCK.format(rule="read_files", number=3, log="a.log")
    killed = ["read_files: " + memory_ran_out("read_files") + " (a.log)"]
    assert reasons_in(KILLED.format(log="a.log") + failed) == killed
    by_signal = KILLED.replace("returned non-zero exit status 137", "died with <Signals.SIGKILL: 9>")
    assert reasons_in(by_signal.format(log="a.log") + failed) == killed
    by_slurm = failed.replace("message: None", "message: SLURM-job '7' failed, SLURM status is: 'OUT_OF_MEMORY'")
    assert reasons_in(by_slurm) == killed
    assert reasons_in(KILLED.format(log="b.log") + failed) == ["read_files: 10:00 half of it (a.log)"]
    # A launcher explains it itself, with what a training can do.
    Path("a.log").write_text("error: rank 0 was ended by SIGKILL\n")
    assert reasons_in(KILLED.format(log="a.log") + failed) == ["read_files: error: rank 0 was ended by SIGKILL (a.log)"]


def test_the_log_of_an_earlier_run_is_no_reason() -> None:
    """As of a job that is ended before it writes anything."""
    snakemake_log = Path("2026-11-29T204110.258757.snakemake.log")
    snakemake_log.write_text(BLOCK.format(rule="read_files", number=7, log="a.log, 12.log"))
    Path("a.log").write_text("error: of the last run\n")
    began = datetime(2026, 11, 29, 20, 41, 10).timestamp()
    os.utime("a.log", (began - 120, began - 120))
    assert read_reasons([snakemake_log]) == ["read_files: ended without output (12.log)"]
    for later in (1, -30):  # the clock of a file server may be behind
        os.utime("a.log", (began + later, began + later))
        assert read_reasons([snakemake_log]) == ["read_files: error: of the last run (a.log)"]
    # A run with two logs began with the first.
    second = Path("2026-11-29T220000.000000.snakemake.log")
    second.touch()
    for logs in ([snakemake_log, second], [second, snakemake_log]):
        assert read_reasons(logs) == ["read_files: error: of the last run (a.log)"]


TIME_LIMIT = "slurmstepd-cpu1: error: *** STEP 11.0 ON cpu1 CANCELLED AT 2026-11-29T20:44:51 DUE TO TIME LIMIT ***\n"
MEMORY_LIMIT = "slurmstepd: error: StepId=9.batch exceeded memory limit (168484864 > 157286400), being killed\n"


@pytest.mark.parametrize(
    ("state", "slurm_log", "reason"),
    [
        ("TIMEOUT", "", time_ran_out("read_files")),
        ("FAILED", TIME_LIMIT, time_ran_out("read_files")),
        # Without control groups Slurm has no state for it.
        ("FAILED", MEMORY_LIMIT + "slurmstepd: error: Exceeded job memory limit\n", memory_ran_out("read_files")),
        ("FAILED", "slurmstepd: error: Detected 1 oom_kill event in StepId=9.batch.\n", memory_ran_out("read_files")),
        (
            "FAILED",
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=9.batch cgroup.\n",
            memory_ran_out("read_files"),
        ),
        ("FAILED", "10:00 exceeded memory limit DUE TO TIME LIMIT\n", "10:00 half of it"),
    ],
)
def test_what_slurm_says_of_its_end_is_the_reason_of_a_job(state: str, slurm_log: str, reason: str) -> None:
    Path("a.log").write_text("10:00 half of it\n")
    Path("12.log").write_text(slurm_log)
    failed = BLOCK.format(rule="read_files", number=7, log="a.log, 12.log")
    # As --show-failed-logs does, with Slurm's log, in which the job has no other number than 0.
    said = failed.replace("message: None", f"message: SLURM-job '12' failed, SLURM status is: '{state}'. Reason: None.")
    said += BLOCK.format(rule="read_files", number=0, log="a.log") * bool(slurm_log)
    assert reasons_in(said) == [f"read_files: {reason} (a.log)"]
    Path("a.log").write_text("error: a.txt is empty; fill it\n")
    assert reasons_in(said) == ["read_files: error: a.txt is empty; fill it (a.log)"]


def test_more_time_and_memory_are_given_where_the_job_has_them_from() -> None:
    assert "(--set-resources read_files:runtime=MINUTES)" in time_ran_out("read_files")
    assert memory_ran_out("a", "b").endswith("give it more (--set-resources a:mem_mb=MB b:mem_mb=MB)")
    for training in ("pretrain_phase", "finetune_task"):
        assert time_ran_out(training).endswith(
            f"(walltime in site.yaml), or more time to save (--set-resources {training}:minutes_to_save=MINUTES)"
        )
        assert memory_ran_out(training).endswith("give it more (memory_mb in site.yaml)")
    assert "(memory_mb in site.yaml, --set-resources a:mem_mb=MB)" in memory_ran_out("a", "finetune_task")


def test_the_step_that_a_training_saved_before_its_walltime_ended_is_kept() -> None:
    said = BLOCK.format(rule="pretrain_phase", number=7, log="a.log, 12.log")
    Path("a.log").write_text(f"12:00:02 {STEP_IS_SAVED.format(step=8)}\n")
    Path("12.log").write_text(TIME_LIMIT)
    assert reasons_in(said) == [f"pretrain_phase: {time_ran_out('pretrain_phase')}; step 8 is saved (a.log)"]


def test_of_several_attempts_the_last_ones_log_of_slurm_counts() -> None:
    Path("11.log").write_text(TIME_LIMIT)
    Path("12.log").write_text(MEMORY_LIMIT)
    said = "".join(BLOCK.format(rule="read_files", number=7, log=f"a.log, {number}.log") for number in (11, 12))
    assert reasons_in(said) == [f"read_files: {memory_ran_out('read_files')} (12.log)"]


def test_without_a_log_of_its_own_a_job_has_that_of_slurm() -> None:
    said = BLOCK.format(rule="read_files", number=7, log="a.log, 12.log")
    assert reasons_in(said) == ["read_files: ended without output (12.log)"]
    Path("a.log").touch()
    assert reasons_in(said) == ["read_files: ended without output (12.log)"]


def test_what_slurm_says_of_its_end_is_the_reason_of_a_group() -> None:
    Path("b.log").write_text("10:00 half of it\n")
    Path("12.log").write_text(TIME_LIMIT)
    said = GROUP.replace("    jobs:", "    log: 12.log (check log file(s) for error details)\n    jobs:")
    inner = BLOCK.format(rule="read_files", number=0, log="b.log")
    assert reasons_in(said + inner + MEMBERS) == [f"read_files: {time_ran_out('read_files')} (b.log)"]
    # Which of its jobs ran is unknown.
    Path("12.log").write_text(MEMORY_LIMIT)
    reason = memory_ran_out("clean_part", "read_files")
    said = said.replace("rule read_files:\n            jobid: 5", "rule clean_part:\n            jobid: 5")
    assert reasons_in(said + MEMBERS) == [f"group samples: {reason} (12.log)"]


def test_a_job_without_its_outputs_is_named():
    Path("a.log").write_text("10:00 6 samples\n")
    missing = ["read_files: ended without an error, but did not make a.h5, b.h5 within --latency-wait (a.log)"]
    assert reasons_in(WITHOUT_OUTPUT) == missing
    # In a Slurm job it is a failure like any other.
    failed = BLOCK.format(rule="read_files", number=15, log="a.log, slurm/12.log")
    assert reasons_in(WITHOUT_OUTPUT.replace("15", "0") + failed) == missing
    assert reasons_in(WITHOUT_OUTPUT + "\nFinished jobid: 15 (Rule: read_files)\n") == UNKNOWN


def test_without_a_record_nothing_is_reported(tmp_path, monkeypatch, capfd):
    """As after Ctrl-C when one target was asked for: of the plan's runs none has been described."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.json").touch()
    report_what_succeeded(["results/runs/demo/record-0123456789abcdef.json"], ["metrics.json"])
    assert capfd.readouterr() == ("", "")
    assert not UNFINISHED.exists()
