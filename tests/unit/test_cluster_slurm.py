"""What Slurm's queue says, as its programs print it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from bertline.cluster import slurm, submission
from bertline.cluster.ranks import NodeKind, Program, srun_command


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the beginning of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    slurm.jobs_of_this_folder.cache_clear()
    return folder


def write_squeue(programs: Path, *fields: str, fails: int = 0) -> None:
    """A squeue that pads fields by bytes, as Slurm does, after it has failed a few times."""
    padded = b"".join(field.encode().ljust(slurm.WIDTH) for field in fields)
    (programs / "line").write_bytes(padded + b"\n")
    script = f"""#!/bin/sh
cd {shlex.quote(str(programs))}
echo asked >> asked
[ "$(wc -l < asked)" -gt {fails} ] && cat line
"""
    (programs / "squeue").write_text(script)
    (programs / "squeue").chmod(0o755)


def test_a_job_in_a_folder_with_an_umlaut_is_found(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "müller" / "bert"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    write_squeue(programs, "4711", "RUNNING", "1:00:00", "0", str(folder), "rule_pretrain_phase_wildcards_0123")
    assert slurm.numbers_of_jobs("rule_pretrain_phase_wildcards_0123") == ["4711"]


@pytest.mark.parametrize("fails", [0, 2])
def test_a_controller_that_does_not_answer_at_once_is_asked_again(
    programs: Path, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm, "PAUSE", 0)
    write_squeue(programs, "7", "RUNNING", "1:00:00", "2", "/somewhere", "", fails=fails)
    job = slurm.own_job()
    assert job is not None
    assert (job.minutes_left, job.restarts) == (60, 2)


def test_a_controller_that_never_answers_is_reported(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    write_squeue(programs, fails=1000)
    assert slurm.own_job(patience=0) is None
    assert capsys.readouterr().err == "squeue does not answer; nothing is known of job 7\n"


def test_the_number_of_a_job_on_nodes_of_several_kinds_is_that_of_its_first_part(programs: Path) -> None:
    (programs / "squeue").write_text("#!/bin/sh\necho '123+0 rule_a'\necho '123+1 rule_a'\n")
    (programs / "squeue").chmod(0o755)
    assert submission._job_in_queue(["--job-name", "name", "--comment", "rule_a"]) == "123"


@pytest.mark.parametrize(("bind", "unbound"), [("none", False), ("socket", True)])
def test_ranks_that_bind_themselves_are_not_bound_by_srun(bind: str, unbound: bool) -> None:
    program = Program(["train.py"], ["start_ranks.py"], 0, bind)
    assert ("--cpu-bind=none" in srun_command(program, [NodeKind(2, 4)], 1)) is unbound
