"""`make ui` reports the end of what keeps MLflow up to date; tests/services runs it as a whole."""

from __future__ import annotations

import errno
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from synthetic_runs import write_run

from bertline.console import BertlineError
from bertline.tracking import store, ui


def after(seconds: float, status: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", f"import sys, time; time.sleep({seconds}); sys.exit({status})"])


@pytest.mark.parametrize(("of_follower", "lines"), [(0.0, 1), (30.0, 0)])
def test_the_end_of_the_follower_is_one_line_and_the_server_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, of_follower: float, lines: int
) -> None:
    monkeypatch.setattr(ui, "SECONDS_BETWEEN_LOOKS", 0.1)
    server, follower = after(3, 0), after(of_follower, 7)
    ui._wait_for_end(server, follower)
    follower.kill()
    follower.wait()
    assert server.returncode == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == lines
    assert all("ended with status 7; see what it printed above, and start this again" in line for line in printed)


@pytest.mark.parametrize(
    ("platform", "environment", "opens"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "firefox"}, True),
        ("darwin", {}, True),
    ],
)
def test_a_browser_is_opened_only_where_there_is_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], opens: bool
) -> None:
    """A text browser would take the terminal of a login node."""
    opened: list[str] = []
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(ui.sys, "platform", platform)
    monkeypatch.setattr(ui.webbrowser, "open", opened.append)
    ui._open("http://127.0.0.1:5000", tmp_path)
    assert bool(opened) is opens


@pytest.mark.parametrize("down", [True, False])
def test_a_server_that_is_down_is_followed_and_an_unusable_one_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("rte",), seeds=1)
    record.with_name("record.json").symlink_to(record.name)
    followed: list[str] = []

    def connect(_: str) -> None:
        cause = "NewConnectionError('refused')" if down else "ResponseError('too many 500 error responses')"
        raise MlflowException(f"Max retries exceeded with url: /api (Caused by {cause})")

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr(store, "connect", connect)
    monkeypatch.setattr(ui, "handle_signals", lambda *_: None)
    monkeypatch.setattr(ui, "follow", lambda _, address, every: followed.append(address))
    with nullcontext() if down else pytest.raises(BertlineError, match="answers only with errors"):
        ui.open_ui()
    assert followed == (["http://127.0.0.1:9"] if down else [])


def test_an_interval_that_cannot_be_waited_is_one_line_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=(), seeds=1)
    record.with_name("record.json").symlink_to(record.name)
    monkeypatch.setattr(ui, "_check_port", lambda _: pytest.fail("the server would be started"))
    monkeypatch.setattr(ui, "handle_signals", lambda *_: None)
    with pytest.raises(BertlineError, match=r"^0 seconds cannot be waited; give a number above 0"):
        ui.open_ui(every=0)


@pytest.mark.parametrize(("port", "other"), [(5000, 5001), (65535, 65534)])
def test_the_port_that_is_named_instead_of_one_in_use_is_one(
    monkeypatch: pytest.MonkeyPatch, port: int, other: int
) -> None:
    def refuse(_: object) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    monkeypatch.setattr(ui.socket, "create_server", refuse)
    with pytest.raises(BertlineError, match=rf"^port {port} is in use; choose another one: make ui PORT={other}$"):
        ui._check_port(port)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        pytest.param(
            "sqlite+pysqlite:///mlflow.db",
            r"^sqlite\+pysqlite:///mlflow.db is not sqlite:/// and the path",
            id="another driver of SQLite",
        ),
        pytest.param(
            "https://someone:xyz abc@127.0.0.1:9",
            r"^MLflow's address, https://\.\.\., has no .*percent-encode ",
            id="a space in the password",
        ),
    ],
)
def test_an_address_that_is_refused_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("rte",), seeds=1)
    record.with_name("record.json").symlink_to(record.name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setattr(ui, "handle_signals", lambda *_: None)
    monkeypatch.setattr(ui, "_check_port", lambda _: None)
    monkeypatch.setattr(ui, "follow", lambda *_: None)
    with pytest.raises(BertlineError, match=problem):
        ui.open_ui()
    assert not capsys.readouterr().out
