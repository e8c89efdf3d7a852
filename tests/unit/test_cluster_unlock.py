"""What a locked folder's message says: whether a snakemake runs in it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bertline.cluster.unlock import explain_lock, unlock
from bertline.console import BertlineError
from bertline.files import CHECKOUT


def test_a_running_snakemake_is_named_and_one_that_was_killed_is_unlocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("snakemake").write_text("import sys; print('started', flush=True); sys.stdin.read()")
    command, pipe = [sys.executable, "snakemake", "--cores", "1"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as running:
        assert running.stdout is not None
        running.stdout.readline()
        expected = f"snakemake already runs in this folder, as process {running.pid}; wait for it, or stop it first"
        assert explain_lock() == expected
        with pytest.raises(BertlineError, match=f"snakemake runs here as process {running.pid};"):
            unlock(["small.yaml"])
        running.kill()
    Path("workflow/scripts").mkdir(parents=True)
    Path("workflow/scripts/unlock.py").touch()  # as in a checkout
    assert explain_lock().endswith("or clear the lock of the second by `make unlock`")


def test_the_lock_of_another_user_whose_processes_are_hidden_is_not_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lock = Path(".snakemake/locks/0.output.lock")
    lock.parent.mkdir(parents=True)
    lock.touch()
    monkeypatch.setattr("os.getuid", lambda: lock.stat().st_uid + 1)
    with pytest.raises(
        BertlineError, match=rf"^{lock.owner()} has locked this folder, whose processes you may not see"
    ):
        unlock(["small.yaml"])
    assert explain_lock().startswith(f"{lock.owner()} has locked this folder")
    if lock.stat().st_uid == 0:  # only root can give a file away
        os.chown(lock, 54321, -1)
        assert explain_lock().startswith("user 54321 has locked this folder")


def test_a_job_that_slurm_still_runs_does_not_keep_the_folder_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snakemake starts the jobs of a cluster with --nolock."""
    monkeypatch.chdir(tmp_path)
    Path("snakemake").write_text("import sys; print('started', flush=True); sys.stdin.read()")
    command, pipe = [sys.executable, "snakemake", "--nolock"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert "or clear the lock of the second by " in explain_lock()
        running.kill()


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ([sys.executable, "-X", "dev", "-W", "ignore", "-m", "snakemake", "--cores", "1"], True),
        (["tail", "-f", "snakemake"], False),
        (["tail", "-f", "snakemake.py"], False),
    ],
)
def test_a_snakemake_is_known_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], is_one: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import sys; print('started', flush=True); sys.stdin.read()\n"
    for name in ("snakemake", "snakemake.py"):
        Path(name).write_text(text)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert (f"as process {running.pid};" in explain_lock()) is is_one
        running.kill()


@pytest.mark.parametrize(
    ("program", "is_one"),
    [
        ("/Python.framework/Versions/3.12/Resources/Python.app/Contents/MacOS/Python", True),
        ("/usr/bin/pypy3", True),
        ("/usr/bin/snakemake", True),
        ("/usr/bin/bash", False),
    ],
)
def test_a_snakemake_runs_in_any_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, is_one: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    command, pipe = [program, "-c", "echo started; read -r line", "snakemake"], subprocess.PIPE
    with subprocess.Popen(command, executable="/bin/sh", stdin=pipe, stdout=pipe) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert (f"as process {running.pid};" in explain_lock()) is is_one
        running.kill()


@pytest.mark.parametrize("has_snakefile", [False, True])
def test_a_folder_elsewhere_is_unlocked_by_its_own_snakefile_or_by_that_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_snakefile: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    if has_snakefile:
        Path("Snakefile").write_text("assert config == {'of': 'a module'}")
        Path("small.yaml").write_text("of: a module")
    else:
        shutil.copy(CHECKOUT / "config/demo.yaml", "small.yaml")
    lock = Path(".snakemake/locks/0.output.lock")
    lock.parent.mkdir(parents=True)
    lock.touch()
    with pytest.raises(SystemExit, match=r"^0$"):
        unlock(["small.yaml"])
    assert not lock.exists()


def test_the_message_in_a_folder_elsewhere_has_a_command_that_works_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = explain_lock().rsplit("`", 2)[1]
    shell = ["bash", "-c", command.replace("--configfile CONFIG", "--help")]
    assert "Clear the lock" in subprocess.run(shell, check=True, capture_output=True, text=True).stdout


def test_what_was_checked_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        unlock(["absent.yaml"])
    host = socket.gethostname()
    assert capfd.readouterr().out.startswith(
        f"no snakemake of this folder runs on {host}; other machines are not checked\n"
    )


def test_a_configuration_that_is_absent_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        unlock(["absent.yaml"])
    assert caught.value.code != 0
