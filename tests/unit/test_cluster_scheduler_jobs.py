"""What LSF, Cobalt, PBS and Grid Engine are asked for: the words of their manuals for the size of a job."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from bertline.cluster import scheduler_jobs, schedulers, waiting
from bertline.cluster.scheduler_jobs import job_script, request_of
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
FLAGS = {"-terse", "-cwd", "-notify", "-rn"}  # options without a value


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
    assert {("-q", "large"), ("-A", "ours"), ("-N", f"pretrain-{job.code}"), ("-j", "oe"), ("-r", "n")} <= set(given)
    assert dict(given)["-o"].endswith("/logs/pbs/pretrain_phase-0123-2.log")


def test_lsf_gets_a_request_for_slots_by_host() -> None:
    command = LSF.submit(request_of(PHASE, LSF.logs))
    given = options(command)
    assert "-rn" in command
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
    words = " ".join(command)
    assert "-terse -cwd -notify -r n " in words
    assert f"-S /bin/sh -N pretrain_phase-{job.code} -j y -o {job.log} " in words
    assert "-l h_rt=10:05:00,h_vmem=2667M,gpu=4,gpu_type=a100 -pe filled 48 -q large -P ours -p -10 " in words


def test_a_missing_name_of_grid_engine_in_a_site_file_is_reported() -> None:
    resources = {name: value for name, value in PHASE["resources"].items() if name != "grid_engine_several_nodes"}
    job = request_of({**PHASE, "resources": resources}, GRID_ENGINE.logs)
    with pytest.raises(BertlineError, match=r"site.yaml: Grid Engine needs `grid_engine: \{several_nodes: ...\}`"):
        GRID_ENGINE.submit(job)


def test_nodes_of_several_kinds_are_refused_before_a_job_is_in_the_queue(programs, tmp_path) -> None:
    properties = {**PHASE, "resources": {**PHASE["resources"], "additional_nodes": "1x2"}}
    (tmp_path / "jobscript.sh").write_text(f"#!/bin/sh\n# properties = {json.dumps(properties)}\n")
    programs.write("qstat", "true")
    programs.write("qsub", "echo 7.head")
    with pytest.raises(BertlineError, match=r"leave `additional_nodes` out of site\.yaml"):
        scheduler_jobs.submit_job(tmp_path / "jobscript.sh")
    assert not (programs.folder / "asked").exists()


@pytest.mark.parametrize(
    ("gres", "gpus"), [("gpu:4", 4), ("gpu:a100:4", 4), ("gpu:a100:2,gpu:h100:1", 3), ("gpu:0", 0), ("", 0), (None, 0)]
)
def test_the_gpus_of_a_job_are_read_from_slurms_words(gres, gpus) -> None:
    assert request_of({**PHASE, "resources": {**PHASE["resources"], "gres": gres}}, PBS.logs).gpus == gpus


@pytest.mark.parametrize("gres", ["gpu:4(S:0-1)", "gpu", "gpu:a100", "gpu:2,nvme:100", "shard:1", "gpu:2,", "gpu:-1"])
def test_what_only_slurm_has_is_refused_in_one_line(gres) -> None:
    with pytest.raises(BertlineError, match=rf"^gres: given '{re.escape(gres)}'; only Slurm has"):
        request_of({**PHASE, "resources": {**PHASE["resources"], "gres": gres}}, PBS.logs)


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: scheduler.name)
def test_a_name_that_is_a_number_is_given_as_a_word(scheduler) -> None:
    """A command consists of words. --set-resources makes numbers of such names."""
    numbers = {"slurm_account": 4711, "slurm_partition": 1, "constraint": 80, "qos": -10, "grid_engine_one_node": 7}
    command = scheduler.submit(request_of({**PHASE, "resources": {**PHASE["resources"], **numbers}}, scheduler.logs))
    assert "4711" in command
    assert all(isinstance(word, str) for word in command)


@pytest.mark.parametrize("minutes", [1, 30])
def test_the_end_of_a_job_is_a_time_in_seconds(minutes, monkeypatch) -> None:
    monkeypatch.setenv("BERTLINE_JOB_ENDS", str(time.time() + 60 * minutes))
    assert schedulers.minutes_left() == pytest.approx(minutes, abs=0.5)
    monkeypatch.setenv("BERTLINE_JOB_ENDS", "abc")
    with pytest.raises(BertlineError, match="BERTLINE_JOB_ENDS is 'abc', not a time in seconds"):
        schedulers.minutes_left()


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


@pytest.mark.parametrize(
    ("scheduler", "need"),
    [
        (PBS, "select=2:ncpus=24:ngpus=4:gpu_type=a100"),
        (LSF, "span[ptile=24]"),
        (GRID_ENGINE, "h_rt=10:05:00,gpu=4,gpu_type=a100"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_memory_of_0_is_not_requested(scheduler, need) -> None:
    """For partitions that refuse one."""
    job = request_of({**PHASE, "resources": {**PHASE["resources"], "mem_mb": 0}}, scheduler.logs)
    assert need in scheduler.submit(job)


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: scheduler.name)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("exit 0", 0),
        ("exit 7", 7),
        # What LSF and Grid Engine send before the end is for the launcher, which handles it.
        ("sh -c 'kill -USR1 $$; kill -USR2 $$; exit 7'", 7),
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


def test_a_note_of_how_a_job_ended_is_complete_or_absent(programs) -> None:
    """A query must not read half of it."""
    programs.write("mv", "exit 1")
    PBS.ended.mkdir(parents=True)
    script = job_script(PBS, "exit 7", minutes=2)
    environment = {"PBS_JOBID": "12.head", "PATH": os.environ["PATH"]}
    subprocess.run(["/bin/sh"], input=script, env=environment, text=True, check=False)
    assert [(path.name, path.read_text()) for path in PBS.ended.iterdir()] == [("12.head.part", "7\n")]


def test_pbs_starts_a_script_on_the_first_slot_of_a_host() -> None:
    assert PBS.start(["a", "a", "b"], "b", "start.sh") == ["pbsdsh", "-n", "2", "--", "/bin/sh", "start.sh"]


@pytest.mark.parametrize("content", [b"", b"\n", b"x", b"\xff", b"-1", b"9" * 5000])
def test_a_damaged_note_of_how_a_job_ended_counts_as_ended_from_outside(content, tmp_path, monkeypatch, capsys) -> None:
    """A full disk leaves it empty."""
    monkeypatch.chdir(tmp_path)
    COBALT.ended.mkdir(parents=True)
    (COBALT.ended / "12").write_bytes(content)
    monkeypatch.setattr(scheduler_jobs, "scheduler_here", lambda: COBALT)
    assert scheduler_jobs.job_status("12") == "failed"
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


@pytest.mark.parametrize(
    ("name", "passed_on"),
    [
        ("HF_HUB_TOKEN", False),
        ("PYTHON_KEYRING_TOKEN", False),
        ("PYTHON_KEYRING_PASSWORD", False),
        ("TORCH_API_KEY", False),
        ("FI_CLIENT_SECRET", False),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", True),
        ("NCCL_IB_PKEY", True),
        ("BERTLINE_JOB_TOKEN", True),
    ],
)
def test_no_secret_is_written_into_a_script(name, passed_on, monkeypatch) -> None:
    monkeypatch.setenv(name, "value of it")
    assert ("value of it" in job_script(PBS, "true", minutes=2)) is passed_on


# A fake of a scheduler's program. It writes down its arguments, and runs the script NAME.N at its call N, or NAME.txt.
PROGRAM = """#!/bin/sh
cd {folder}
echo "$(basename "$0") $*" >> asked
name=$(basename "$0")
answer=$name.$(grep -c "^$name " asked)
[ -e "$answer" ] || answer=$name.txt
. ./"$answer"
"""


class Programs:
    """Programs of a scheduler on the PATH, whose answers are shell scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def write(self, name: str, *answers: str) -> None:
        """Make a program; its answers in order, of which the last one is repeated."""
        program = self.folder / name
        program.write_text(PROGRAM.format(folder=self.folder))
        program.chmod(0o755)
        for number, answer in enumerate(answers, 1):
            (self.folder / f"{name}.{number}").write_text(f"{answer}\n")
        (self.folder / f"{name}.txt").write_text(f"{answers[-1]}\n")

    def asked(self, name: str) -> list[str]:
        """The arguments of each call of a program."""
        lines = [line.split(" ", 1) for line in (self.folder / "asked").read_text().splitlines()]
        return [arguments for program, arguments in lines if program == name]


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Programs:
    """No programs yet; this process is in a folder with a job to submit, as snakemake writes it."""
    made = Programs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SNAKEMAKE_CLUSTER_SIDECAR_VARS", str(tmp_path / "sent"))
    monkeypatch.setattr(waiting, "MAX_PAUSE", 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sent").touch()
    (tmp_path / "jobscript.sh").write_text(f"#!/bin/sh\n# properties = {json.dumps(PHASE)}\n")
    return made


ROOT = Path(__file__).parents[2]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 240
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


NO_SERVER = {
    PBS: "echo 'qsub: cannot connect to server pbs (errno=15010)' >&2; exit 255",
    GRID_ENGINE: """echo 'error: commlib error: got select error (Connection refused)
Unable to run job: unable to contact qmaster using port 6444 on host "head".' >&2; exit 1""",
    LSF: "echo 'LSF is down. Please wait ...' >&2; exit 255",
}
# submit, find, what finds nothing, what finds job 7.
COMMANDS = {
    PBS: ("qsub", "qselect", "true", "echo 7.head"),
    GRID_ENGINE: ("qsub", "qstat", "echo 'Following jobs do not exist:' >&2; exit 1", "echo 'job_number:      7'"),
    LSF: ("bsub", "bjobs", "echo 'Job <x> is not found' >&2; exit 255", "echo 7"),
}
NEW = {PBS: "echo 7.head", GRID_ENGINE: "echo 7", LSF: "echo 'Job <7> is submitted to queue <large>.'"}
by_name = pytest.mark.parametrize("scheduler", COMMANDS, ids=lambda scheduler: scheduler.name)


@pytest.mark.parametrize(
    ("scheduler", "printed"),
    [*NEW.items(), (COBALT, "echo 7")],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_a_site_prints_besides_the_number_of_a_new_job_is_not_taken_for_it(
    scheduler, printed, programs, tmp_path
) -> None:
    banner = "echo '2026-12-01: /scratch is purged'; echo '42 jobs wait'; echo 3"
    after = "echo '1.5 hours are left'"
    programs.write(scheduler.program, "true")
    programs.write("bsub" if scheduler is LSF else "qsub", f"{banner}; {printed}; {after}")
    number = "7.head" if scheduler is PBS else "7"
    assert scheduler_jobs.submit_job(tmp_path / "jobscript.sh") == number


@by_name
@pytest.mark.parametrize("accepted", [False, True])
def test_a_submission_waits_for_a_server_that_is_away_and_happens_once(
    scheduler, accepted, programs, tmp_path, capsys
) -> None:
    """A request whose answer was lost may have been accepted: then the job is in the queue under its name."""
    submit, find, nothing, job = COMMANDS[scheduler]
    programs.write(scheduler.program, "true")
    away = NO_SERVER[scheduler]
    programs.write(submit, away, NEW[scheduler] if accepted else away, NEW[scheduler])
    programs.write(find, away, job if accepted else nothing)
    number = "7.head" if scheduler is PBS else "7"
    assert scheduler_jobs.submit_job(tmp_path / "jobscript.sh") == number
    assert len(programs.asked(submit)) == (1 if accepted else 3)
    name = next(word for word in programs.asked(submit)[0].split() if word.startswith("pretrain"))
    assert all(arguments.endswith(name) for arguments in programs.asked(find))
    assert (tmp_path / "sent").read_text() == f"{number}\n"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("a submission waits for the scheduler: ")


@pytest.mark.parametrize(("hours", "kept"), [(-1, False), (1, True)])
def test_the_end_of_an_earlier_job_with_the_same_number_is_not_that_of_a_new_one(
    hours, kept, programs, tmp_path
) -> None:
    """A scheduler's numbers begin again. A new job may have ended before its number is told."""
    programs.write("qstat", "true")
    programs.write("qsub", "echo 12.head")
    PBS.ended.mkdir(parents=True)
    ended = PBS.ended / "12.head"
    ended.write_text("0\n")
    written = time.time() + 3600 * hours
    os.utime(ended, (written, written))
    PBS.held.mkdir()
    (PBS.held / "12.head").touch()
    assert scheduler_jobs.submit_job(tmp_path / "jobscript.sh") == "12.head"
    assert ended.exists() is kept
    assert not list(PBS.held.iterdir())
    (script,) = PBS.logs.glob("*.sh")
    assert stat.S_IMODE(script.stat().st_mode) == 0o700  # it contains addresses, perhaps with passwords


@pytest.mark.parametrize("error", [15007, 15008])
def test_a_user_without_permission_or_server_does_not_wait_for_one(error, programs, tmp_path) -> None:
    programs.write("qstat", "true")
    programs.write("qsub", f"echo 'qsub: cannot connect to server pbs (errno={error})' >&2; exit 1")
    with pytest.raises(BertlineError, match="qsub refused the job pretrain_phase"):
        scheduler_jobs.submit_job(tmp_path / "jobscript.sh")


@by_name
def test_a_job_whose_submission_outlives_snakemake_is_cancelled(scheduler, programs, tmp_path) -> None:
    """As after Ctrl-C: the file in which submissions are recorded is read and gone when the answer comes."""
    programs.write(scheduler.program, "true")
    programs.write(scheduler.cancel, "true")
    programs.write(COMMANDS[scheduler][0], f"rm {tmp_path}/sent; {NEW[scheduler]}")
    number = "7.head" if scheduler is PBS else "7"
    with pytest.raises(BertlineError, match=f"snakemake has ended; its new job {number} was canceled"):
        scheduler_jobs.submit_job(tmp_path / "jobscript.sh")
    assert programs.asked(scheduler.cancel) == [number]
    assert not (tmp_path / "sent").exists()


def test_a_submission_gives_up_at_last(programs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(waiting, "MAX_SECONDS", 0)
    programs.write("qstat", "true")
    programs.write("qselect", "true")
    programs.write("qsub", NO_SERVER[PBS], NEW[PBS])
    with pytest.raises(BertlineError, match="cannot connect to server"):
        scheduler_jobs.submit_job(tmp_path / "jobscript.sh")


def test_a_submission_that_waits_for_the_server_ends_with_snakemake(programs, tmp_path) -> None:
    programs.write("qstat", "true")
    programs.write("qselect", "true")
    programs.write("qsub", f"rm -f {tmp_path}/sent; {NO_SERVER[PBS]}")
    with pytest.raises(BertlineError, match="snakemake has ended; this job is not submitted"):
        scheduler_jobs.submit_job(tmp_path / "jobscript.sh")
    assert len(programs.asked("qsub")) == 1


@by_name
@pytest.mark.parametrize("answers", [True, False])
def test_a_job_whose_answer_was_lost_before_the_end_of_snakemake_is_looked_up_and_cancelled(
    scheduler, answers, programs, tmp_path
) -> None:
    submit, find, _, job = COMMANDS[scheduler]
    programs.write(scheduler.program, "true")
    programs.write(scheduler.cancel, "true")
    programs.write(submit, f"rm -f {tmp_path}/sent; {NO_SERVER[scheduler]}")
    programs.write(find, job if answers else NO_SERVER[scheduler])
    number = "7.head" if scheduler is PBS else "7"
    said = rf"its new job {number} was canceled" if answers else r"this job may be in the queue as pretrain\S*-\w{6}; "
    with pytest.raises(BertlineError, match=f"snakemake has ended; {said}"):
        scheduler_jobs.submit_job(tmp_path / "jobscript.sh")
    assert len(programs.asked(submit)) == 1
    assert programs.asked(scheduler.cancel) == ([number] if answers else [])


def test_cobalt_which_does_not_find_jobs_by_name_may_have_one_whose_answer_was_lost(programs, tmp_path) -> None:
    programs.write("cqwait", "true")
    programs.write("qsub", f"rm -f {tmp_path}/sent; echo 'Connection refused' >&2; exit 1")
    with pytest.raises(BertlineError, match="snakemake has ended; this job may be in the queue as pretrain_phase; "):
        scheduler_jobs.submit_job(tmp_path / "jobscript.sh")


def test_a_new_job_that_cannot_be_cancelled_is_told(programs, tmp_path) -> None:
    programs.write("qstat", "true")
    programs.write("qdel", "echo 'qdel: Unauthorized Request 7.head' >&2; exit 159")
    programs.write("qsub", f"rm {tmp_path}/sent; {NEW[PBS]}")
    with pytest.raises(
        BertlineError, match=r"new job 7\.head was not canceled \(qdel: Unauthorized .*\); cancel it by"
    ):
        scheduler_jobs.submit_job(tmp_path / "jobscript.sh")


def cancel_at_the_end(monkeypatch) -> None:
    """As when snakemake ends with jobs 7.head and 8.head."""
    monkeypatch.setattr(scheduler_jobs, "unfinished_at_the_end", lambda logs, ended: ["7.head", "8.head"])
    scheduler_jobs.cancel_jobs_at_the_end()


OVER = "qstat: Unknown Job Id 7.head"
LSF_ENDED, QDEL_ENDED = "echo 'Job <7>: Job has already finished' >&2", "echo 'denied: job \"7\" does not exist'"


@pytest.mark.parametrize(
    ("program", "cancel", "query", "said"),
    [
        # Of a server that is away, nothing is asked.
        ("qstat", NO_SERVER[PBS], f"echo '{OVER}'", r"pbs \(errno.*until `qdel 7\.head 8\.head`$"),
        ("qstat", "exit 3", "true", r"^qdel ended with status 3; unfinished jobs run on until `qdel 7\.head 8\.head`$"),
        # One has ended, the other is not this user's.
        ("qstat", f"echo '{OVER}\nqdel: Unauthorized' >&2; exit 1", f"echo '{OVER}'; exit 1", r"until `qdel 8\.head`$"),
        ("qstat", f"echo '{OVER}' >&2; exit 153", "true", None),
        ("bjobs", "echo 'Job <7>: No matching job found' >&2; exit 255", "echo 'Job <7> is not found'", None),
        # One has just ended, the other is still listed while it ends.
        ("bjobs", f"{LSF_ENDED}; echo 'Job <8> is being terminated'; exit 255", "echo RUN", None),
        ("qhost", f"{QDEL_ENDED}; echo 'me has registered the job 8 for deletion'; exit 1", "echo listed", None),
        ("qhost", f"{QDEL_ENDED}; echo 'me has deleted job 8'; exit 1", "echo listed", None),
        ("qhost", f"{QDEL_ENDED}; echo 'job 8 is already in deletion'; exit 1", "echo listed", None),
        # The other is not this user's.
        (
            "qhost",
            "case $* in 7*) true;; *) false;; esac && echo 'me has registered the job 7 for deletion'; "
            "case $* in *8*) echo 'denied: me has no permission'; exit 1;; esac",
            "echo listed",
            r"^denied: me has no permission; unfinished jobs run on until `qdel 8\.head`$",
        ),
        ("qstat", "true", "true", None),
    ],
)
def test_jobs_that_are_not_cancelled_at_the_end_of_snakemake_are_named(
    program, cancel, query, said, programs, monkeypatch
) -> None:
    # The first query is about job 7.
    programs.write(program, query, query if said is None else "true")
    if program == "qhost":
        programs.write("qstat", query)
    programs.write("bkill" if program == "bjobs" else "qdel", cancel)
    if said is None:
        return cancel_at_the_end(monkeypatch)
    with pytest.raises(BertlineError, match=said):
        cancel_at_the_end(monkeypatch)


WAITING = """
import sys
from pathlib import Path
from bertline.cluster import scheduler_jobs
scheduler_jobs.PARENT_CHECK_SECONDS = 0.05
print(scheduler_jobs.unfinished_at_the_end(Path(), Path("ended")), file=sys.stderr)
"""


@pytest.mark.parametrize(("number", "cancelled"), [(signal.SIGKILL, "[]"), (signal.SIGTERM, "['7']")])
def test_jobs_continue_after_a_snakemake_that_was_killed(number, cancelled, tmp_path) -> None:
    """Snakemake ends this process by SIGTERM; if it was killed, nobody does."""
    (tmp_path / "waiting.py").write_text(WAITING)
    parent = "import subprocess, sys; subprocess.Popen([sys.executable, 'waiting.py']).wait()"
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as snakemake:
        submitted = Path(snakemake.stdout.readline().strip())
        submitted.write_text("7\n8\n")
        (tmp_path / "ended/8").touch()
        if number == signal.SIGKILL:
            snakemake.kill()
        else:
            os.kill(int(submitted.name.removeprefix("sent-")), signal.SIGTERM)
        assert snakemake.stderr.read() == f"{cancelled}\n"


def test_the_jobs_of_a_killed_run_whose_process_had_the_same_number_are_not_cancelled(tmp_path, monkeypatch) -> None:
    """In a new Pod, numbers of processes begin again."""
    (tmp_path / f"sent-{os.getpid()}").write_text("7\n")
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: "SIGTERM")
    assert scheduler_jobs.unfinished_at_the_end(tmp_path, tmp_path / "ended") == []


@pytest.mark.parametrize("script", ["submit_job.py", "kubernetes_submit.py --manifests ."])
def test_a_submission_by_hand_is_one_line(script, programs) -> None:
    """Nothing would cancel its job."""
    for program in ("qstat", "qsub", "kubectl"):
        programs.write(program, "exit 1")
    environment = {name: value for name, value in os.environ.items() if name != "SNAKEMAKE_CLUSTER_SIDECAR_VARS"}
    command = [sys.executable, *f"{ROOT}/workflow/scripts/{script} jobscript.sh".split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: SNAKEMAKE_CLUSTER_SIDECAR_VARS is not set: snakemake sets it")
    assert done.stderr.count("\n") == 1
    assert not Path("logs").exists()


def test_two_submissions_of_a_job_have_scripts_of_their_own() -> None:
    """LSF and Cobalt read the script when the job starts."""
    assert request_of(PHASE, LSF.logs).script.endswith(f"-{os.getpid()}.sh")


def test_a_job_that_grid_engine_cannot_start_failed_and_is_deleted(programs, capsys) -> None:
    reason = "error reason          1:      error: can't chdir to /gone: No such file or directory"
    programs.write("qhost", "true")
    programs.write("qstat", f'echo "job_number:   88\n{reason}"')
    programs.write("qdel", "true")
    assert scheduler_jobs.job_status("88") == "failed"
    assert programs.asked("qdel") == ["88"]
    said = "error reason 1: error: can't chdir to /gone: No such file or directory"
    assert capsys.readouterr().err == f"job 88 cannot start and is deleted: {said}\n"


@pytest.mark.parametrize(
    ("scheduler", "queried"),
    [
        (LSF, "echo DONE"),
        (LSF, "echo EXIT"),
        (LSF, "echo ZOMBI"),
        (LSF, "echo 'Job <88> is not found' >&2; exit 255"),
        (PBS, "echo 'qstat: Unknown Job Id 88.head' >&2; exit 153"),
        (PBS, "echo 'qstat: 88.head Job has finished, use -x or -H to obtain historical job information' >&2; exit 35"),
        (GRID_ENGINE, "echo 'Following jobs do not exist: 88' >&2; exit 1"),
        (COBALT, "exit 1"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.parametrize(("note", "status"), [("0", "success"), ("7", "failed"), (None, "failed")])
def test_a_job_that_its_scheduler_ended_or_forgot_has_the_status_that_it_wrote(
    scheduler, queried, note, status, programs, monkeypatch, capsys
) -> None:
    """Its note may be seen only after the query; without one, the job was ended from outside."""
    monkeypatch.setattr(scheduler_jobs, "LATENCY_SECONDS", 0 if note is None else 240)
    monkeypatch.setattr(scheduler_jobs, "scheduler_here", lambda: scheduler)
    ended = (scheduler.ended / "88").absolute()
    ended.parent.mkdir(parents=True)
    written = "" if note is None else f"echo {note} > {ended}; "
    programs.write(scheduler.query[0], f"{written}{queried}")
    assert scheduler_jobs.job_status("88") == status
    assert ("was ended from outside" in capsys.readouterr().err) is (note is None)


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: scheduler.name)
def test_a_job_whose_server_does_not_answer_counts_as_running(scheduler, programs, monkeypatch) -> None:
    monkeypatch.setattr(scheduler_jobs, "scheduler_here", lambda: scheduler)
    programs.write(scheduler.query[0], NO_SERVER.get(scheduler, "echo 'cannot connect' >&2; exit 1"))
    assert scheduler_jobs.job_status("88") == "running"


def test_a_job_on_a_host_that_lsf_lost_counts_as_running(programs) -> None:
    programs.write("bjobs", "echo UNKWN")
    assert scheduler_jobs.job_status("88") == "running"


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: scheduler.name)
def test_a_job_knows_when_its_walltime_ends(scheduler, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    scheduler.ended.mkdir(parents=True)
    script = job_script(scheduler, "echo $BERTLINE_JOB_ENDS", minutes=90)
    done = subprocess.run(["/bin/sh", "-c", script], env={scheduler.variable: "12"}, capture_output=True, check=True)
    assert 60 * 88 < float(done.stdout) - time.time() <= 60 * 90


@pytest.mark.parametrize(
    ("program", "held", "waits", "advice"),
    [
        ("qstat", "88.head  pretrain  me  00:00:00 H large", "88.head  pretrain  me  00:00:00 Q large", "qrls 88"),
        ("bjobs", "PSUSP", "PEND", "bresume 88"),
    ],
)
def test_a_held_job_waits_and_what_to_do_is_told_once(program, held, waits, advice, programs, capsys) -> None:
    programs.write(program, f"echo '{waits}'", f"echo '{held}'")
    assert [scheduler_jobs.job_status("88") for _ in range(4)] == ["running"] * 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("job 88 is held and waits")
    assert f"start it with `{advice}`" in line


def test_a_hold_is_told_although_the_disk_is_full(programs, tmp_path, capsys) -> None:
    """A status that is not printed would end the whole run."""
    (tmp_path / "logs").touch()  # no folder: nothing can be written into it
    programs.write("bjobs", "echo PSUSP")
    assert scheduler_jobs.job_status("88") == "running"
    assert capsys.readouterr().err.startswith("job 88 is held and waits")


@pytest.mark.parametrize("profile", ["cluster-generic", "kubernetes"])
def test_a_submission_goes_on_when_snakemake_kills_the_shell_that_started_it(profile, tmp_path) -> None:
    """As Python does after Ctrl-C. bash, which is /bin/sh on many clusters, replaces itself by its only command."""
    settings = yaml.safe_load((ROOT / "profiles" / profile / "config.yaml").read_text())
    session = settings["cluster-generic-submit-cmd"].partition(" workflow/")[0]
    (tmp_path / "submit").write_text("touch started; read go < pipe; touch submitted\n")
    os.mkfifo(tmp_path / "pipe")
    # Kept open, so that the submission does not wait to open it.
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    shell = subprocess.Popen(["bash", "-c", f'{session} sh "submit"'], cwd=tmp_path)
    wait_for(tmp_path / "started")
    shell.kill()
    shell.wait()
    os.write(pipe, b"go\n")
    wait_for(tmp_path / "submitted")
