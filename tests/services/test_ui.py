"""`make ui` in a real process: a server for one user, which ends with everything that it started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
import requests
from live_runs import write, write_run
from mlflow import MlflowClient
from services import free_port, wait_until

ROOT = Path(__file__).parents[2]
SEARCH = "api/2.0/mlflow/experiments/search"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a run that has not started."""
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    (tmp_path / "results/runs/a").mkdir(parents=True)
    (tmp_path / "results/runs/a/record.json").write_text("{}")
    return tmp_path


@contextmanager
def ui(
    folder: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The process, and a file with the address that the browser was given."""
    browser, opened = folder / "browser", folder / "opened"
    browser.write_text(f'#!/bin/sh\ncat "${{1#file://}}" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o700)
    inherited = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    whole = inherited | {"BROWSER": f"{browser} %s"} | dict(environment or {})
    command = [sys.executable, "workflow/scripts/ui.py", *options]
    log = (folder / "log").open("w")
    # Whatever these tests were started with.
    listen = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
    process = subprocess.Popen(command, cwd=folder, env=whole, stdout=log, stderr=log, text=True, preexec_fn=listen)
    try:
        yield process, opened
    finally:
        process.terminate()
        process.wait(240)


# SIGHUP: its terminal was closed.
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_only_who_has_the_password_is_served_and_everything_ends_with_it(folder: Path, number: signal.Signals) -> None:
    port = free_port()
    with ui(folder, "--port", str(port)) as (process, opened):
        wait_until(opened.exists, "the browser's start")
        # The server answered before the browser was opened.
        url = f"http://127.0.0.1:{port}/{SEARCH}"
        assert requests.post(url, json={"max_results": 1}, timeout=240).status_code == 401
        address = opened.read_text().partition("url=")[2].partition('"')[0]
        assert requests.post(f"{address}/{SEARCH}", json={"max_results": 1}, timeout=240).status_code == 200
        assert address in (folder / "log").read_text()
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        # Other users see command lines.
        password = address.partition("@")[0].rpartition(":")[2]
        assert not [one for one in family if password in " ".join(one.cmdline())]
        assert len(family) >= 3
        process.send_signal(number)
        process.wait(240)
        assert not [one for one in family[1:] if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def test_a_port_in_use_is_an_error(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with ui(folder, "--port", str(port)) as (process, opened):
            assert process.wait(120) == 1
            assert not opened.exists()
    assert f"error: port {port} is in use; choose another one: make ui PORT={port + 1}" in (folder / "log").read_text()


def test_the_server_answers_before_the_browser_is_opened(folder: Path) -> None:
    port = free_port()
    # The browser asks at once, as a real one does, and writes down what it got.
    browser = folder / "asking"
    browser.write_text(
        f"#!{sys.executable}\nimport pathlib, urllib.error, urllib.request\n"
        "try:\n"
        f"    answer = urllib.request.urlopen('http://127.0.0.1:{port}/health', timeout=240).status\n"
        "except urllib.error.URLError as error:\n"
        "    answer = error\n"
        f"pathlib.Path({str(folder / 'answer.part')!r}).write_text(str(answer))\n"
        f"pathlib.Path({str(folder / 'answer.part')!r}).rename({str(folder / 'answer')!r})\n"
    )
    browser.chmod(0o700)
    with ui(folder, "--port", str(port), environment={"BROWSER": f"{browser} %s"}) as _:
        wait_until((folder / "answer").exists, "the browser's start")
        assert (folder / "answer").read_text() == "200"


def test_runs_that_begin_later_are_followed(folder: Path) -> None:
    port = free_port()
    with ui(folder, "--port", str(port), "--every", "0.5", "--no-password") as (_, opened):
        wait_until(opened.exists, "the browser's start")
        record = json.loads((folder / write_run(folder, tasks=())).read_text())
        later = folder / "results/runs/later/record.json"
        write(later, {**record, "run": "later", "fingerprint": "e" * 16})

        def names() -> set[str]:
            client = MlflowClient(f"http://127.0.0.1:{port}")
            experiments = [one.experiment_id for one in client.search_experiments()]
            return {one.info.run_name for one in client.search_runs(experiments, "tags.`bertline.stage` = 'run'")}

        wait_until(lambda: "later" in names(), "the tracking of a run that began after `make ui`")
