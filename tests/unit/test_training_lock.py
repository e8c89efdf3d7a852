"""One trainer at a time on a phase."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest
import torch

from bertline.console import BertlineError
from bertline.training import lock as lock_module
from bertline.training.distributed.process_group import Group
from bertline.training.lock import TrainingLock, acquire
from bertline.training.stop import StopSignal


def forge(directory, **changes):
    path = directory / "lock.json"
    owner = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**owner, **changes}))
    return path


def test_a_second_trainer_gets_the_owner_of_the_lock_until_the_first_is_done(tmp_path, monkeypatch):
    monkeypatch.setenv("BERTLINE_JOB", "slurm 77")
    first, second = TrainingLock(tmp_path), TrainingLock(tmp_path)
    assert first.try_acquire() is None
    assert second.try_acquire() == f"process {os.getpid()} on {socket.gethostname()}, job slurm 77"
    first.release()
    assert second.try_acquire() is None
    second.check()
    second.release()
    assert not (tmp_path / "lock.json").exists()


def test_a_trainer_that_waits_ends_when_it_is_asked_to_stop(tmp_path):
    first, waiting = TrainingLock(tmp_path), TrainingLock(tmp_path)
    assert first.try_acquire() is None
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        stop_signal = StopSignal()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            acquire(waiting, Group(0, 1, torch.device("cpu")), wait=True, stop_signal=stop_signal)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert ended.value.code == 75
    first.check()


def test_who_lost_the_lock_does_not_keep_that_of_another_alive(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "HEARTBEAT_SECONDS", 0.01)
    before = set(threading.enumerate())
    lock = TrainingLock(tmp_path)
    assert lock.try_acquire() is None
    [heart] = set(threading.enumerate()) - before
    path = forge(tmp_path, token="another's")  # noqa: S106
    os.utime(path, (1.0, 1.0))
    heart.join(240)
    ended = not heart.is_alive()
    lock.release()
    assert ended
    assert path.exists()


def test_a_dead_owner_on_this_host_is_taken_over_at_once(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert TrainingLock(tmp_path).try_acquire() is None
    forge(tmp_path, pid=ended.pid)
    assert TrainingLock(tmp_path).try_acquire() is None


def test_a_living_owner_keeps_the_lock_when_the_clock_is_set(tmp_path, monkeypatch):
    """By which the times of psutil, since 1970, move: Linux counts from the boot."""
    assert TrainingLock(tmp_path).try_acquire() is None
    created = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: created(process) + 3600)
    assert TrainingLock(tmp_path).try_acquire() == f"process {os.getpid()} on {socket.gethostname()}"


def test_a_process_number_used_again_does_not_keep_the_lock(tmp_path):
    assert TrainingLock(tmp_path).try_acquire() is None
    boot = json.loads((tmp_path / "lock.json").read_text())["process_started"].split()[0]
    forge(tmp_path, process_started=f"{boot} 1")
    assert TrainingLock(tmp_path).try_acquire() is None


@pytest.mark.parametrize("change", ["boot", "no namespace"])
def test_a_machine_of_the_same_name_keeps_the_lock_while_its_heart_beats(tmp_path, monkeypatch, change):
    """Its processes cannot be looked up here; nor can those of a lock without their namespace."""
    clock = [1000.0]
    monkeypatch.setattr(lock_module.time, "monotonic", lambda: clock[0])
    assert TrainingLock(tmp_path).try_acquire() is None
    path = tmp_path / "lock.json"
    owner = {**json.loads(path.read_text()), "pid": 2**22 + 1}
    if change == "boot":
        owner["process_started"] = "0f1e2d3c-another-boot 1"
    else:
        del owner["pids_of"]
    path.write_text(json.dumps(owner))
    waiting = TrainingLock(tmp_path)
    assert "process 4194305 on" in waiting.try_acquire()
    clock[0] += lock_module.STALE_SECONDS
    assert waiting.try_acquire() is None


def test_a_process_of_another_user_that_proc_hides_keeps_the_lock(tmp_path, monkeypatch):
    """Mounted with hidepid=2, /proc has only one's own processes; a signal to another's is not permitted."""
    assert TrainingLock(tmp_path).try_acquire() is None

    def refuse(pid, number):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    forge(tmp_path, pid=2**22 + 1)  # above the highest number of Linux
    monkeypatch.setattr(os, "kill", refuse)
    assert "process 4194305 on" in TrainingLock(tmp_path).try_acquire()


def test_the_lock_of_an_owner_on_another_host_is_taken_over_when_its_heartbeat_stops(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(lock_module.time, "monotonic", lambda: clock[0])
    assert TrainingLock(tmp_path).try_acquire() is None
    path = forge(tmp_path, host="elsewhere", pid=1)
    waiting = TrainingLock(tmp_path)
    for beat in range(5):  # however long it lives, an owner that beats keeps the lock
        os.utime(path, (beat, beat))
        assert "elsewhere" in waiting.try_acquire()
        clock[0] += 0.8 * lock_module.STALE_SECONDS
    clock[0] += 0.3 * lock_module.STALE_SECONDS
    assert waiting.try_acquire() is None


def test_a_trainer_that_was_taken_over_finds_out(tmp_path):
    first = TrainingLock(tmp_path)
    assert first.try_acquire() is None
    forge(tmp_path, token="another")  # noqa: S106
    with pytest.raises(BertlineError, match="belongs to another trainer"):
        first.check()
    first.release()
    assert (tmp_path / "lock.json").exists()


def test_a_trainer_whose_lock_is_gone_says_so_and_ends_without_another(tmp_path):
    lock = TrainingLock(tmp_path)
    assert lock.try_acquire() is None
    path = tmp_path / "lock.json"
    path.unlink()
    with pytest.raises(BertlineError) as caught:
        lock.check()
    assert str(caught.value) == (
        f"{path} names no trainer any more: it was deleted or damaged, or another trainer took it over and is done; "
        "run the same command again"
    )
    lock.release()
    assert not path.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"host": "elsewhere"}'])
def test_a_damaged_lock_is_taken_over_when_its_heartbeat_stops(tmp_path, monkeypatch, content):
    """A power failure may empty it, while the owner on another host lives or not."""
    clock = [1000.0]
    monkeypatch.setattr(lock_module.time, "monotonic", lambda: clock[0])
    first, waiting = TrainingLock(tmp_path), TrainingLock(tmp_path)
    assert first.try_acquire() is None
    path = tmp_path / "lock.json"
    path.write_text(content)
    with pytest.raises(BertlineError, match=rf"{path} names no trainer any more: .*; run the same command again"):
        first.check()
    assert waiting.try_acquire() == "an unknown process"
    assert lock_module.owner_of(path) == "an unknown process"
    clock[0] += lock_module.STALE_SECONDS
    assert waiting.try_acquire() is None
    waiting.check()
    waiting.release()


def test_the_heart_beats_also_after_errors_of_a_file_server(tmp_path, monkeypatch):
    monkeypatch.setattr(lock_module, "HEARTBEAT_SECONDS", 0.01)
    lock = TrainingLock(tmp_path)
    assert lock.try_acquire() is None
    path = tmp_path / "lock.json"
    errors, utime = iter([OSError(errno.ESTALE, "Stale file handle"), OSError(errno.EIO, "I/O error")]), os.utime

    def sometimes_fail(*arguments):
        if (error := next(errors, None)) is not None:
            raise error
        utime(*arguments)

    monkeypatch.setattr(lock_module, "os", SimpleNamespace(**{**vars(os), "utime": sometimes_fail}))
    os.utime(path, (1, 1))
    for _ in range(500):
        if path.stat().st_mtime > 1:
            break
        lock_module.time.sleep(0.01)
    assert path.stat().st_mtime > 1
    lock.release()


def test_a_container_with_the_name_of_this_host_does_not_take_over_a_living_owner(tmp_path):
    """It has the host's name and not its process numbers, as with `docker run --network host`."""
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no PID namespaces here")
    lock = TrainingLock(tmp_path)
    assert lock.try_acquire() is None
    program = (
        "import sys; from pathlib import Path; from bertline.training.lock import TrainingLock; "
        "print(TrainingLock(Path(sys.argv[1])).try_acquire())"
    )
    command = [*unshare, sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"process {os.getpid()} on {socket.gethostname()}\n"
    lock.check()
