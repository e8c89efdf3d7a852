"""What Slurm's queue says, as its programs print it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from queue_lines import line_of_job
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

from bertline.cluster import slurm
from bertline.cluster.placement import slurm_resources
from bertline.cluster.ranks import NodeKind, Program, srun_command
from bertline.settings.site import Nodes, Size

ROOT = Path(__file__).parents[2]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the beginning of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    slurm.jobs_of_this_folder.cache_clear()
    return folder


def write_squeue(programs: Path, *fields: str, fails: int = 0) -> None:
    """A squeue that lists a job after it has failed a few times."""
    list_jobs(programs, fields)
    script = f"""#!/bin/sh
cd {shlex.quote(str(programs))}
echo asked >> asked
[ "$(wc -l < asked)" -gt {fails} ] && cat lines
"""
    (programs / "squeue").write_text(script)
    (programs / "squeue").chmod(0o755)


def list_jobs(programs: Path, *jobs: tuple[str, ...]) -> None:
    (programs / "lines").write_bytes(b"".join(line_of_job(*job) for job in jobs))


@pytest.mark.parametrize("parts", [["müller", "bert"], ["d" * 100] * 5])
def test_a_job_in_a_folder_with_an_umlaut_or_a_long_path_is_found(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[str]
) -> None:
    folder = tmp_path.joinpath(*parts)
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    write_squeue(programs, "4711", "RUNNING", "1:00:00", "0", str(folder), "rule_pretrain_phase_wildcards_0123")
    assert slurm.numbers_of_jobs("rule_pretrain_phase_wildcards_0123") == ["4711"]


def test_only_jobs_of_this_folder_with_the_same_comment_are_found(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_squeue(programs)
    list_jobs(
        programs,
        ("1", "RUNNING", "1:00:00", "0", str(tmp_path.parent), "rule_a"),
        ("2", "RUNNING", "1:00:00", "0", str(tmp_path), "rule_a_wildcards_b"),
        ("3", "RUNNING", "1:00:00", "0", str(tmp_path), "rule_a"),
    )
    assert slurm.numbers_of_jobs("rule_a") == ["3"]


def test_a_job_on_nodes_of_several_kinds_is_the_one_with_its_number(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm lists its other parts, too."""
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    write_squeue(programs)
    list_jobs(
        programs,
        ("7", "RUNNING", "2:00:00", "0", "/somewhere", "rule_a"),
        ("8", "RUNNING", "1:00:00", "0", "/somewhere", "rule_a"),
    )
    job = slurm.own_job()
    assert job is not None
    assert (job.number, job.minutes_left) == ("8", 60)


def test_a_job_that_a_person_submitted_is_not_the_executors() -> None:
    jobs = [slurm.Job("7", "RUNNING", None, 0, "/", comment, "") for comment in ("rule_a", "mine", "(null)")]
    assert [job.is_of_executor for job in jobs] == [True, False, False]


@pytest.mark.parametrize(
    ("state", "reason", "row"),
    [
        ("PENDING", "PartitionConfig", ["7", "PENDING", "PartitionConfig", "rule_a", "b", "0"]),
        ("RUNNING", "None", ["7", "RUNNING", "rule_a", "b", "0"]),
    ],
)
def test_the_status_says_why_a_job_waits(
    programs: Path, tmp_path: Path, state: str, reason: str, row: list[str]
) -> None:
    write_squeue(programs, "7", state, "1:00:00", "0", str(tmp_path), "rule_a_wildcards_b", reason)
    command = [sys.executable, ROOT / "workflow/scripts/status.py", "--configfile", ROOT / "config/demo.yaml"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1].split() == row


def test_jobs_that_squeue_does_not_tell_are_reported_once_and_not_taken_for_none(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_squeue(programs, fails=1000)
    assert slurm.numbers_of_jobs("rule_a") == slurm.numbers_of_jobs("rule_b") == []
    assert capsys.readouterr().err == "squeue does not answer; this folder's jobs in the queue are not known\n"
    slurm.jobs_of_this_folder.cache_clear()
    (programs / "squeue").unlink()
    monkeypatch.setenv("PATH", str(programs))
    assert slurm.jobs_of_this_folder() == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("duration", "minutes"), [("2-03:04:30", 2 * 1440 + 184.5), ("1:00:00", 60), ("5:30", 5.5), ("UNLIMITED", None)]
)
def test_durations_of_slurm_in_minutes(duration: str, minutes: float | None) -> None:
    assert slurm.parse_minutes(duration) == minutes


def test_a_job_waits_for_the_end_of_earlier_ones_however_they_end() -> None:
    size = Size(1, 1, 1, "gpu", None, memory_mb=500, walltime=1, additional_nodes=())
    assert slurm_resources(size, ["7", "8"])["slurm_extra"] == "--dependency=afterany:7:8"


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


def test_a_job_that_squeue_does_not_list_is_reported(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    (programs / "squeue").write_text("#!/bin/sh\n")
    (programs / "squeue").chmod(0o755)
    assert slurm.own_job() is None
    assert capsys.readouterr().err == "squeue does not list job 7; its time left is not known\n"


def test_what_a_person_has_chosen_for_the_lists_of_slurm_changes_no_answer(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQUEUE_PARTITION", "SQUEUE_STATES", "SINFO_PARTITION", "SACCT_FORMAT", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "chosen by a person")
    for name in ("squeue", "sinfo"):
        (programs / name).write_text("#!/bin/sh\nenv | sed -n 's/=chosen by a person$//p'\n")
        (programs / name).chmod(0o755)
        assert slurm.output_of(name) == "SLURM_CLUSTERS\n"


def test_a_job_without_a_squeue_is_reported(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a container: its training does not know when it has to save."""
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert slurm.own_job() is None
    assert capsys.readouterr().err == "no squeue is on the PATH; nothing is known of job 7, as its time left\n"
    monkeypatch.delenv("SLURM_JOB_ID")
    assert slurm.own_job() is None
    assert capsys.readouterr().err == ""


def test_a_job_does_not_count_among_the_others_of_its_rule(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for these would otherwise wait for itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    write_squeue(programs, "7", "RUNNING", "1:00:00", "0", str(tmp_path), "rule_a")
    assert slurm.numbers_of_jobs("rule_a") == []


@pytest.mark.parametrize(("state", "asked"), [("RUNNING", True), ("COMPLETING", False), ("PENDING", False)])
def test_a_job_that_is_being_ended_or_was_already_requeued_is_not_requeued(
    programs: Path, monkeypatch: pytest.MonkeyPatch, state: str, asked: bool
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    write_squeue(programs, "7", state, "1:00:00", "0", "/somewhere", "rule_a")
    (programs / "scontrol").write_text(f'#!/bin/sh\necho "$*" >> {shlex.quote(str(programs))}/scontrol.asked\n')
    (programs / "scontrol").chmod(0o755)
    slurm.requeue_own_job()
    told = programs / "scontrol.asked"
    assert (told.read_text() if told.exists() else "") == ("requeue 7\n" if asked else "")


def test_each_kind_of_node_has_the_threads_of_its_processes() -> None:
    """The script divides those of a node equally, and its last --threads counts."""
    command = srun_command(Program(["t.py", "--threads=1"], ["s.py"]), [NodeKind(1, 2), NodeKind(3, 4)], 3)
    between = command.index(":")
    last = [[word for word in part if "--threads=" in word][-1] for part in (command[:between], command[between:])]
    assert last == ["--threads=6", "--threads=12"]
    assert command.count("--cpus-per-task=3") == 2


@pytest.mark.parametrize(("bind", "unbound"), [("none", False), ("socket", True)])
def test_ranks_that_bind_themselves_are_not_bound_by_srun(bind: str, unbound: bool) -> None:
    program = Program(["train.py"], ["start_ranks.py"], 0, bind)
    assert ("--cpu-bind=none" in srun_command(program, [NodeKind(2, 4)], 1)) is unbound


@pytest.mark.parametrize(("gpus", "gres"), [(0, None), (1, "gpu:1"), (4, "gpu:4")])
def test_a_job_on_cpus_asks_for_no_gpu(gpus: int, gres: str | None) -> None:
    size = Size(1, gpus, 1, "cpu", None, memory_mb=500, walltime=1, additional_nodes=())
    assert slurm_resources(size, [])["gres"] == gres


def test_a_job_on_several_nodes_asks_for_the_cpus_of_a_process_and_on_one_node_for_those_of_all() -> None:
    one, two = (Size(nodes, 4, 3, "gpu", None, 500, 1, ()) for nodes in (1, 2))
    resources = [slurm_resources(size, []) for size in (one, two)]
    assert [given["cpus_per_task"] for given in resources] == [12, 3]
    assert [given["gres"] for given in resources] == ["gpu:4", "gpu:4"]


def test_the_gpus_of_nodes_of_several_kinds_are_not_those_of_the_first() -> None:
    size = Size(1, 4, 3, "gpu", None, 500, 1, (Nodes(1, 2, 3, "old", None),))
    given = slurm_resources(size, [])
    assert given["gres"] is None
    assert given["slurm_extra"] == (
        "-n4 --ntasks-per-node=4 --gpus-per-node=4 : -N1 -pold -c3 -n2 --ntasks-per-node=2 --gpus-per-node=2"
    )


@pytest.mark.parametrize(
    "name", ["gpu-t", "gpu-c", "HPC-Jupiter", "nvlink-n", "a--mem=1", "it's -o ", "[a|b]*2&c", "-J-"]
)
def test_no_name_of_a_partition_or_constraint_is_taken_for_an_option(name: str) -> None:
    other = Nodes(1, 2, 3, partition=name, constraint=name)
    size = Size(2, 4, 3, "first", None, memory_mb=1000, walltime=60, additional_nodes=(other,))
    given = slurm_resources(size, [])["slurm_extra"]
    validate_slurm_extra(SimpleNamespace(resources=SimpleNamespace(slurm_extra=given)))
    words = subprocess.run(["sh", "-c", f"printf '%s\\n' {given}"], capture_output=True, text=True, check=True)
    assert {f"-p{name}", f"-C{name}"} <= set(words.stdout.splitlines())
