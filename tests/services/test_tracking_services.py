"""Eight runs followed live by two trackers, the server killed in the middle: every point is there once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from fault_counts import TIMES, drawing
from live_runs import (
    RUNS,
    STEPS,
    assert_every_point_once,
    begin_runs,
    followers,
    held,
    reached,
    train_to,
    write,
    written,
)
from mlflow import MlflowClient
from services import Fault, faulty_front, mlflow_server, postgresql, wait_until

from bertline.console import BertlineError
from bertline.tracking.models import log_model
from bertline.tracking.store import track

pytestmark = pytest.mark.fault(row="tracker")
ROOT = Path(__file__).parents[2]
OLD_MLFLOW = ROOT / "logs/mlflow-2"


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_server_killed_under_two_trackers_holds_every_point_once(tmp_path: Path, backend: str) -> None:
    records = begin_runs(tmp_path)

    def through(store: str) -> None:
        with mlflow_server(tmp_path, store) as server, followers(tmp_path, records, server.uri, 2):
            train_to(tmp_path, 40)
            wait_until(lambda: reached(server.uri, 40), "the first points of all runs")
            train_to(tmp_path, 80)  # while these are being sent
            server.kill()
            train_to(tmp_path, 100)
            server.start()
            wait_until(lambda: reached(server.uri, 100), "the points written while the server was down")
            train_to(tmp_path, STEPS)
            wait_until(lambda: reached(server.uri, STEPS), "the last points")
            assert_every_point_once(tmp_path, server.uri)

    if backend == "sqlite":
        through(f"sqlite:///{tmp_path / 'mlflow.db'}")
    else:
        with postgresql() as store:
            through(store)


def test_two_trackers_write_to_postgresql_itself(tmp_path: Path) -> None:
    records = begin_runs(tmp_path)
    with postgresql() as store, followers(tmp_path, records, store, 2):
        for step in (50, STEPS):
            train_to(tmp_path, step)
            wait_until(lambda step=step: reached(store, step), f"step {step} of all runs")
        assert_every_point_once(tmp_path, store)


def test_a_tracker_killed_again_and_again_leaves_every_point_once(tmp_path: Path) -> None:
    records = begin_runs(tmp_path)
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    command = [sys.executable, str(ROOT / "workflow/scripts/track.py"), *map(str, records), "--uri", store]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for step in range(20, STEPS + 1, 20):
        train_to(tmp_path, step)
        tracker = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        try:
            tracker.wait(timeout=2 + step / 20)  # while it starts, makes the database, or sends: a bit later each time
        except subprocess.TimeoutExpired:
            tracker.kill()
            tracker.wait()
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, stderr=subprocess.DEVNULL)
    assert_every_point_once(tmp_path, store)


def test_a_server_with_a_password_takes_it_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "auth.ini").write_text(
        "[mlflow]\ndefault_permission = READ\nadmin_username = admin\nadmin_password = a-long-enough-password\n"
        f"database_uri = sqlite:///{tmp_path / 'auth.db'}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    environment = {"MLFLOW_AUTH_CONFIG_PATH": str(tmp_path / "auth.ini"), "MLFLOW_FLASK_SERVER_SECRET_KEY": "secret"}
    records = begin_runs(tmp_path)[:1]
    train_to(tmp_path, 20)
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with mlflow_server(tmp_path, store, ["--app-name", "basic-auth"], environment) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
        with pytest.raises(
            BertlineError, match=r"^MLflow at http://127.0.0.1:\d+ did not accept the credentials; set [^\n]*$"
        ):
            track(records, server.uri)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a-long-enough-password")
        assert track(records, server.uri)["sent"] > 0
        assert held(server.uri) == {"run0": written(tmp_path, 0)}


def test_a_server_of_version_2_takes_everything_but_the_models_and_these_after_its_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not (OLD_MLFLOW / "ready").exists():
        pytest.skip("MLflow 2.22 is not installed in logs; `make test-services` does it")
    monkeypatch.chdir(tmp_path)
    (record,) = begin_runs(tmp_path)[:1]
    train_to(tmp_path, 20)
    (tmp_path / "results/phases/run0/checkpoints/step-00000020").mkdir()
    write(record, json.loads(record.read_text()) | {"kept": {}})
    database = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with mlflow_server(tmp_path, database, python=str(OLD_MLFLOW / "bin/python")) as server:
        with caplog.at_level("WARNING", "bertline"):
            assert track([record], server.uri)["sent"] > 0
            assert log_model(record, uri=server.uri, output=Path("logged.json")) == ""
        assert json.loads(Path("logged.json").read_text()) == {"models": []}
        assert [line.getMessage().partition(";")[0] for line in caplog.records] == [
            "the MLflow server is older than 3.0 and has no logged models"
        ] * 2
        assert held(server.uri) == {"run0": written(tmp_path, 0)}
    subprocess.run([sys.executable, "-m", "mlflow", "db", "upgrade", database], check=True)
    with mlflow_server(tmp_path, database) as server:
        assert track([record], server.uri)["sent"] == 0
        assert held(server.uri) == {"run0": written(tmp_path, 0)}
        client = MlflowClient(server.uri)
        (model,) = client.search_logged_models([client.get_experiment_by_name("bertline").experiment_id])
        assert model.name == "phase1-step-20"


def test_two_checkouts_with_a_lock_each_make_every_run_once_on_one_server(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    folders[0].mkdir()
    records = begin_runs(folders[0])
    train_to(folders[0], 20)
    (folders[0] / "results/origin").write_text("0" * 32 + "\n")
    shutil.copytree(folders[0], folders[1])
    with mlflow_server(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}") as server:
        command = [sys.executable, str(ROOT / "workflow/scripts/track.py"), *map(str, records), "--uri", server.uri]
        trackers = [subprocess.Popen(command, cwd=folder) for folder in folders for _ in range(2)]
        assert [tracker.wait(timeout=300) for tracker in trackers] == [0] * 4
        assert held(server.uri) == {f"run{number}": written(folders[0], number) for number in range(RUNS)}


def test_four_users_of_a_bad_network_each_have_every_point_once(
    tmp_path: Path, record_property: pytest.FixtureRequest
) -> None:
    """The same configuration and names; one answer in six is slow, an error, or lost after the work was done."""
    draw, faults, one_at_a_time = drawing("network"), Counter[str](), threading.Lock()

    def fault_of(path: str) -> Fault:
        with one_at_a_time:
            fault: Fault = draw.choice(("slow", "error", "lost")) if path != "/health" and draw.random() < 1 / 6 else ""
            faults[fault] += 1
        return fault

    people = [tmp_path / name for name in ("anna", "ben", "carla", "dimitri")]
    for number, folder in enumerate(people):
        folder.mkdir()
        records = begin_runs(folder)[: 2 * TIMES]
        train_to(folder, 20 + 10 * number)
        (folder / "results/origin").write_text(f"{number:032}\n")
    command = [sys.executable, str(ROOT / "workflow/scripts/track.py"), *map(str, records)]
    with (
        mlflow_server(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}") as server,
        faulty_front(server.uri, fault_of) as uri,
    ):
        left = list(people)
        for _ in range(20):  # again, as a person would after one line of an error
            trackers = [
                subprocess.Popen([*command, "--uri", uri], cwd=folder, stderr=subprocess.PIPE) for folder in left
            ]
            messages = [tracker.communicate(timeout=300)[1].decode() for tracker in trackers]
            assert not any("Traceback" in message for message in messages), messages
            left = [folder for folder, tracker in zip(left, trackers, strict=True) if tracker.returncode]
            if not left:
                break
        assert not left, messages
        for number, folder in enumerate(people):
            assert held(server.uri, f"{number:032}") == {
                f"run{run}": written(folder, run) for run in range(len(records))
            }
    record_property("faults", faults.total() - faults[""])
    record_property("requests", faults.total())


def test_a_server_whose_artifact_store_refuses_is_one_line_and_has_all_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = begin_runs(tmp_path)[:2]
    train_to(tmp_path, 20)
    (tmp_path / "artifacts").write_text("a file where a folder is wanted")
    with mlflow_server(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}") as server:
        message = (
            r"^MLflow at \S+ has all points, but its artifact store did not take record-run0\.json of run0 \([^\n]*$"
        )
        with pytest.raises(BertlineError, match=message):
            track(records, server.uri)
        assert held(server.uri) == {f"run{number}": written(tmp_path, number) for number in range(2)}
        (tmp_path / "artifacts").unlink()
        assert track(records, server.uri)["sent"] == 0
