"""What a locked folder's message says: whether a snakemake runs in it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bertline.cluster.unlock import explain_lock, unlock
from bertline.console import BertlineError


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
        assert explain_lock().endswith("or clear the lock of the second by `make unlock`")
        running.kill()


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
