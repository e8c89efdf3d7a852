"""What LSF, Cobalt, PBS and Grid Engine are asked for: the words of their manuals for the size of a job."""

from __future__ import annotations

import subprocess

import pytest

from bertline.cluster import jobs
from bertline.cluster.jobs import job_script, request_of
from bertline.cluster.schedulers import SCHEDULERS, scheduler_here
from bertline.console import BertlineError

# As Snakemake describes a phase on two nodes with four GPUs each.
PHASE = {
    "type": "single",
    "rule": "pretrain_phase",
    "wildcards": {"phase": "0123"},
    "threads": 24,
    "jobid": 3,
    "resources": {
        "nodes": 2,
        "processes_per_node": 4,
        "gres": "gpu:4",
        "mem_mb": 64000,
        "runtime": 605,
        "slurm_partition": "large",
        "slurm_account": "ours",
        "constraint": "gpu_type=a100",
        "qos": "-10",
        "grid_engine_one_node": "smp",
        "grid_engine_several_nodes": "filled",
        "grid_engine_gpu": "gpu",
        "grid_engine_memory": "h_vmem",
        "attempt": 2,
    },
}
GROUP = {
    "type": "group",
    "groupid": "samples",
    "threads": 1,
    "jobid": "77",
    "resources": {"mem_mb": 1000, "runtime": 240, "grid_engine_one_node": "smp", "grid_engine_memory": ""},
}
LSF, COBALT, GRID_ENGINE, PBS = SCHEDULERS
FLAGS = {"-terse", "-cwd", "-notify"}  # options without a value


def options(command: list[str]) -> list[tuple[str, str]]:
    """Pairs of an option and its value; the job's script, which comes last, is left out."""
    assert command[-1].endswith(".sh")
    values = iter([word for word in command[1 : -2 if command[-2] == "/bin/sh" else -1] if word not in FLAGS])
    return [(option, next(values)) for option in values]


def test_pbs_gets_a_request_for_chunks_on_nodes_of_their_own() -> None:
    job = request_of(PHASE, PBS.logs)
    given = options(PBS.submit(job))
    assert [value for option, value in given if option == "-l"] == [
        "select=2:ncpus=24:mem=64000mb:ngpus=4:gpu_type=a100",
        "place=scatter",
        "walltime=10:05:00",
    ]
    assert {("-q", "large"), ("-A", "ours"), ("-N", "pretrain_phase"), ("-j", "oe")} <= set(given)
    assert dict(given)["-o"].endswith("/logs/pbs/pretrain_phase-0123-2.log")


def test_lsf_gets_a_request_for_slots_by_host() -> None:
    given = options(LSF.submit(request_of(PHASE, LSF.logs)))
    assert {("-n", "48"), ("-W", "605"), ("-gpu", "num=4"), ("-q", "large"), ("-P", "ours")} <= set(given)
    needs = [value for option, value in given if option == "-R"]
    assert needs == ["span[ptile=24] rusage[mem=64000MB/host]", "gpu_type=a100"]


def test_cobalt_gets_a_request_for_whole_nodes() -> None:
    job = request_of(PHASE, COBALT.logs)
    given = dict(options(COBALT.submit(job)))
    assert given.pop("-o") == given.pop("-e") == job.log
    assert given == {
        "--jobname": "pretrain_phase",
        "--debuglog": f"{job.log}.cobalt",
        "-n": "2",
        "-t": "605",
        "-q": "large",
        "-A": "ours",
        "--attrs": "gpu_type=a100",
    }


def test_grid_engine_gets_a_request_for_slots_of_a_parallel_environment_and_memory_by_slot() -> None:
    job = request_of(PHASE, GRID_ENGINE.logs)
    command = GRID_ENGINE.submit(job)
    assert set(command) >= FLAGS
    words = " ".join(command)
    assert f"-S /bin/sh -N pretrain_phase -j y -o {job.log} " in words
    assert "-l h_rt=10:05:00,h_vmem=2667M,gpu=4,gpu_type=a100 -pe filled 48 -q large -P ours -p -10 " in words


def test_a_missing_name_of_grid_engine_in_a_site_file_is_reported() -> None:
    resources = {name: value for name, value in PHASE["resources"].items() if name != "grid_engine_several_nodes"}
    job = request_of({**PHASE, "resources": resources}, GRID_ENGINE.logs)
    with pytest.raises(BertlineError, match=r"site.yaml: Grid Engine needs `grid_engine: \{several_nodes: ...\}`"):
        GRID_ENGINE.submit(job)


def test_the_scheduler_whose_programs_come_first_is_used(tmp_path, monkeypatch) -> None:
    for scheduler in SCHEDULERS:
        folder = tmp_path / scheduler.name
        folder.mkdir()
        # All but LSF have these.
        for program in {scheduler.program, "qstat"} if scheduler is not LSF else {scheduler.program}:
            (folder / program).write_text("#!/bin/sh\n")
            (folder / program).chmod(0o755)
    for first in SCHEDULERS:
        others = [scheduler.name for scheduler in SCHEDULERS if scheduler is not first]
        monkeypatch.setenv("PATH", ":".join(str(tmp_path / name) for name in [first.name, *others]))
        assert scheduler_here() is first


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: scheduler.name)
def test_a_group_of_data_jobs_asks_for_neither_gpu_nor_account(scheduler) -> None:
    given = dict(options(scheduler.submit(request_of(GROUP, scheduler.logs))))
    assert not {"-q", "-A", "-P", "-gpu"} & given.keys()
    assert "ngpus" not in str(given)


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: scheduler.name)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -TERM $$; exit 1", 143),
        # What comes with -notify, and what the shell's children make of it.
        ("kill -USR2 $$; sh -c 'kill -USR2 $$; exit 1'", 143),
    ],
)
def test_a_job_writes_down_how_it_ended(scheduler, body, status, tmp_path, monkeypatch) -> None:
    """143 for one that was told to stop."""
    monkeypatch.chdir(tmp_path)
    scheduler.ended.mkdir(parents=True)
    script = job_script(scheduler, f"{body}\n", minutes=2)
    done = subprocess.run(["/bin/sh"], input=script, env={scheduler.variable: "12.here"}, text=True, check=False)
    assert done.returncode == status
    assert (scheduler.ended / "12.here").read_text() == f"{status}\n"


@pytest.mark.parametrize("content", [b"", b"\n", b"x", b"\xff", b"-1", b"9" * 5000])
def test_a_damaged_note_of_how_a_job_ended_counts_as_ended_from_outside(content, tmp_path, monkeypatch, capsys) -> None:
    """A full disk leaves it empty."""
    monkeypatch.chdir(tmp_path)
    COBALT.ended.mkdir(parents=True)
    (COBALT.ended / "12").write_bytes(content)
    monkeypatch.setattr(jobs, "scheduler_here", lambda: COBALT)
    assert jobs.job_status("12") == "failed"
    assert "was ended from outside" in capsys.readouterr().err


def test_a_job_whose_scheduler_passes_nothing_on_gets_what_it_needs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NCCL_TEST", "it's $HOME")
    monkeypatch.setenv("PYTORCH_TEST", "as well")
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    COBALT.ended.mkdir(parents=True)
    script = job_script(COBALT, "echo $NCCL_TEST $PYTORCH_TEST; pwd", minutes=2)
    bare = {"COBALT_JOBID": "12"}
    done = subprocess.run(["/bin/sh", "-c", script], cwd="/", env=bare, capture_output=True, text=True, check=True)
    assert done.stdout == f"it's $HOME as well\n{tmp_path}\n"
    assert "hidden" not in script
