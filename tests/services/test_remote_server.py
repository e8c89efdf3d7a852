"""A server behind a token, one that moves while points are sent, and a full disk: no point is lost or doubled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from live_runs import ROOT, assert_every_point_once, begin_runs, held, reached, train_to, write, written
from mlflow import MlflowClient
from services import Fault, faulty_front, free_port, mlflow_server, token_front, wait_until
from test_ui import ui
from transformers import BertConfig, BertForPreTraining, BertTokenizer

from bertline.console import BertlineError
from bertline.reporting.page import write_report
from bertline.tracking.models import log_model
from bertline.tracking.store import track

pytestmark = pytest.mark.fault(row="tracker")
TOKEN = "a-token-that-nobody-may-see"  # noqa: S105 - of this test's own server


def write_export(folder: Path) -> None:
    """A very small BERT with random weights, as transformers writes it."""
    folder.mkdir(parents=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "river"]
    (folder / "vocab.txt").write_text("\n".join(words))
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForPreTraining(BertConfig(vocab_size=len(words), **shape)).save_pretrained(folder)
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_points_files_and_models_go_through_a_web_server_that_asks_for_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (record,) = begin_runs(project)[:1]
    train_to(project, 20)
    write_export(project / "results/phases/run0/huggingface")
    content = json.loads(record.read_text())
    write(record, content | {"kept": {}, "finetunings": []})
    with (
        mlflow_server(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}") as server,
        token_front(server.uri, TOKEN) as uri,
    ):
        refusal = rf"^MLflow at {uri} did not accept the credentials; set [^\n]* or MLFLOW_TRACKING_TOKEN, [^\n]*$"
        with pytest.raises(BertlineError, match=refusal):
            track([record], uri)
        with pytest.raises(BertlineError, match=refusal):  # the password in the address is not in the message
            track([record], uri.replace("//", "//anna:a-password@"))
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "wrong-" + TOKEN)
        with pytest.raises(BertlineError, match=rf"^MLflow at {uri} does not accept the token in [^\n]*$"):
            track([record], uri)
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)
        page = write_report([record], Path("results/report"))
        assert track([record], uri, page)["sent"] > 0
        assert log_model(record, uri=uri, register="mine").endswith("mine version 1")
        client = MlflowClient(uri)
        (run,) = client.search_runs(
            [client.get_experiment_by_name("bertline").experiment_id], "tags.`bertline.stage` = 'run'"
        )
        kept = Path(client.download_artifacts(run.info.run_id, "index.html", str(tmp_path)))
        assert kept.read_bytes() == page.read_bytes()
        assert held(uri) == {"run0": written(project, 0)}
    assert not files_with(TOKEN, tmp_path)


def test_the_follower_keeps_a_server_behind_a_token_up_to_date_without_showing_the_token(tmp_path: Path) -> None:
    (record,) = begin_runs(tmp_path)[:1]
    (tmp_path / "results/runs/run0/record.json").symlink_to(record.name)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    with (
        mlflow_server(tmp_path, f"sqlite:///{tmp_path / 'mlflow.db'}") as server,
        token_front(server.uri, TOKEN) as uri,
    ):
        environment = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_TRACKING_TOKEN": TOKEN}
        with ui(tmp_path, "--every", "0.5", environment=environment) as (process, _):
            for step in (20, 40):
                train_to(tmp_path, step)
                wait_until(lambda: held(server.uri).get("run0") == written(tmp_path, 0), "the points")
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            shown = " ".join(part for one in family for part in one.cmdline()) + (tmp_path / "log").read_text()
            assert f"MLflow: {uri} " in shown
            process.send_signal(signal.SIGTERM)
            assert process.wait(240) == 0
    assert not files_with(TOKEN, tmp_path)


def test_a_server_killed_while_it_stores_points_and_started_elsewhere_gets_every_point_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time from a backup that lacks the points of the last hour."""
    monkeypatch.chdir(tmp_path)
    records, database = begin_runs(tmp_path), tmp_path / "mlflow.db"
    command = [sys.executable, str(ROOT / "workflow/scripts/track.py"), *map(str, records)]

    def send(uri: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=os.environ | {"MLFLOW_TRACKING_URI": uri}, capture_output=True, text=True)

    train_to(tmp_path, 60)
    with mlflow_server(tmp_path, f"sqlite:///{database}") as server:
        batches = 0

        def fault_of(path: str) -> Fault:
            nonlocal batches
            batches += path.endswith("/runs/log-batch")
            if batches == 9:
                server.kill()
            return ""

        with faulty_front(server.uri, fault_of) as uri:
            cut_off = send(uri)
        assert cut_off.returncode == 1
        assert cut_off.stderr.strip().splitlines()[-1].startswith("error: MLflow at ")
        assert "Traceback" not in cut_off.stderr
    assert batches >= 9
    shutil.copy(database, "backup.db")
    with mlflow_server(tmp_path, f"sqlite:///{database}") as server:
        assert send(server.uri).returncode == 0
        assert_every_point_once(tmp_path, server.uri)
    shutil.move("backup.db", database)
    train_to(tmp_path, 80)
    with mlflow_server(tmp_path, f"sqlite:///{database}") as server:
        assert send(server.uri).returncode == 0
        assert_every_point_once(tmp_path, server.uri)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_follower_survives_a_full_disk_and_catches_up_by_itself(tmp_path: Path) -> None:
    records = begin_runs(tmp_path)
    for record in records:
        (tmp_path / record.parent / "record.json").symlink_to(record.name)
    (tmp_path / "workflow").symlink_to(ROOT / "workflow")
    with small_disk(tmp_path / "disk", 16):
        ballast, store = tmp_path / "disk/ballast", f"sqlite:///{tmp_path}/disk/mlflow.db"
        options = ["--every", "0.5", "--port", str(free_port())]
        with ui(tmp_path, *options, environment={"MLFLOW_TRACKING_URI": store}) as (process, opened):
            wait_until(opened.exists, "the answer of the server")
            train_to(tmp_path, 20)
            wait_until(lambda: reached(store, 20), "the first points")
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(b"\0" * 4096):
                    pass
            train_to(tmp_path, 80)
            wait_until(lambda: "has no space left" in (tmp_path / "log").read_text(), "the message")
            ballast.unlink()
            wait_until(lambda: reached(store, 80), "the points of the time without space")
            assert_every_point_once(tmp_path, store)
            assert process.poll() is None
            log = (tmp_path / "log").read_text()
            assert "Traceback" not in log
            assert log.count("has no space left") <= 2  # for all eight runs and all passes
