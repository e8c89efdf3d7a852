"""Trainings started by hand: by torchrun, by mpirun, and on a list of hosts over a real sshd on loopback addresses."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from finetuning_helpers import recipe_for, write_cola
from finetuning_helpers import write_tokenizer as write_finetuning_tokenizer
from synthetic_dataset import recipe, write_dataset
from test_cluster_launch import ALLOWED, LAUNCH, WRITE_ENVIRONMENT, environments, mpi
from training_processes import free_port

pytestmark = pytest.mark.slow

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
HOSTS = ("127.0.0.1", "127.0.0.2")
SSHD_CONFIG = """\
Port {port}
ListenAddress {first}
ListenAddress {second}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""
SSH_CONFIG = """\
Port {port}
User {user}
IdentityFile {folder}/key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
"""


@pytest.fixture(scope="module")
def path_with_ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PATH on which ssh reaches HOSTS without a password."""
    if SSHD is None:
        pytest.skip("needs sshd (Debian: apt install openssh-server)")
    folder = tmp_path_factory.mktemp("ssh")
    given = {"port": free_port(), "folder": folder, "user": getpass.getuser(), "first": HOSTS[0], "second": HOSTS[1]}
    for name in ("host_key", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"[{host}]:{given['port']} {public}" for host in HOSTS))
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(**given))
    (folder / "ssh_config").write_text(SSH_CONFIG.format(**given))
    (folder / "bin").mkdir()
    wrapper = folder / "bin/ssh"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it locks itself in
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)
    try:
        wait_until(lambda: "listening on 127.0.0.2" in (folder / "log").read_text() or daemon.poll() is not None)
        assert daemon.poll() is None, (folder / "log").read_text()
        yield f"{folder}/bin:{os.environ['PATH']}"
    finally:
        daemon.kill()
        daemon.wait()


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start(tmp_path: Path, path: str, program: str, hosts: str = ",".join(HOSTS)) -> subprocess.Popen[str]:
    """Start `program` in a rank on each host, in its own process group, as a shell does."""
    (tmp_path / "trainer.py").write_text(program)
    command = [sys.executable, LAUNCH, "--hosts", hosts, "--", "trainer.py", tmp_path]
    return subprocess.Popen(
        [*map(str, command)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "OMP_TEST": "it's", "HF_TOKEN": "hidden"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes_of(tmp_path: Path) -> list[psutil.Process]:
    """Those that work for a test, on whatever host."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(tmp_path) in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_list_of_hosts_gets_ranks_over_ssh_and_no_secret_is_in_a_command(tmp_path: Path, path_with_ssh: str) -> None:
    program = f"""{WRITE_ENVIRONMENT}
import psutil
assert os.environ["OMP_TEST"] == "it's" and "HF_TOKEN" not in os.environ
token = os.environ["BERTLINE_JOB_TOKEN"]
commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
assert len(token) == 32 and not any(token in word for command in commands for word in command)
"""
    started = start(tmp_path, path_with_ssh, program, hosts="127.0.0.1:1,127.0.0.2:2")
    _, said = started.communicate(timeout=240)
    assert started.returncode == 0, said
    assert said == "ranks 0 to 0 of 3 on 127.0.0.1\nranks 1 to 2 of 3 on 127.0.0.2\n"
    ranks = [values for values, _ in environments(tmp_path)]
    assert [(one["RANK"], one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"]) for one in ranks] == [
        ("0", "0", "1"),
        ("1", "0", "2"),
        ("2", "1", "2"),
    ]
    assert {(one["WORLD_SIZE"], one["MASTER_ADDR"]) for one in ranks} == {("3", "127.0.0.1")}
    assert len({one["MASTER_PORT"] for one in ranks}) == 1


def test_a_port_that_a_firewall_leaves_open_can_be_given(tmp_path: Path, path_with_ssh: str) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(WRITE_ENVIRONMENT)
    command = [sys.executable, LAUNCH, "--hosts", "127.0.0.1", "--port", "23456", "--", script, tmp_path]
    subprocess.run([*map(str, command)], env={**os.environ, "PATH": path_with_ssh}, timeout=240, check=True)
    assert environments(tmp_path)[0][0]["MASTER_PORT"] == "23456"


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.0.3", "Connection refused"), ("nohost.invalid", "Could not resolve hostname")]
)
def test_a_host_that_does_not_answer_is_one_line(tmp_path: Path, path_with_ssh: str, host: str, reason: str) -> None:
    started = start(tmp_path, path_with_ssh, "", hosts=host)
    _, said = started.communicate(timeout=240)
    assert started.returncode == 1
    (line,) = said.splitlines()
    assert line.startswith(f"error: --hosts: {host}: ssh: ")
    assert reason in line
    assert f"needed are ssh without a password (`ssh -o BatchMode=yes {host} true`)" in line


def test_a_rank_that_fails_on_a_host_ends_all(tmp_path: Path, path_with_ssh: str) -> None:
    program = "import os, sys, time\nsys.exit(3) if os.environ['RANK'] == '1' else time.sleep(500)"
    started = start(tmp_path, path_with_ssh, program)
    assert started.wait(240) == 3
    wait_until(lambda: not processes_of(tmp_path))


# On SIGTERM or SIGUSR1 a rank saves, as a trainer does.
SAVING = """
import os, pathlib, signal, sys, time
folder, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
def save(*_):
    (folder / f"saved-{rank}").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGUSR1, save)
(folder / f"started-{rank}").touch()
time.sleep(500)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
@pytest.mark.parametrize("whom", ["launcher", "all of the terminal"])
def test_ranks_on_hosts_that_are_asked_to_stop_save(tmp_path: Path, path_with_ssh: str, number: int, whom: str) -> None:
    started = start(tmp_path, path_with_ssh, SAVING)
    wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
    (os.kill if whom == "launcher" else os.killpg)(started.pid, number)
    assert started.wait(240) == 75
    assert {path.name for path in tmp_path.glob("saved-*")} == {"saved-0", "saved-1"}
    wait_until(lambda: not processes_of(tmp_path))


def test_a_second_ctrl_c_ends_ranks_on_hosts_at_once(tmp_path: Path, path_with_ssh: str) -> None:
    started = start(tmp_path, path_with_ssh, SAVING.replace("save)", 'lambda *_: (folder / f"told-{rank}").touch())'))
    wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
    os.killpg(started.pid, signal.SIGINT)
    wait_until(lambda: len(list(tmp_path.glob("told-*"))) == 2)
    os.killpg(started.pid, signal.SIGINT)
    assert started.wait(240) == 130
    wait_until(lambda: not processes_of(tmp_path), seconds=120)


@pytest.mark.parametrize("broken", ["launcher", "connection"])
def test_no_process_stays_on_a_host_whose_connection_breaks(tmp_path: Path, path_with_ssh: str, broken: str) -> None:
    started = start(tmp_path, path_with_ssh, SAVING)
    wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
    if broken == "launcher":
        started.kill()
    else:
        (to_second,) = (one for one in psutil.Process(started.pid).children() if HOSTS[1] in one.cmdline())
        to_second.kill()
    assert started.wait(240) != 0
    wait_until(lambda: not processes_of(tmp_path))
    if broken == "launcher":
        assert len(list(tmp_path.glob("saved-*"))) == 2


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, a dataset, and the weights that `launch.py` makes of them with two ranks."""
    folder = tmp_path_factory.mktemp("pretraining")
    (folder / "recipe.json").write_text(json.dumps(recipe(steps=6)))
    write_dataset(folder / "dataset")
    command = [sys.executable, LAUNCH, "--processes-per-node", "2", "--", *pretrain(folder, "launched")]
    subprocess.run([*map(str, command)], check=True, capture_output=True, timeout=120)
    return folder


def pretrain(folder: Path, output: str) -> list[str]:
    given = ["--recipe", folder / "recipe.json", "--dataset", folder / "dataset/dataset.json"]
    given += ["--output", folder / output, "--micro-batch-tokens", "64", "--threads", "1"]
    return [*map(str, [LAUNCH.with_name("pretrain.py"), *given])]


def weights(folder: Path, output: str) -> bytes:
    return (folder / output / "model.safetensors").read_bytes()


def torchrun(nodes: int, rendezvous: list[str], script: list[str]) -> None:
    """Run torchrun once for each of `nodes`, all of them on this machine, each with two ranks in all."""
    size = ["--nnodes", str(nodes), "--nproc-per-node", str(2 // nodes)]
    command = [sys.executable, "-m", "torch.distributed.run", *size, *rendezvous]
    agents = [
        subprocess.Popen(
            [*command, "--node-rank", str(node), *script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for node in range(nodes)
    ]
    said = [agent.communicate(timeout=120)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0] * nodes, "\n".join(said)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("rendezvous", ["static", "c10d"])
def test_torchrun_by_hand_gives_the_same_weights_to_the_bit(pretraining: Path, rendezvous: str, nodes: int) -> None:
    port = free_port()
    ways = {
        "static": ["--master-addr", "127.0.0.1", "--master-port", str(port)],
        "c10d": ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "mine"],
    }
    output = f"{rendezvous}-{nodes}"
    torchrun(nodes, ways[rendezvous], pretrain(pretraining, output))
    assert weights(pretraining, output) == weights(pretraining, "launched")


def test_hosts_over_ssh_give_the_same_weights_to_the_bit(pretraining: Path, path_with_ssh: str) -> None:
    command = [sys.executable, LAUNCH, "--hosts", ",".join(HOSTS), "--", *pretrain(pretraining, "ssh")]
    subprocess.run([*map(str, command)], env={**os.environ, "PATH": path_with_ssh}, timeout=120, check=True)
    assert weights(pretraining, "ssh") == weights(pretraining, "launched")


@mpi
@pytest.mark.parametrize("way", ["by mpirun", "within mpirun"])
def test_mpirun_gives_the_same_weights_to_the_bit(pretraining: Path, way: str) -> None:
    script = ["--", *pretrain(pretraining, way)]
    by_launcher = [sys.executable, LAUNCH, "--hosts", "localhost:2", "--launcher", "mpirun", *script]
    by_hand = ["mpirun", "-n", "2", "--bind-to", "none", sys.executable, LAUNCH.with_name("start_ranks.py")]
    by_hand += ["--within-mpirun", "127.0.0.1", free_port(), *script]
    command = [*map(str, by_launcher if way == "by mpirun" else by_hand)]
    subprocess.run(command, env={**os.environ, **ALLOWED}, timeout=120, check=True)
    assert weights(pretraining, way) == weights(pretraining, "launched")


def test_a_fine_tuning_by_torchrun_gives_the_same_weights_to_the_bit(tmp_path: Path) -> None:
    tokenizer = write_finetuning_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "recipe.json").write_text(json.dumps(recipe_for("cola", write_cola(tmp_path / "data.tsv"), epochs=1)))
    given = ["--recipe", tmp_path / "recipe.json", "--tokenizer", tokenizer, "--threads", "1"]
    script = [*map(str, [LAUNCH.with_name("finetune.py"), *given, "--output"])]
    command = [sys.executable, str(LAUNCH), "--processes-per-node", "2", "--", *script, str(tmp_path / "launched")]
    subprocess.run(command, check=True, timeout=120)
    rendezvous = ["--master-addr", socket.gethostbyname("localhost"), "--master-port", str(free_port())]
    torchrun(2, rendezvous, [*script, str(tmp_path / "torchrun")])
    launched, by_hand = (
        (tmp_path / output / "huggingface/model.safetensors").read_bytes() for output in ("launched", "torchrun")
    )
    assert by_hand == launched
