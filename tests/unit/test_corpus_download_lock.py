"""Two processes that want the same file; threads stand in for them, because a lock belongs to an opened file."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dump_server import serve

from bertline.corpus import download_lock
from bertline.corpus.download import download, download_file
from bertline.corpus.download_lock import lock_of
from bertline.corpus.expected_file import Expected

CONTENT = b"content" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def is_waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as somebody waits for a lock."""
    event, sleep = threading.Event(), time.sleep

    def wait(seconds: float) -> None:
        assert seconds == download_lock.RETRY_SECONDS
        event.set()
        sleep(0.01)

    monkeypatch.setattr(download_lock.time, "sleep", wait)
    return event


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "source").write_bytes(CONTENT)
    return tmp_path / "folder/output"


def made_by_another(output: Path, content: bytes | None, is_waiting: threading.Event, want: Callable[[], None]) -> None:
    """Hold the lock of `output` until `want` waits for it, and write `content`."""
    with ThreadPoolExecutor(1) as pool:
        with lock_of(output):
            wanted = pool.submit(want)
            assert is_waiting.wait(60)
            assert not output.with_name("output.part").exists()
            if content is not None:
                output.with_name("other").write_bytes(content)
                output.with_name("other").replace(output)
        wanted.result(60)
    assert [path.name for path in output.parent.iterdir()] == ["output"]


@pytest.mark.parametrize("sha256", [SHA256, None])
@pytest.mark.parametrize("old", [None, b"of an earlier run"])
def test_who_waits_takes_the_result_of_the_other(
    output: Path, is_waiting: threading.Event, caplog: pytest.LogCaptureFixture, sha256: str | None, old: bytes | None
) -> None:
    caplog.set_level("INFO")
    output.parent.mkdir()
    if old:
        output.write_bytes(old)
    made_by_another(output, CONTENT, is_waiting, partial(download, ["/absent"], output, Expected(sha256=sha256)))
    assert output.read_bytes() == CONTENT
    assert caplog.messages == ["output: another process is downloading it; waiting until it is done"]


@pytest.mark.parametrize("theirs", [None, b"something else"])
def test_what_another_did_not_make_is_downloaded(
    output: Path, tmp_path: Path, is_waiting: threading.Event, theirs: bytes | None
) -> None:
    want = partial(download, [str(tmp_path / "source")], output, Expected(sha256=SHA256))
    made_by_another(output, theirs, is_waiting, want)
    assert output.read_bytes() == CONTENT


def test_a_file_of_an_archive_is_unpacked_once(output: Path, is_waiting: threading.Event) -> None:
    made_by_another(output, CONTENT, is_waiting, partial(download_file, "/absent", output, member="a"))
    assert output.read_bytes() == CONTENT


def test_many_who_want_a_file_ask_for_it_once(
    output: Path, is_waiting: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with serve() as server, ThreadPoolExecutor(8) as pool:
        server.files["/file"] = CONTENT
        with lock_of(output):
            wanted = [pool.submit(download, [server.url("/file")], output, Expected()) for _ in range(8)]
            while len(caplog.messages) < 8:
                assert is_waiting.wait(60)
        for each in wanted:
            each.result(60)
        assert len(server.requests) == 1
    assert output.read_bytes() == CONTENT
    assert [path.name for path in output.parent.iterdir()] == ["output"]


def test_the_lock_of_a_killed_process_holds_nobody_up(output: Path) -> None:
    code = f"""
from pathlib import Path
from bertline.corpus.download_lock import lock_of
with lock_of(Path({str(output)!r})):
    print("held", flush=True)
    input()
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert [path.name for path in output.parent.iterdir()] == [".output.lock"]
        with output.with_name(".output.lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.kill()
    with lock_of(output) as is_made:
        assert not is_made
    assert list(output.parent.iterdir()) == []


def test_a_file_system_without_locks_is_no_error(output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    download([str(tmp_path / "source")], output, Expected())
    assert [path.name for path in output.parent.iterdir()] == ["output"]


def test_a_lock_that_is_removed_before_it_is_taken_is_made_anew(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, flock, seen = output.with_name(".output.lock"), fcntl.flock, []

    def removed_at_first(descriptor: int, how: int) -> None:
        if not seen:
            lock.unlink()
        seen.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removed_at_first)
    with lock_of(output):
        assert lock.exists()
        assert len(seen) == 2
