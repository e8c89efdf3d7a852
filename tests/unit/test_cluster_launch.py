"""The launcher gives every rank torchrun's environment, and passes on how the first rank that failed ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from queue_lines import squeue_with
from synthetic_dataset import recipe, write_dataset

from bertline.results import paths

pytestmark = pytest.mark.slow

LAUNCH = Path(__file__).parents[2] / "workflow" / "scripts" / "launch.py"
START_RANKS = LAUNCH.with_name("start_ranks.py")
KILLED = (
    "rank 1 was ended by SIGKILL; the kernel does that when memory runs out: then lower micro_batch_tokens, give "
    "--activation-checkpointing, or raise mem_mb"
)
MAPPED = (
    "rank 1 was ended by SIGBUS; a file that it maps, such as the dataset's, was cut or cannot be read: check it with "
    "validate_dataset.py, and the disk"
)
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
WRITE_ENVIRONMENT = f"""
import json, os, sys
values = {{name: os.environ[name] for name in {NAMES}}}
open(f"{{sys.argv[1]}}/{{values['RANK']}}.json", "w").write(json.dumps([values, sys.argv[2:]]))
"""
# A fake srun: starts the tasks one after the other with the variables that srun sets.
SRUN = """#!/usr/bin/env python3
import os, subprocess, sys
options = dict(argument[2:].split("=") for argument in sys.argv[1:] if argument.startswith("--") and "=" in argument)
tasks, per_node = int(options["ntasks"]), int(options["ntasks-per-node"])
assert tasks == int(options["nodes"]) * per_node and options["cpus-per-task"] == "4"
first = next(number for number, argument in enumerate(sys.argv[1:], 1) if not argument.startswith("--"))
for task in range(tasks):
    slurm = {"PROCID": task, "LOCALID": task % per_node, "NTASKS": tasks, "JOB_ID": 61234}
    values = {f"SLURM_{name}": str(value) for name, value in slurm.items()}
    values["SLURM_LAUNCH_NODE_IPADDR"] = os.environ["ADDRESS"]
    subprocess.run(sys.argv[first:], env={**os.environ, **values}, check=True)
"""
# Fakes of PBS, which passes on neither environment nor folder, LSF, and sshd: start one command on "another node".
STARTERS = {
    "ssh": '[ "$1 $2 $3" = "-o BatchMode=yes 127.0.0.2" ] || exit 9; cd /; exec env -i PATH=/usr/bin:/bin sh -c "$4"',
    "pbsdsh": '[ "$1 $2 $3" = "-n 2 --" ] || exit 9; shift 3; cd /; exec env -i PATH=/usr/bin:/bin "$@"',
    "blaunch": '[ "$1" = 127.0.0.2 ] || exit 9; shift; exec "$@"',
    "qrsh": '[ "$1 $2 $3" = "-inherit -nostdin 127.0.0.2" ] || exit 9; shift 3; cd /; exec env -i PATH=/usr/bin "$@"',
}


def launch(tmp_path, program, *arguments, after=(), by=LAUNCH, **environment):
    script = tmp_path / "trainer.py"
    script.write_text(program)
    command = [sys.executable, by, *arguments, "--", script, tmp_path, *after]
    return subprocess.run(
        [*map(str, command)],
        cwd=tmp_path,
        env={**os.environ, **environment},
        timeout=240,
        capture_output=True,
        text=True,
        check=False,
    )


def environments(tmp_path):
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(len(list(tmp_path.glob("*.json"))))]


@pytest.mark.parametrize("count", [1, 3])
def test_local_ranks_get_torchruns_environment(tmp_path, count):
    done = launch(tmp_path, WRITE_ENVIRONMENT, "--processes-per-node", count, after=["--recipe", '{"a": 1}'])
    assert done.returncode == 0, done.stderr
    ranks = environments(tmp_path)
    assert len(ranks) == count
    for rank, (values, arguments) in enumerate(ranks):
        assert values["RANK"] == values["LOCAL_RANK"] == str(rank)
        assert values["WORLD_SIZE"] == values["LOCAL_WORLD_SIZE"] == str(count)
        assert values["MASTER_PORT"] == ranks[0][0]["MASTER_PORT"]
        assert arguments == ["--recipe", '{"a": 1}']


WRITE_WAITING = """
import json, os, sys
values = {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
open(f"{sys.argv[1]}/{os.environ['RANK']}.json", "w").write(json.dumps(values))
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": "1000"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": None}),
        ({"GOMP_SPINCOUNT": "5"}, {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": "5"}),
        ({"PBS_JOBID": "17"}, {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": None}),
    ],
    ids=str,
)
def test_threads_of_ranks_spin_briefly_unless_the_user_chose_or_they_have_their_cores(
    tmp_path, monkeypatch, given, expected
):
    for name in expected:
        monkeypatch.delenv(name, raising=False)
    done = launch(tmp_path, WRITE_WAITING, "--processes-per-node", 2, **given)
    assert done.returncode == 0, done.stderr
    assert environments(tmp_path) == [expected, expected]
    # As tasks of mpirun, too.
    variables = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    task = {f"OMPI_COMM_WORLD_{name}": value for name, value in zip(variables, "0101", strict=True)}
    done = launch(tmp_path, WRITE_WAITING, "--within-mpirun", "127.0.0.1", 20000, by=START_RANKS, **task, **given)
    assert done.returncode == 0, done.stderr
    assert environments(tmp_path)[0] == expected


# On some machines, as Debian's, a host's own name is a loopback address there, which other nodes do not reach.
@pytest.mark.parametrize("address", ["10.0.0.7", "127.0.1.1", "::1"])
@pytest.mark.parametrize(("given", "port"), [((), "21234"), (("--port", 23456), "23456")])
def test_several_nodes_become_one_srun_task_a_rank(tmp_path, given, port, address):
    folder = tmp_path / "bin"
    folder.mkdir()
    # A squeue that does not know the job: one that does not answer is asked again.
    for name, content in {"srun": SRUN, "squeue": "#!/bin/sh\n"}.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    geometry = ("--nodes", 2, "--processes-per-node", 2, "--threads", 8, *given)
    done = launch(
        tmp_path, WRITE_ENVIRONMENT, *geometry, after=["--x"], PATH=path, SLURM_JOB_ID="61234", ADDRESS=address
    )
    assert done.returncode == 0, done.stderr
    ranks = environments(tmp_path)
    assert [values["RANK"] for values, _ in ranks] == ["0", "1", "2", "3"]
    assert [values["LOCAL_RANK"] for values, _ in ranks] == ["0", "1", "0", "1"]
    for values, arguments in ranks:
        assert values["WORLD_SIZE"] == "4"
        assert values["LOCAL_WORLD_SIZE"] == "2"
        assert (values["MASTER_ADDR"], values["MASTER_PORT"]) == (
            address if address == "10.0.0.7" else socket.gethostname(),
            port,
        )
        assert arguments == ["--x"]


def job_on_two_nodes(tmp_path, starter):
    """The environment of a job with two slots on this node and one on another."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / starter).write_text(f"#!/bin/sh\n{STARTERS[starter]}\n")
    (folder / starter).chmod(0o755)
    hosts = tmp_path / "hosts"
    slots = "127.0.0.1\n127.0.0.1\n127.0.0.2\n"
    # Of Grid Engine: host, slots, queue instance, processors.
    in_queues = "127.0.0.1 2 all.q@127.0.0.1 UNDEFINED\n127.0.0.2 2 all.q@127.0.0.2 UNDEFINED\n"
    hosts.write_text(in_queues if starter == "qrsh" else slots)
    names = {
        "ssh": ("COBALT_JOBID", "COBALT_NODEFILE"),
        "pbsdsh": ("PBS_JOBID", "PBS_NODEFILE"),
        "blaunch": ("LSB_JOBID", "LSB_DJOB_HOSTFILE"),
        "qrsh": ("JOB_ID", "PE_HOSTFILE"),
    }
    values = dict(zip(names[starter], ("7", str(hosts)), strict=True))
    return {**values, "PATH": f"{folder}:{os.environ['PATH']}", "OMP_TEST": "it's"}


@pytest.mark.parametrize("starter", list(STARTERS))
def test_without_slurm_each_node_starts_its_ranks(tmp_path, starter):
    environment = job_on_two_nodes(tmp_path, starter)
    given = ("--nodes", 2, "--processes-per-node", 2, "--options", "--note 'two words'")
    program = f"{WRITE_ENVIRONMENT}\nassert os.environ['OMP_TEST'] == \"it's\""
    done = launch(tmp_path, program, *given, after=["--recipe", '{"a": "it\'s"}'], **environment)
    assert done.returncode == 0, done.stderr
    ranks = environments(tmp_path)
    assert [values["RANK"] for values, _ in ranks] == ["0", "1", "2", "3"]
    assert [values["LOCAL_RANK"] for values, _ in ranks] == ["0", "1", "0", "1"]
    for values, arguments in ranks:
        assert (values["WORLD_SIZE"], values["LOCAL_WORLD_SIZE"], values["MASTER_ADDR"]) == ("4", "2", "127.0.0.1")
        assert values["MASTER_PORT"] == ranks[0][0]["MASTER_PORT"]
        assert arguments == ["--recipe", '{"a": "it\'s"}', "--note", "two words"]
    # It contains the job's token.
    (script,) = tmp_path.glob("logs/*/start-*.sh")
    assert stat.S_IMODE(script.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("variable", "job"),
    [("SLURM_JOB_ID", "slurm 4711"), ("PBS_JOBID", "pbs 4711"), ("JOB_ID", "sge 4711"), ("NO_JOB", None)],
)
def test_a_rank_gets_scheduler_and_number_of_its_job(tmp_path, variable, job):
    program = "import json, os, sys\nprint(json.dumps(os.environ.get('BERTLINE_JOB')), file=sys.stderr)"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/squeue").write_text("#!/bin/sh\n")
    (tmp_path / "bin/squeue").chmod(0o755)
    # That of the job in which this one was submitted is not passed on.
    given = {variable: "4711", "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = launch(tmp_path, program, BERTLINE_JOB="slurm 1", **given)
    assert json.loads(done.stderr.splitlines()[-1]) == job


@pytest.mark.parametrize("starter", list(STARTERS))
def test_a_rank_that_fails_on_another_node_ends_all(tmp_path, starter):
    program = "import os, sys, time\nsys.exit(3) if os.environ['RANK'] == '1' else time.sleep(50)"
    started = time.monotonic()
    done = launch(tmp_path, program, "--nodes", 2, **job_on_two_nodes(tmp_path, starter))
    assert done.returncode == 3
    assert time.monotonic() - started < 30


def test_ranks_have_time_to_stop_when_only_this_node_is_asked_to(tmp_path):
    """As by Cobalt: all of the script's process group, `ssh` among it, but not what that started elsewhere."""
    environment = job_on_two_nodes(tmp_path, "ssh")
    ssh = tmp_path / "bin/ssh"
    ssh.write_text(ssh.read_text().replace("exec", "exec setsid --wait"))
    program = """
import os, pathlib, signal, sys, time
folder, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
(folder / f"started-{rank}").touch()
until = time.monotonic() + 240
while not told and not (folder / "saved-0").exists() and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(1)
(folder / f"saved-{rank}").touch()
sys.exit(75)
"""
    (tmp_path / "trainer.py").write_text(program)
    command = [sys.executable, LAUNCH, "--nodes", "2", "--", tmp_path / "trainer.py", tmp_path]
    launched = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **environment}, start_new_session=True)
    deadline = time.monotonic() + 240
    while len(list(tmp_path.glob("started-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(launched.pid, signal.SIGTERM)
    assert launched.wait(240) == 75
    assert {path.name for path in tmp_path.glob("saved-*")} == {"saved-0", "saved-1"}


def test_a_job_with_too_few_nodes_is_refused(tmp_path):
    done = launch(tmp_path, "", "--nodes", 3, **job_on_two_nodes(tmp_path, "blaunch"))
    assert done.returncode == 1
    assert "error: the job has 2 nodes (127.0.0.1, 127.0.0.2), not 3; see site.yaml" in done.stderr


@pytest.mark.parametrize(("left", "earliest", "latest"), [(60, 48, 50), (2, 0.2, 0.4)])
def test_the_trainer_is_asked_to_stop_before_its_jobs_walltime(tmp_path, left, earliest, latest):
    """A fifth of the minutes left is for steps, however long saving may take."""
    ends = str(time.time() + 60 * left)
    done = launch(tmp_path, WRITE_ENVIRONMENT, "--minutes-to-save", 10, BERTLINE_JOB_ENDS=ends)
    assert done.returncode == 0, done.stderr
    option, minutes = environments(tmp_path)[0][1]
    assert option == "--stop-after-minutes"
    assert earliest < float(minutes) <= latest


@pytest.mark.parametrize("status", [1, 75])
def test_the_status_of_the_first_rank_that_failed_is_passed_on(tmp_path, status):
    program = f"""
import os, sys, time
if os.environ["RANK"] == "1":
    sys.exit({status})
time.sleep(1 if {status} == 75 else 50)
open(sys.argv[1] + "/saved", "w")
"""
    started = time.monotonic()
    done = launch(tmp_path, program, "--processes-per-node", 2)
    assert done.returncode == status
    assert time.monotonic() - started < 30
    # Ranks that were told to stop may finish what they do; one left alone by a failure may not go on.
    assert (tmp_path / "saved").exists() == (status == 75)


@pytest.mark.parametrize(
    ("statuses", "expected", "told"),
    [
        ((69, 70), 70, ""),
        ((69, 69), 69, "error: rank 0 lost the connection to the other ranks: a node or the network failed\n"),
        ((69, -9), 137, f"error: {KILLED}\n"),
        ((69, -7), 135, f"error: {MAPPED}\n"),
        ((69, -11), 139, "error: rank 1 was ended by SIGSEGV\n"),
    ],
)
def test_a_rank_that_only_lost_the_others_does_not_speak_for_them(tmp_path, statuses, expected, told):
    program = f"""
import os, sys, time
status = {statuses}[int(os.environ["RANK"])]
time.sleep(0 if status == 69 else 1)
os.kill(os.getpid(), -status) if status < 0 else sys.exit(status)
"""
    done = launch(tmp_path, program, "--processes-per-node", 2)
    assert (done.returncode, done.stderr) == (expected, told)


def test_a_node_does_not_tell_that_its_ranks_lost_one_on_another(tmp_path):
    program = """
import os, sys, time
if os.environ["RANK"] == "0":
    time.sleep(0.5)
    os.write(2, b"error: mine\\n")
    os._exit(70)
sys.exit(69)
"""
    done = launch(tmp_path, program, "--nodes", 2, **job_on_two_nodes(tmp_path, "ssh"))
    assert done.returncode == 70
    assert done.stderr.splitlines()[-1] == "error: mine"
    assert "lost the connection" not in done.stderr


def start_training(tmp_path, *options, **of_process):
    """Start the launcher with a training; return it and its log when a few steps are done."""
    (tmp_path / "recipe.json").write_text(json.dumps(recipe(steps=100_000)))
    arguments = ["--recipe", tmp_path / "recipe.json", "--output", tmp_path / "phase", "--log-every", "1"]
    arguments += ["--dataset", write_dataset(tmp_path / "dataset"), "--micro-batch-tokens", "64"]
    command = map(str, [sys.executable, LAUNCH, *options, "--", LAUNCH.with_name("pretrain.py"), *arguments])
    log = tmp_path / "log"
    with log.open("w") as file:
        launched = subprocess.Popen(command, stderr=file, **of_process)
    deadline = time.monotonic() + 100
    while "step 3/" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    return launched, log


def test_what_ended_a_rank_is_the_only_error_in_the_log(tmp_path):
    """Not what the others make of it."""
    launched, log = start_training(tmp_path, "--processes-per-node", "2")
    ranks = {rank.environ()["RANK"]: rank for rank in psutil.Process(launched.pid).children()}
    ranks["1"].kill()
    assert launched.wait(240) == 137
    *before, last = log.read_text().splitlines()
    assert last == f"error: {KILLED}"
    assert "step 3/" in "".join(before)
    assert not re.search("error|Traceback", "".join(before), re.IGNORECASE)


def test_three_attempts_without_progress_are_enough(tmp_path):
    """Attempts are counted until a new request of the user, and only since the last durable step."""
    checkpoints = tmp_path / "checkpoints"
    program = "import sys; open(sys.argv[1] + '/ran', 'a').write('x'); sys.exit(1)"

    def attempt(number):
        return launch(tmp_path, program, "--checkpoints", checkpoints, "--attempt", number)

    def runs():
        return len((tmp_path / "ran").read_text())

    assert [attempt(number).returncode for number in (1, 2, 3)] == [1, 1, 1]
    refused = attempt(4)
    assert "error: 3 attempts in a row ended without a step beyond 0" in refused.stderr
    assert (refused.returncode, runs()) == (1, 3)
    log = checkpoints / "training.log"
    log.write_text("error: the loss is nan\n")
    for _ in range(2):  # the reason is the same, however often the refusal itself is in the log
        said = attempt(4).stderr
        assert "the last: error: the loss is nan" in said
        assert said.count("in a row") == 1
        log.write_text(log.read_text() + said)
    (checkpoints / "durable.json").write_text('{"step": 20}')
    attempt(5)
    assert runs() == 4
    assert [attempt(number).returncode for number in (6, 7, 8)] == [1, 1, 1]
    assert runs() == 6
    attempt(1)
    assert runs() == 7


def test_a_requeued_job_counts_as_a_further_attempt(tmp_path):
    """Its command is that of the first one."""
    (tmp_path / "bin").mkdir()
    squeue = squeue_with("4711", "RUNNING", "1:00:00", "1", "/somewhere", OF_EXECUTOR)
    (tmp_path / "bin/squeue").write_text(squeue)
    (tmp_path / "bin/squeue").chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "4711"}
    program = "import sys; open(sys.argv[1] + '/ran', 'a').write('x'); sys.exit(1)"
    given = ("--checkpoints", tmp_path / "checkpoints", "--attempt", 1)
    *_, refused = [launch(tmp_path, program, *given, **environment) for _ in range(4)]
    assert "error: 3 attempts in a row ended without a step beyond 0" in refused.stderr
    assert (tmp_path / "ran").read_text() == "xxx"


def test_further_options_are_split_as_a_shell_does_and_run_nothing(tmp_path):
    done = launch(tmp_path, WRITE_ENVIRONMENT, "--options", "--note 'two words' $(touch x); touch y")
    assert done.returncode == 0, done.stderr
    assert environments(tmp_path)[0][1] == ["--note", "two words", "$(touch", "x);", "touch", "y"]


SAVE_WHEN_TOLD = """
import pathlib, signal, sys
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: sys.exit(75))
pathlib.Path(sys.argv[1], "started").touch()
signal.pause()
"""
OF_EXECUTOR = "rule_pretrain_phase_wildcards_0123"


@pytest.mark.parametrize(
    ("comment", "number", "requeued"),
    [
        (OF_EXECUTOR, None, True),
        (OF_EXECUTOR, signal.SIGTERM, True),
        (OF_EXECUTOR, signal.SIGUSR1, True),
        (OF_EXECUTOR, signal.SIGINT, False),
        ("", None, False),
        ("", signal.SIGINT, False),
    ],
)
def test_only_a_job_of_snakemakes_executor_is_requeued_and_not_after_ctrl_c(tmp_path, comment, number, requeued):
    """A person's own job, of a notebook or a script, has no such comment. Without a signal: the deadline."""
    (tmp_path / "bin").mkdir()
    squeue = squeue_with("4711", "RUNNING", "1:00:00", "0", "/somewhere", comment)
    programs = {"squeue": squeue, "scontrol": f'#!/bin/sh\necho "$*" >> {tmp_path}/requeued\n'}
    for name, content in programs.items():
        (tmp_path / "bin" / name).write_text(content)
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "4711"}
    script = tmp_path / "trainer.py"
    script.write_text(SAVE_WHEN_TOLD if number else "raise SystemExit(75)")
    launched = subprocess.Popen([sys.executable, LAUNCH, "--", script, tmp_path], cwd=tmp_path, env=environment)
    while number and not (tmp_path / "started").exists():
        assert launched.poll() is None
        time.sleep(0.01)
    if number:
        launched.send_signal(number)
    assert launched.wait(240) == 75
    asked = (tmp_path / "requeued").read_text() if (tmp_path / "requeued").exists() else ""
    assert asked == ("requeue 4711\n" if requeued else "")


def test_additional_nodes_without_their_processes_are_refused(tmp_path):
    done = launch(tmp_path, "", "--additional-nodes", "1x2,4")
    assert done.returncode == 1
    assert done.stderr.startswith("error: --additional-nodes: given '1x2,4', allowed are nodes and processes per node")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "give --on-node, --within-srun or --within-mpirun; launch.py starts all ranks of a job"),
        (
            ("--within-mpirun", "127.0.0.1", 20000),
            "OMPI_COMM_WORLD_RANK is not set; only the mpirun of Open MPI sets it",
        ),
    ],
)
def test_the_start_of_ranks_outside_of_a_job_is_one_line(tmp_path, monkeypatch, given, message):
    for name in [name for name in os.environ if name.startswith("OMPI_")]:
        monkeypatch.delenv(name)
    done = launch(tmp_path, "", *given, by=START_RANKS)
    assert (done.returncode, done.stderr) == (1, f"error: {message}\n")


@pytest.mark.parametrize("where", [{"hosts": "localhost"}, {"PBS_NODEFILE": "/dev/null"}], ids=str)
def test_additional_nodes_elsewhere_than_in_a_job_of_slurm_are_one_line(tmp_path, where):
    hosts = ("--hosts", where.pop("hosts")) if "hosts" in where else ()
    done = launch(tmp_path, "", "--additional-nodes", "1x2", *hosts, **where)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: `additional_nodes` needs a job of Slurm")


def test_several_nodes_without_a_slurm_job_are_refused(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    done = launch(tmp_path, "", "--within-srun", by=START_RANKS)
    assert done.returncode == 1
    assert "several nodes need a job of Slurm, PBS, LSF, Cobalt or Grid Engine, or a list of hosts" in done.stderr


@pytest.mark.parametrize("size", [("--nodes", 2), ("--additional-nodes", "1x2")])
def test_several_nodes_outside_a_job_are_one_line_with_advice(tmp_path, monkeypatch, size):
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    done = launch(tmp_path, "", *size)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: this process is in no job; several nodes need a job of Slurm")
    assert "--hosts a,b" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT])
def test_a_signalled_launcher_lets_its_ranks_save(tmp_path, number):
    """Slurm sends SIGUSR1 before the walltime ends, Grid Engine and LSF SIGUSR2, a person Ctrl-C."""
    launched, log = start_training(tmp_path)
    launched.send_signal(number)
    assert launched.wait(240) == 75, log.read_text()
    assert re.search(r"asked to stop: step \d+ is saved", log.read_text())
    assert not (tmp_path / "phase" / paths.LOCK).exists()


def test_ctrl_c_on_a_terminal_saves(tmp_path):
    """A terminal sends SIGINT to the launcher and to its ranks."""
    launched, log = start_training(tmp_path, "--processes-per-node", "2", start_new_session=True)
    os.killpg(launched.pid, signal.SIGINT)
    assert launched.wait(240) == 75, log.read_text()
    assert log.read_text().count("Ctrl-C: saving; press it again to end at once, without saving") == 1
    assert re.search(r"asked to stop: step \d+ is saved", log.read_text())


@pytest.mark.parametrize("nohup", [False, True])
def test_a_training_whose_terminal_is_closed_saves_unless_it_was_started_with_nohup(tmp_path, nohup):
    """The terminal sends SIGHUP to the launcher and to its ranks."""
    # Not what these tests were started with.
    handled = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    size = ["--processes-per-node", "2"]
    launched, log = start_training(tmp_path, *size, start_new_session=True, preexec_fn=handled)
    os.killpg(launched.pid, signal.SIGHUP)
    if nohup:
        with pytest.raises(subprocess.TimeoutExpired):
            launched.wait(2)
        os.killpg(launched.pid, signal.SIGTERM)
    assert launched.wait(240) == 75, log.read_text()
    assert re.search(r"asked to stop: step \d+ is saved", log.read_text())


def test_ctrl_c_that_also_ends_the_reader_of_the_output_saves(tmp_path):
    """As in `launch.py ... 2>&1 | tee log`."""
    program = """
import os, pathlib, sys, time
from bertline.training.stop import StopSignal
stop_signal = StopSignal()
pathlib.Path(sys.argv[1], "here").touch()
while not stop_signal.received:
    time.sleep(0.05)
time.sleep(0.5)
pathlib.Path(sys.argv[1], "saved").touch()
raise SystemExit(75)
"""
    (tmp_path / "trainer.py").write_text(program)
    for name, command in (("launched", [LAUNCH, "--processes-per-node", "1", "--"]), ("alone", [])):
        folder = tmp_path / name
        folder.mkdir()
        arguments = [sys.executable, *map(str, command), str(tmp_path / "trainer.py"), str(folder)]
        reader, writer = os.pipe()
        with subprocess.Popen(arguments, start_new_session=True, stderr=writer, stdout=writer) as started:
            os.close(writer)
            deadline = time.monotonic() + 240
            while not (folder / "here").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            os.close(reader)
            os.killpg(started.pid, signal.SIGINT)
            assert started.wait(240) == 75
        assert (folder / "saved").exists()


def test_a_second_ctrl_c_ends_a_launcher_at_once(tmp_path):
    program = """
import os, pathlib, sys, time
from bertline.training.stop import StopSignal
stop_signal = StopSignal()
pathlib.Path(sys.argv[1], os.environ["RANK"]).touch()
while not stop_signal.received:
    time.sleep(0.05)
pathlib.Path(sys.argv[1], os.environ["RANK"] + "-told").touch()
time.sleep(500)  # as if it saved for long
"""
    (tmp_path / "trainer.py").write_text(program)
    command = [sys.executable, LAUNCH, "--processes-per-node", "2", "--", tmp_path / "trainer.py", tmp_path]
    for signal_group in (True, False):
        launched = subprocess.Popen([*map(str, command)], start_new_session=True, stderr=subprocess.PIPE, text=True)
        send = os.killpg if signal_group else os.kill
        for expected in ("[01]", "[01]-told"):
            deadline = time.monotonic() + 240
            while len(list(tmp_path.glob(expected))) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert launched.poll() is None
            send(launched.pid, signal.SIGINT)
        _, said = launched.communicate(timeout=240)
        assert (launched.returncode, said) == (130, "Ctrl-C: saving; press it again to end at once, without saving\n")
        for path in tmp_path.glob("[01]*"):
            path.unlink()


mpi = pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI (Debian: apt install openmpi-bin)")
# mpirun refuses root, and more processes than cores, unless told otherwise.
ALLOWED = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


@mpi
@pytest.mark.parametrize("count", [2, 4])
def test_mpirun_starts_the_ranks_on_a_list_of_hosts(tmp_path, count):
    geometry = ("--hosts", f"localhost:{count}", "--launcher", "mpirun")
    done = launch(tmp_path, WRITE_ENVIRONMENT, *geometry, after=["--note", "two words; touch x"], **ALLOWED)
    assert done.returncode == 0, done.stderr
    ranks = environments(tmp_path)
    assert sorted(values["LOCAL_RANK"] for values, _ in ranks) == [str(rank) for rank in range(count)]
    for rank, (values, arguments) in enumerate(ranks):
        assert values["RANK"] == str(rank)
        assert (values["WORLD_SIZE"], values["MASTER_ADDR"]) == (str(count), "127.0.0.1")
        assert values["MASTER_PORT"] == ranks[0][0]["MASTER_PORT"]
        assert arguments == ["--note", "two words; touch x"]
    assert f"ranks 0 to {count - 1} of {count} on " in done.stderr
    assert not list(tmp_path.glob(".mpirun-*"))


@mpi
def test_the_exit_status_of_a_rank_passes_through_mpirun_and_a_stop_lets_the_ranks_save(tmp_path):
    hosts = ("--hosts", "localhost", "--launcher", "mpirun", "--processes-per-node", "2")
    done = launch(tmp_path, "import sys; sys.exit(75)", *hosts, **ALLOWED)
    assert done.returncode == 75, done.stderr
    program = """
import os, signal, sys, time
from pathlib import Path
def save(number, frame):
    Path(sys.argv[1], f"{os.environ['RANK']}.saved").touch()
    sys.exit(75)
signal.signal(signal.SIGUSR1, save)
Path(sys.argv[1], f"{os.environ['RANK']}.started").touch()
while True:
    signal.pause()
"""
    script = tmp_path / "trainer.py"
    script.write_text(program)
    command = [sys.executable, LAUNCH, *hosts, "--", script, tmp_path]
    for number in (signal.SIGTERM, signal.SIGINT):
        environment = {**os.environ, **ALLOWED}
        process = subprocess.Popen([*map(str, command)], cwd=tmp_path, env=environment, start_new_session=True)
        while len(list(tmp_path.glob("*.started"))) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        if number == signal.SIGTERM:
            process.send_signal(number)
        else:
            os.killpg(process.pid, number)  # as a terminal does
        assert process.wait(240) == 75, number
        assert sorted(path.name for path in tmp_path.glob("*.saved")) == ["0.saved", "1.saved"]
        for path in tmp_path.glob("*.s*ed"):
            path.unlink()


@pytest.mark.parametrize(
    "hosts", ["a,b;touch x", "-oProxyCommand=x", "a,,b", "a,a:2", "a:0", "a b", "u@a", "localhost,b"]
)
def test_invalid_host_names_are_refused(tmp_path, hosts):
    done = launch(tmp_path, "", f"--hosts={hosts}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: --hosts: ")


@pytest.mark.skipif(shutil.which("numactl") is None, reason="needs numactl (Debian: apt install numactl)")
def test_ranks_are_bound_to_cores_of_their_own(tmp_path):
    program = """
import os, sys
open(f"{sys.argv[1]}/{os.environ['RANK']}.cpus", "w").write(str(sorted(os.sched_getaffinity(0))))
"""
    count = len(os.sched_getaffinity(0))
    done = launch(tmp_path, program, "--processes-per-node", count, "--bind", "socket")
    assert done.returncode == 0, done.stderr
    found = [(tmp_path / f"{rank}.cpus").read_text() for rank in range(count)]
    assert found == [f"[{cpu}]" for cpu in sorted(os.sched_getaffinity(0))]


@pytest.mark.parametrize("minutes", ["-5.0", "nan"])
def test_a_time_to_save_that_is_none_is_refused(minutes, tmp_path):
    command = [sys.executable, LAUNCH, f"--minutes-to-save={minutes}", "--", LAUNCH]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f'error: Invalid value "{minutes}" for --minutes-to-save. Must be >= 0. See --help.\n'


def test_a_list_of_hosts_without_the_number_of_the_job_is_one_line(tmp_path):
    """PBS sets both."""
    command = [sys.executable, LAUNCH, "--nodes", "2", "--", LAUNCH]
    environment = {name: value for name, value in os.environ.items() if name != "PBS_JOBID"}
    (tmp_path / "hosts").write_text("a\nb\n")
    environment["PBS_NODEFILE"] = str(tmp_path / "hosts")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: PBS_NODEFILE is set, but not PBS_JOBID; start this in a job of pbs\n"
