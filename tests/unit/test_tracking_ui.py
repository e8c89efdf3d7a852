"""`make ui` reports the end of what keeps MLflow up to date; tests/services runs it as a whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bertline.tracking import ui


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
