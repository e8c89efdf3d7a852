"""MLflow on a real SQLite file holds, read back through its client, exactly what the journals hold."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.exceptions import MlflowException
from synthetic_runs import START, journal_line, write, write_journal, write_run

from bertline.console import BertlineError
from bertline.files import sha256_of_file
from bertline.fingerprint import fingerprint
from bertline.reporting.page import write_report
from bertline.results.journal import read_journal
from bertline.settings.configuration import load, read_yaml
from bertline.tracking import following, publishing, sqlite_file, store
from bertline.tracking.inputs import changes_of_inputs
from bertline.tracking.run_tree import Entry
from bertline.tracking.store import initialise, read_entry, track

URI = "sqlite:///mlflow.db"
SCRIPT = Path(__file__).parents[2] / "workflow" / "scripts" / "track.py"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_database: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(fresh_database, "mlflow.db")
    return write_run(tmp_path, tasks=("squad_v1",), seeds=1)


def uri() -> str:
    # MLflow remembers a store by its URI within a process, so every test gives its own, absolute one.
    return f"sqlite:///{Path('mlflow.db').absolute()}"


def runs(view: int = ViewType.ACTIVE_ONLY) -> dict[str, Run]:
    client = MlflowClient(uri())
    experiment = client.get_experiment_by_name("bertline")
    found = client.search_runs([experiment.experiment_id], run_view_type=view)
    found = [run for run in found if publishing.SUPERSEDED_TAG not in run.data.tags]
    assert len({run.info.run_name for run in found}) == len(found)
    return {run.info.run_name: run for run in found}


def stored_points(run: Run, client: MlflowClient | None = None) -> list[tuple[str, int, int, float]]:
    client = client or MlflowClient(uri())
    points = []
    for key in run.data.metrics:
        history = client.get_metric_history(run.info.run_id, key)
        points += [(metric.key, metric.step, metric.timestamp, metric.value) for metric in history]
    return sorted(points)


def everything() -> dict[str, list[tuple[str, int, int, float]]]:
    return {f"{name} {run.info.run_id}": stored_points(run) for name, run in runs().items()}


def journal(path: str, last_step: int | None = None) -> list[tuple[str, int, int, float]]:
    points = read_journal(Path(path), last_step)
    return sorted((key, p.step, p.timestamp, value) for p in points for key, value in p.metrics.items())


def unfinish(name: str, *, durable: int, lines: list[dict] | None = None) -> Path:
    """Turn a finished phase into one that was interrupted after its last durable step."""
    folder = Path("results/phases") / name
    (folder / "checkpoints").mkdir()
    (folder / "metrics.jsonl").rename(folder / "checkpoints" / "journal.jsonl")
    (folder / "recipe.json").rename(folder / "recipe.kept")
    write(folder / "checkpoints" / "durable.json", {"step": durable})
    if lines is not None:
        write_journal(folder / "checkpoints" / "journal.jsonl", lines)
    return folder


def finish(folder: Path) -> None:
    shutil.copy(folder / "checkpoints" / "journal.jsonl", folder / "metrics.jsonl")
    (folder / "recipe.kept").rename(folder / "recipe.json")


def curves(run: Run) -> list[tuple[str, int, int, float]]:
    return [point for point in stored_points(run) if not point[0].startswith(("baseline/", "score/"))]


def test_mlflow_holds_the_journals_point_for_point(record: Path) -> None:
    marker = track([record], uri())
    held = runs()
    assert curves(held["phase1"]) == journal("results/phases/phase1/metrics.jsonl")
    assert curves(held["phase2"]) == journal("results/phases/phase2/metrics.jsonl")
    for name in ("squad_v1/seed1", "squad_v1/random/lr5e-4/seed1", "squad_v1/random/lr2e-3/seed1"):
        folder = held[name].data.tags["bertline.path"]
        assert curves(held[name]) == journal(f"{folder}/metrics.jsonl")
    assert marker["runs"]["demo"]["points"] == {name: len(stored_points(run)) for name, run in held.items()}
    assert marker["sent"] == sum(marker["runs"]["demo"]["points"].values())


def test_the_tree_has_its_parents_parameters_tags_and_artifacts(record: Path) -> None:
    track([record], uri())
    held = runs()
    parents = {name: run.data.tags.get("mlflow.parentRunId") for name, run in held.items()}
    root, task = held["demo"].info.run_id, held["squad_v1"].info.run_id
    assert parents.pop("demo") is None
    assert {parents.pop(name) for name in ("data", "phase1", "phase2", "squad_v1")} == {root}
    assert set(parents.values()) == {task}
    phase = held["phase1"]
    assert phase.data.params["learning_rate"] == "0.006"
    assert phase.data.tags["mlflow.source.git.commit"].startswith("0123456789")
    assert "LAMB, learning rate 0.006" in phase.data.tags["mlflow.note.content"]
    assert phase.inputs.dataset_inputs[0].dataset.digest == "d" * 16
    assert json.loads(phase.inputs.dataset_inputs[0].dataset.profile)["tokens_128"] == 1_400_000
    client = MlflowClient(uri())
    assert [file.path for file in client.list_artifacts(phase.info.run_id)] == ["recipe.json"]
    assert [file.path for file in client.list_artifacts(held["data"].info.run_id)] == ["dataset.json"]
    assert held["squad_v1/seed1"].data.metrics["score/f1"] == pytest.approx(78.7)
    assert held["demo"].data.metrics["squad_v1/f1"] == pytest.approx(78.7)
    assert {run.info.status for run in held.values()} == {"FINISHED"}


def test_a_fine_tuning_has_its_data_and_its_predictions_and_every_run_a_source(record: Path) -> None:
    folder = Path("results/finetunings/squad_v1-pretrained-0.0005-1")
    (folder / "predictions.json").write_text('{"1": "a river"}')
    sent = track([record], uri())["sent"]
    held, client = runs(), MlflowClient(uri())
    run = held["squad_v1/seed1"]
    (given,) = run.inputs.dataset_inputs
    assert (given.dataset.name, json.loads(given.dataset.source)) == ("squad_v1", {"uri": "dev.tsv"})
    assert json.loads(given.dataset.profile) == {"train": 2000, "dev": 400}
    assert [tag.value for tag in given.tags] == ["fine-tuning"]
    stored = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert stored == {"metrics.json", "predictions.json", "recipe.json"}
    sources = {name: one.data.tags["mlflow.source.name"] for name, one in held.items()}
    assert sources["demo"] == "Snakefile"
    assert sources["phase1"] == "workflow/scripts/pretrain.py"
    assert sources["squad_v1/seed1"] == "workflow/scripts/finetune.py"
    assert all((SCRIPT.parents[2] / source).is_file() for source in sources.values())
    assert track([record], uri())["sent"] == 0 < sent


@pytest.mark.parametrize("since", ["unchanged", "changed", "moved"])
def test_a_fine_tuning_has_the_digest_of_what_it_was_trained_on(record: Path, since: str) -> None:
    path = Path("results/finetunings/squad_v1-pretrained-0.0005-1/recipe.json")
    for name in ("train.tsv", "dev.tsv"):
        Path(name).write_text(name)
    digests = {name: sha256_of_file(Path(name)) for name in ("train.tsv", "dev.tsv")}
    write(path, json.loads(path.read_text()) | {"sha256": digests})
    if since == "changed":
        Path("dev.tsv").write_text("other data")
    elif since == "moved":
        Path("dev.tsv").rename("moved.tsv")
    track([record], uri())
    (given,) = runs()["squad_v1/seed1"].inputs.dataset_inputs
    assert given.dataset.digest == fingerprint({"train": digests["train.tsv"], "dev": digests["dev.tsv"]})
    write(path, json.loads(path.read_text()) | {"sha256": digests | {"dev.tsv": "f" * 64}})
    track([record], uri())  # a store keeps the digest that it has
    assert runs()["squad_v1/seed1"].inputs.dataset_inputs == [given]


def test_tracking_twice_adds_nothing(record: Path) -> None:
    first = track([record], uri())
    before = everything()
    second = track([record], uri())
    assert everything() == before
    assert second == {**first, "sent": 0}
    assert len(MlflowClient(uri()).search_experiments(view_type=ViewType.ALL)) == 2  # MLflow's own Default, and ours


def test_tracking_through_a_link_and_without_the_report_changes_nothing(record: Path) -> None:
    Path("index.html").write_text("<p>report")
    track([record], uri(), Path("index.html"))
    before = {name: run.data.tags for name, run in runs().items()}
    artifacts = MlflowClient(uri()).list_artifacts(runs()["demo"].info.run_id)
    assert [file.path for file in artifacts] == ["index.html", record.name]
    Path("record.json").symlink_to(record)
    assert track([Path("record.json")], uri())["sent"] == 0
    assert {name: run.data.tags for name, run in runs().items()} == before
    assert MlflowClient(uri()).list_artifacts(runs()["demo"].info.run_id) == artifacts


def test_sending_every_point_again_changes_nothing(record: Path) -> None:
    track([record], uri())
    before = everything()
    for run in runs().values():
        MlflowClient(uri()).delete_tag(run.info.run_id, publishing.SENT_TAG)
    assert track([record], uri())["sent"] > 0
    assert everything() == before


def test_the_note_of_what_was_sent_is_hidden(record: Path) -> None:
    track([record], uri())
    for run in runs().values():
        assert not [key for key, value in run.data.tags.items() if not key.startswith("mlflow.") and value[:1] == "{"]


def test_a_deleted_run_is_made_again_and_its_children_follow_it(record: Path) -> None:
    track([record], uri())
    before = runs()
    for name in ("phase1", "squad_v1"):
        MlflowClient(uri()).delete_run(before[name].info.run_id)
    track([record], uri())
    after = runs()
    assert set(after) == set(before)
    assert stored_points(after["phase1"]) == stored_points(before["phase1"])
    assert after["phase1"].info.run_id != before["phase1"].info.run_id
    assert after["squad_v1/seed1"].info.run_id == before["squad_v1/seed1"].info.run_id
    assert after["squad_v1/seed1"].data.tags["mlflow.parentRunId"] == after["squad_v1"].info.run_id


def test_a_deleted_experiment_comes_back(record: Path) -> None:
    track([record], uri())
    before = {name: run.info.run_id for name, run in runs().items()}
    client = MlflowClient(uri())
    client.delete_experiment(client.get_experiment_by_name("bertline").experiment_id)
    assert track([record], uri())["sent"] == 0
    assert {name: run.info.run_id for name, run in runs().items()} == before
    assert curves(runs()["phase1"]) == journal("results/phases/phase1/metrics.jsonl")


def test_a_deleted_database_is_filled_again(record: Path) -> None:
    track([record], uri())
    before = {name: stored_points(run) for name, run in runs().items()}
    Path("mlflow.db").unlink()
    track([record], uri())
    # Read under another name: what this process still has open may be the deleted file.
    Path("mlflow.db").rename("refilled.db")
    client = MlflowClient(f"sqlite:///{Path('refilled.db').absolute()}")
    experiment = client.get_experiment_by_name("bertline")
    held = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert {name: stored_points(run, client) for name, run in held.items()} == before


def test_an_interrupted_phase_is_sent_up_to_its_durable_step(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = unfinish("phase1", durable=120)
    track([record], uri())
    phase = runs()["phase1"]
    assert stored_points(phase) == journal("results/phases/phase1/checkpoints/journal.jsonl", last_step=120)
    assert phase.info.status == "RUNNING"
    assert runs()["demo"].info.status == "RUNNING"
    # The resumed trainer takes back what came after its checkpoint and writes it with new timestamps.
    lines = [journal_line(step) for step in range(10, 121, 10)]
    lines += [journal_line(step, timestamp=START + 900_000 + step) for step in range(130, 201, 10)]
    write_journal(folder / "checkpoints" / "journal.jsonl", lines)
    finish(folder)
    requests = []
    log_batch = MlflowClient.log_batch

    def count(self: MlflowClient, run_id: str, metrics: list, *rest: object, **options: object) -> None:
        requests.extend(metrics)
        log_batch(self, run_id, metrics, *rest, **options)

    monkeypatch.setattr(MlflowClient, "log_batch", count)
    sent = track([record], uri())["sent"]
    finished = runs()["phase1"]
    assert finished.info.run_id == phase.info.run_id
    assert finished.info.status == "FINISHED"
    assert curves(finished) == journal("results/phases/phase1/metrics.jsonl")
    assert len(requests) == sent < len(stored_points(finished))


def test_a_phase_has_its_parameters_and_jobs_while_it_is_trained(record: Path) -> None:
    folder = unfinish("phase1", durable=50)
    recipe = json.loads((folder / "recipe.kept").read_text())
    started = {key: value for key, value in recipe.items() if key != "finished"} | {"jobs": ["slurm 11"]}
    write(folder / "checkpoints" / "recipe.json", started)
    track([record], uri())
    first = runs()["phase1"]
    assert first.info.status == "RUNNING"
    assert first.data.params["learning_rate"] == "0.006"
    assert first.data.tags["bertline.jobs"] == "slurm 11"
    assert first.data.tags["mlflow.note.content"].startswith("Still training. ")
    finish(folder)
    write(folder / "recipe.json", recipe | {"jobs": ["slurm 11", "slurm 12"], "hardware": "another machine"})
    track([record], uri())
    last = runs()["phase1"]
    assert last.info.run_id == first.info.run_id
    assert last.data.params == first.data.params
    assert last.data.tags["bertline.jobs"] == "slurm 11, slurm 12"
    assert curves(last) == journal("results/phases/phase1/metrics.jsonl")


def test_the_parent_of_weights_is_a_tag_and_where_they_lie_no_parameter(record: Path) -> None:
    path = Path("results/phases/phase2/recipe.json")
    recipe = json.loads(path.read_text())
    tags = {}
    for initial in ({"phase": "phase1"}, {"directory": "models/theirs", "content": "c" * 16}):
        write(path, recipe | {"initial_weights": initial})
        track([record], uri())
        held = runs()["phase2"].data
        tags[held.tags["bertline.parent"]] = held.tags["bertline.parent_path"]
        assert "models/theirs" not in held.params.values()
    assert tags == {"phase1": "results/phases/phase1", "c" * 16: "models/theirs"}
    before = runs()["phase2"].info.run_id
    write(path, recipe | {"initial_weights": {"directory": "moved", "content": "c" * 16}})
    track([record], uri())
    assert runs()["phase2"].info.run_id == before


@pytest.fixture
def full_disk(record: Path) -> Iterator[Path]:
    """Where artifacts go, on a disk without room until its file `ballast` is deleted."""
    disk = Path("mlartifacts").absolute()
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_an_artifact_store_without_space_is_one_line_and_the_points_are_sent(record: Path, full_disk: Path) -> None:
    message = r"^MLflow at \S+ has all points, but its artifact store did not take [^\n]*No space left[^\n]* more; make"
    with pytest.raises(BertlineError, match=message) as caught:
        track([record], uri())
    assert "\n" not in str(caught.value)
    before = runs()
    assert curves(before["phase1"]) == journal("results/phases/phase1/metrics.jsonl")
    assert before["phase1"].info.status == "FINISHED"
    (full_disk / "ballast").unlink()
    assert track([record], uri())["sent"] == 0
    assert runs()["phase1"].info.run_id == before["phase1"].info.run_id
    assert [path.read_bytes() for path in full_disk.glob(f"**/{before['phase1'].info.run_id}/**/recipe.json")] == [
        Path("results/phases/phase1/recipe.json").read_bytes()
    ]


def test_an_artifact_store_without_its_library_is_one_line_and_the_points_are_sent(record: Path) -> None:
    MlflowClient(uri()).create_experiment("bertline", artifact_location="s3://localhost/nobody")
    with pytest.raises(
        BertlineError, match=r"^MLflow at \S+ has all points, but its artifact store did not take"
    ) as caught:
        track([record], uri())
    assert "\n" not in str(caught.value)
    assert curves(runs()["phase1"]) == journal("results/phases/phase1/metrics.jsonl")


def test_an_artifact_store_that_cannot_be_written_is_one_line_and_other_runs_continue(record: Path) -> None:
    other = another_recipe(record, "other")
    Path("mlartifacts").write_text("a file where a folder is wanted")
    for _ in range(2):
        with pytest.raises(
            BertlineError, match=r"^MLflow at [^\n;]* did not take [^\n]* more; make it writable"
        ) as caught:
            track([record, other], uri())
        assert "\n" not in str(caught.value)
        assert {"demo", "phase1", "other"} <= runs().keys()
        assert curves(runs()["phase1"]) == journal("results/phases/phase1/metrics.jsonl")
    Path("mlartifacts").unlink()
    track([record, other], uri())
    assert [file.path for file in MlflowClient(uri()).list_artifacts(runs()["phase1"].info.run_id)] == ["recipe.json"]


def test_a_phase_trained_again_supersedes_its_run_so_that_each_step_is_once_in_a_run(record: Path) -> None:
    track([record], uri())
    old = runs()["phase1"].info.run_id
    lines = [journal_line(step, timestamp=START + 5_000_000 + step) for step in range(10, 201, 10)]
    write_journal(Path("results/phases/phase1/metrics.jsonl"), lines)
    track([record], uri())
    new = runs()["phase1"]
    assert new.info.run_id != old
    assert curves(new) == journal("results/phases/phase1/metrics.jsonl")


def test_values_that_are_not_numbers_are_kept(record: Path) -> None:
    line = journal_line(210)
    line["metrics"] = {"train/loss": float("nan")}
    path = Path("results/phases/phase1/metrics.jsonl")
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    track([record], uri())
    assert math.isnan(MlflowClient(uri()).get_metric_history(runs()["phase1"].info.run_id, "train/loss")[-1].value)
    assert track([record], uri())["sent"] == 0


def test_a_curve_has_no_point_where_the_number_of_tokens_is_not_known(record: Path) -> None:
    lines = [journal_line(step) for step in (10, 20)]
    lines[1]["metrics"]["train/tokens"] = float("nan")
    write_journal(Path("results/phases/phase1/metrics.jsonl"), lines)
    points = read_entry(record).points
    by = {axis: [one.step for one in points if one.key == f"by_{axis}/mlm_loss"] for axis in ("samples", "tokens")}
    assert by["samples"][:2] == [2560, 5120]
    assert by["tokens"] == [250_000]


def test_long_parameters_are_cut_and_many_are_sent_in_batches(record: Path) -> None:
    path = Path("results/phases/phase1/recipe.json")
    recipe = json.loads(path.read_text())
    recipe["settings"] |= {f"extra_{number}": number for number in range(150)} | {"long": "x" * 9000}
    write(path, recipe)
    track([record], uri())
    parameters = runs()["phase1"].data.params
    assert parameters["extra_149"] == "149"
    assert len(parameters["long"]) == 6000
    assert track([record], uri())["sent"] == 0


def test_long_names_are_shortened_and_stay_distinct(record: Path) -> None:
    path = Path("results/phases/phase1/recipe.json")
    recipe = json.loads(path.read_text())
    keys = [f"{'x' * 300}{number}" for number in range(3)]
    recipe["settings"] |= dict.fromkeys(keys, "a value")
    write(path, recipe | {"versions": {key: "1" for key in keys}})
    lines = [journal_line(step) for step in (10, 20)]
    for line in lines:
        line["metrics"] |= dict.fromkeys(keys, 1.0)
    write_journal(Path("results/phases/phase1/metrics.jsonl"), lines)
    track([record], uri())
    phase = runs()["phase1"]
    for held in (phase.data.params, phase.data.metrics, phase.data.tags):
        shortened = [key for key in held if "x" * 200 in key]
        assert len(shortened) == 3
        assert {len(key) for key in shortened} == {250}
    assert track([record], uri())["sent"] == 0
    assert runs()["phase1"].info.run_id == phase.info.run_id


def artifact_folders() -> set[str]:
    return {run.info.artifact_uri.partition("/mlartifacts/")[0] for run in runs().values()}


@pytest.mark.slow
@pytest.mark.parametrize("move", [shutil.move, shutil.copytree])
def test_a_project_that_was_moved_or_copied_writes_its_files_next_to_its_database(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, move: Callable[[Path, Path], object]
) -> None:
    before, after = tmp_path / "before", tmp_path / "after 100%"
    before.mkdir()
    for part in ("results", "mlflow.db"):
        shutil.move(part, before / part)
    # In processes of their own: MLflow remembers where a run's files are.
    # Another test may have left MLFLOW_TRACKING_URI behind: MLflow sets it.
    command = [sys.executable, str(SCRIPT), str(record), "--uri", "sqlite:///mlflow.db"]
    subprocess.run(command, cwd=before, check=True)
    move(before, after)
    old = {path: path.stat().st_mtime_ns for path in before.glob("**/*")}
    monkeypatch.chdir(after)
    recipe = Path("results/phases/phase1/recipe.json")
    write(recipe, json.loads(recipe.read_text()) | {"note": "new"})
    subprocess.run(command, check=True)
    assert artifact_folders() == {str(after)}
    assert Path(runs()["phase1"].info.artifact_uri, "recipe.json").read_bytes() == recipe.read_bytes()
    assert {path: path.stat().st_mtime_ns for path in before.glob("**/*")} == old


def test_a_copied_database_without_its_files_is_one_line(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track([record], uri())
    copy = tmp_path / "copy"
    shutil.copytree("results", copy / "results")
    shutil.copy("mlflow.db", copy)
    monkeypatch.chdir(copy)
    with pytest.raises(
        BertlineError, match=r"^\S*/copy/mlflow\.db was copied without its files; copy \S*/mlartifacts [^\n]*$"
    ):
        track([record], uri())


def test_a_database_elsewhere_keeps_its_files_next_to_it(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shutil.copy("mlflow.db", shared)
    track([record], f"sqlite:///{shared}/mlflow.db")
    assert (shared / "mlartifacts").is_dir()
    assert not Path("mlartifacts").exists()


def test_one_broken_record_does_not_keep_the_others_back(record: Path) -> None:
    write(Path("broken.json"), {"run": "broken"})
    with pytest.raises(BertlineError, match=r"broken\.json lacks the key"):
        track([Path("broken.json"), record], uri())
    assert "phase1" in runs()


def test_an_unusable_store_is_one_line(record: Path) -> None:
    Path("mlflow.db").write_bytes(b"this is not a database, but a text" * 100)
    with pytest.raises(BertlineError, match=r"^MLflow at sqlite:///.*mlflow\.db[^\n]*$"):
        track([record], uri())


def test_a_database_of_a_newer_schema_is_one_line_and_costs_no_copy(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sqlite_file, "_upgrade")
    with closing(sqlite3.connect("mlflow.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        database.commit()
    with pytest.raises(BertlineError, match=r"^MLflow cannot upgrade [^\n]* install the MLflow that wrote it$"):
        initialise(uri())
    assert not list(Path().glob(".mlflow.db.upgrade-*"))


def test_a_prepared_database_is_not_changed(record: Path) -> None:
    initialise(uri())  # MLflow adds its Default experiment when it first opens a database.
    before = Path("mlflow.db").read_bytes()
    initialise(uri())
    assert Path("mlflow.db").read_bytes() == before


def test_a_password_in_the_address_is_not_shown() -> None:
    with (
        pytest.raises(BertlineError) as failure,
        store.one_line_errors("postgresql://someone:sec/ret@key@host/mlflow"),
    ):
        raise requests.ConnectionError("http://someone:secret@host refused")
    assert "postgresql://host/mlflow refused (http://host refused)" in str(failure.value)


def test_a_server_that_is_down_is_one_line(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(BertlineError, match=r"^MLflow at http://127\.0\.0\.1:9 does not answer; [^\n]*$"):
        track([record], "http://127.0.0.1:9")


REACHED = "API request to /api failed with exception HTTPSConnectionPool(host='h', port=443): Max retries exceeded "


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (
            f"{REACHED}(Caused by SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate "
            "verify failed: self-signed certificate (_ssl.c:1006)')))",
            r"has a certificate that is not trusted here \(.*self-signed certificate.*MLFLOW_TRACKING_SERVER_CERT_PATH",
        ),
        (
            f"{REACHED}(Caused by SSLError(SSLError(1, '[SSL: WRONG_VERSION_NUMBER] wrong version number')))",
            r"allows no encrypted connection \(.*WRONG_VERSION_NUMBER.*check whether it is http:// or https://",
        ),
        (
            f"{REACHED}(Caused by ResponseError('too many 500 error responses'))",
            r"answers only with errors \(too many 500 error responses\); see the server's log",
        ),
    ],
)
def test_a_server_that_answers_is_not_said_to_be_down(reason: str, line: str) -> None:
    with (
        pytest.raises(BertlineError, match=rf"^MLflow at https://h {line}") as caught,
        store.one_line_errors("https://h"),
    ):
        raise MlflowException(reason)
    assert "does not answer" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["mlflow.uni.edu", "localhost:5000", "./mlruns", "file:///home/mlruns", "ftp://h/m"]
)
def test_an_address_that_mlflow_cannot_use_is_one_line_that_says_so(record: Path, address: str) -> None:
    with pytest.raises(BertlineError, match=rf"^{address} is not an address [^\n]*https://[^\n]*sqlite:///[^\n]*$"):
        track([record], address)


@pytest.mark.parametrize(
    "address",
    ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:runs.db?uri=true", "sqlite+pysqlite:///runs.db"],
)
def test_an_address_of_sqlite_without_a_file_is_one_line_and_makes_none(record: Path, address: str) -> None:
    before = set(Path.cwd().iterdir())
    refusal = rf"^{re.escape(address.partition('?')[0])}\S* is not sqlite:/// and the path of a [^\n]* in this form$"
    for use in (lambda: track([record], address), lambda: initialise(address)):
        with pytest.raises(BertlineError, match=refusal):
            use()
    assert set(Path.cwd().iterdir()) == before


@pytest.mark.parametrize("name", ["MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD"])
def test_a_secret_with_the_end_of_a_line_is_refused_and_never_shown(
    record: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv(name, "abcdefgh\r")
    with pytest.raises(BertlineError, match=rf"^{name} ends with white space") as caught:
        track([record], "http://127.0.0.1:9")
    assert "abcdefgh" not in str(caught.value)
    with pytest.raises(BertlineError) as caught, store.one_line_errors("http://127.0.0.1:9"):
        raise MlflowException("Invalid header value 'Bearer abcdefgh\\r'")
    assert "abcdefgh" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://[::1/m",
        "https://someone:abc[d@host/m",
        "https://someone:abc/d@host/m",
        "https://someone:abc#d@host/m",
        "http://host:99999",
        "http://host:abcd",
        "postgresql://someone:abc[d@host/m",
        "postgresql://someone:abc@d@host/m",
        "https://someone:xyz abc@host/m",
        "postgresql://someone:xyz\u00a0abc@host/m",
        "postgresql://host:abcd/m",
        "postgresql://host:99999/m",
    ],
)
def test_an_address_that_cannot_be_read_is_one_line_without_its_password(
    record: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(store, "_new_client", lambda _: pytest.fail("MLflow would try it for a minute"))
    scheme = re.escape(address.partition(":")[0])
    remedy = "percent-encode " if "@" in address else "correct them$"
    refusal = rf"^MLflow's address, {scheme}://\.\.\., has no readable host and port; {remedy}[^\n]*$"
    for use in (lambda: track([record], address), lambda: initialise(address), lambda: store.check_server(address)):
        with pytest.raises(BertlineError, match=refusal) as caught:
            use()
        assert "abc" not in str(caught.value)


@pytest.mark.parametrize("character", ["/", "#", "?", "%2F"])
def test_the_host_of_a_database_is_found_behind_any_password_that_it_can_have(
    record: Path, monkeypatch: pytest.MonkeyPatch, character: str
) -> None:
    monkeypatch.setattr(store, "_new_client", lambda _: pytest.fail("MLflow would try it for a minute"))
    with pytest.raises(BertlineError, match=r"^MLflow at postgresql://127\.0\.0\.1:9/m does not answer"):
        track([record], f"postgresql://someone:abc{character}d@127.0.0.1:9/m")


@pytest.mark.parametrize("address", ["sqlite:///mlflow.db\n", " http://127.0.0.1:9", "http://127.0.0.1:9\r"])
def test_an_address_with_the_end_of_a_line_is_one_line_and_makes_no_file(record: Path, address: str) -> None:
    before = set(Path.cwd().iterdir())
    with pytest.raises(
        BertlineError, match=r"^MLflow's address begins or ends with white space; set MLFLOW_TRACKING_URI"
    ):
        track([record], address)
    assert set(Path.cwd().iterdir()) == before


def test_a_home_folder_that_no_shell_replaced_is_one_line_and_makes_no_folder(record: Path) -> None:
    with pytest.raises(BertlineError, match=r"^sqlite:///~/runs\.db has a ~, which only a shell replaces; write "):
        track([record], "sqlite:///~/runs.db")
    assert not Path("~").exists()


def test_after_a_file_that_was_tried_in_vain_no_other_is_tried(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def log_artifact(client: MlflowClient, run_id: str, path: str, folder: str | None = None) -> None:
        tried.append(path)
        raise MlflowException(f"{REACHED}(Caused by NewConnectionError('connection refused'))")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_artifact", log_artifact)
        with pytest.raises(BertlineError, match=r"has all points, but its artifact store did not take"):
            track([record], uri())
    assert len(tried) == 1
    assert curves(runs()["phase1"]) == journal("results/phases/phase1/metrics.jsonl")
    track([record], uri())
    assert [file.path for file in MlflowClient(uri()).list_artifacts(runs()["phase1"].info.run_id)] == ["recipe.json"]


def test_a_database_that_is_down_is_one_line_before_mlflow_tries_it(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_new_client", lambda _: pytest.fail("MLflow tries for two minutes"))
    for scheme in ("postgresql", "postgresql+psycopg2", "mysql+pymysql"):
        with pytest.raises(
            BertlineError, match=rf"^MLflow at {re.escape(scheme)}://127\.0\.0\.1:9/m does not answer; "
        ):
            track([record], f"{scheme}://someone:secret@127.0.0.1:9/m")
    with pytest.raises(BertlineError, match="does not answer"):
        track([record], f"postgresql://{'a' * 70}/m")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql:///mlflow",
        "postgresql://a,b/m",
        "postgresql://127.0.0.1:9/m?host=/var/run/postgresql",
        "mysql+pymysql://u:p@127.0.0.1:9/m?unix_socket=/var/run/mysqld/mysqld.sock",
        "mssql+pyodbc://u:p@name_of_a_source",
        "databricks",
    ],
)
def test_an_address_without_one_host_is_left_to_mlflow(
    record: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    given: list[str] = []
    monkeypatch.setattr(store, "_new_client", given.append)
    store.connect(address)
    assert given == [address]
    assert record


def test_following_sends_what_comes_and_survives_a_failed_pass(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = unfinish("phase1", durable=50)
    sent = []

    def sleep(seconds: float) -> None:
        sent.append(len(stored_points(runs()["phase1"])))
        if len(sent) == 1:
            write(folder / "checkpoints" / "durable.json", {"step": 100})
        elif len(sent) == 2:
            (folder / "checkpoints" / "durable.json").write_text("{")
        elif len(sent) == 3:
            write(folder / "checkpoints" / "durable.json", {"step": 150})
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(following.time, "sleep", sleep)
    store.follow([record], uri(), 5)
    journals = "results/phases/phase1/checkpoints/journal.jsonl"
    assert sent == [len(journal(journals, last_step=step)) for step in (50, 100, 100, 150)]


def test_following_reports_once_that_a_server_does_not_answer(
    record: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passes: list[float] = []

    def sleep(seconds: float) -> None:
        passes.append(seconds)
        if len(passes) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(following.time, "sleep", sleep)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store.follow([record], "http://127.0.0.1:9", 5)
    assert len([line for line in caplog.messages if "does not answer" in line]) == 1


@pytest.mark.fault(row="tracker")
def test_a_follower_sends_everything_after_an_hour_without_a_server(
    record: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, clock, every = unfinish("phase1", durable=10), [0.0], 15.0
    connect, tried = store.connect, []

    def connect_after_an_hour(address: str) -> MlflowClient:
        tried.append(clock[0])
        if clock[0] < 3600:
            raise MlflowException("API request failed: Max retries exceeded with url: /api")
        return connect(address)

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] % 600 == 0:  # the training goes on
            write(folder / "checkpoints/durable.json", {"step": min(10 * int(clock[0]) // 600 * 3, 200)})
        if clock[0] > 3700:
            raise KeyboardInterrupt

    monkeypatch.setattr(store, "connect", connect_after_an_hour)
    monkeypatch.setattr(following.time, "sleep", sleep)
    store.follow([record], uri(), every)
    assert len([time for time in tried if time < 3600]) == 3600 / every
    assert len([line for line in caplog.messages if "does not answer" in line]) == 1
    assert curves(runs()["phase1"]) == journal("results/phases/phase1/checkpoints/journal.jsonl", last_step=180)


@pytest.mark.slow
def test_two_trackers_and_a_fresh_database_leave_every_point_once(record: Path) -> None:
    Path("mlflow.db").unlink()
    command = [sys.executable, str(SCRIPT), str(record), "--uri", URI, "--output"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    trackers = [subprocess.Popen([*command, f"tracked-{number}.json"], env=environment) for number in range(2)]
    assert [tracker.wait(timeout=120) for tracker in trackers] == [0, 0]
    held = runs(ViewType.ALL)
    assert curves(held["phase1"]) == journal("results/phases/phase1/metrics.jsonl")
    markers = [json.loads(Path(f"tracked-{number}.json").read_text()) for number in range(2)]
    assert markers[0]["runs"] == markers[1]["runs"]
    assert sorted(marker["sent"] for marker in markers)[0] == 0


def another_recipe(record: Path, run: str = "demo", fingerprint: str = "f" * 16) -> Path:
    """The record of a run that has the data and phase1 of `record`, and a phase2 and tasks of its own, not started."""
    content = json.loads(record.read_text())
    content |= {"run": run, "fingerprint": fingerprint}
    content["phases"][1] |= {"fingerprint": "other", "path": "results/phases/other"}
    content["finetunings"] = []
    path = Path(f"results/runs/{run}/record-{fingerprint}.json")
    write(path, content)
    return path


def parent_of(run: Run) -> str:
    return run.data.tags["mlflow.parentRunId"]


def test_a_phase_that_two_runs_share_is_one_mlflow_run_linked_from_both(record: Path) -> None:
    other = another_recipe(record, run="other")
    track([record, other], uri())
    held = runs()  # fails if a name is there twice
    assert parent_of(held["phase1"]) == parent_of(held["data"]) == held["demo"].info.run_id
    link = f"[phase1](#/experiments/{held['demo'].info.experiment_id}/runs/{held['phase1'].info.run_id})"
    assert link in held["other"].data.tags["mlflow.note.content"]
    assert "Shared" not in held["demo"].data.tags["mlflow.note.content"]
    before = {name: run.data.tags for name, run in held.items()}
    assert track([record, other], uri())["sent"] == 0
    assert {name: run.data.tags for name, run in runs().items()} == before


def test_a_shared_phase_moves_when_the_run_above_it_is_deleted(record: Path) -> None:
    other = another_recipe(record, run="other")
    track([record, other], uri())
    MlflowClient(uri()).delete_run(runs()["demo"].info.run_id)
    track([other], uri())
    assert parent_of(runs()["phase1"]) == runs()["other"].info.run_id


def test_a_changed_recipe_supersedes_the_old_run_and_takes_over_what_both_have(record: Path) -> None:
    track([record], uri())
    old = runs()["demo"].info.run_id
    changed = another_recipe(record)
    track([changed], uri())
    client = MlflowClient(uri())
    experiment = client.get_experiment_by_name("bertline").experiment_id
    roots = client.search_runs([experiment], "tags.`bertline.stage` = 'run'")
    marks = {run.info.run_id: run.data.tags.get(publishing.SUPERSEDED_TAG) for run in roots}
    (new,) = set(marks) - {old}
    assert marks == {old: "f" * 16, new: None}
    (phase1,) = client.search_runs([experiment], "tags.`bertline.stage` = 'phase1'")
    assert parent_of(phase1) == new
    track([record], uri())  # the recipe was changed back
    roots = client.search_runs([experiment], "tags.`bertline.stage` = 'run'")
    assert {run.info.run_id: run.data.tags.get(publishing.SUPERSEDED_TAG) for run in roots} == {
        old: None,
        new: "0123456789abcdef",
    }


def test_a_run_that_is_superseded_while_it_trains_is_killed_and_revived_if_it_goes_on(record: Path) -> None:
    """Nothing else would ever end it: its recipe is not trained any more."""
    unfinish("phase1", durable=50)
    track([record], uri())
    before = runs()["demo"].info
    assert before.status == "RUNNING"
    content = json.loads(record.read_text())
    changed = record.with_name("record-fedcba9876543210.json")
    write(changed, content | {"fingerprint": "fedcba9876543210"})
    track([changed], uri())
    client = MlflowClient(uri())
    assert client.get_run(before.run_id).info.status == "KILLED"
    assert runs()["demo"].info.status == "RUNNING"
    track([record], uri())
    assert client.get_run(before.run_id).info.status == "RUNNING"
    assert [run.info.run_id for run in runs().values() if run.info.run_name == "demo"] == [before.run_id]


def statuses() -> dict[tuple[str, str], tuple[str, bool]]:
    """Return by experiment and name the status of each run, and whether it is superseded."""
    client = MlflowClient(uri())
    names = {one.experiment_id: one.name for one in client.search_experiments()}
    return {
        (names[run.info.experiment_id], run.info.run_name): (
            run.info.status,
            publishing.SUPERSEDED_TAG in run.data.tags,
        )
        for run in client.search_runs(list(names))
    }


def test_in_another_experiment_the_runs_of_the_one_before_end(record: Path) -> None:
    unfinish("phase1", durable=50)
    track([record], uri())
    before = statuses()
    content = json.loads(record.read_text())
    changed = record.with_name("record-fedcba9876543210.json")
    write(changed, content | {"fingerprint": "fedcba9876543210", "experiment": "other"})
    track([changed], uri())
    after = statuses()
    ended = {name for name in before if after[name] == ("KILLED", True)}
    assert ended == {("bertline", name) for name in ("demo", "phase1")}
    assert {name for name in before if after[name][1]} == ended | {("bertline", "squad_v1")}
    assert {name: after["other", name] for _, name in before} == {name: before["bertline", name] for _, name in before}
    track([record], uri())
    assert {name: status for name, status in statuses().items() if name in before} == before


def with_experiment(name: str) -> tuple[dict[str, Any], Path]:
    root = Path(__file__).parents[2] / "config"
    return read_yaml(root / "demo.yaml") | {"experiment": name}, root / "config.schema.yaml"


@pytest.mark.parametrize("name", ["default", "x" * 500])
def test_an_experiment_of_the_schema_is_one_that_mlflow_takes(record: Path, name: str) -> None:
    load(*with_experiment(name))
    write(record, json.loads(record.read_text()) | {"experiment": name})
    track([record], uri())
    assert MlflowClient(uri()).get_experiment_by_name(name) is not None


def test_a_name_of_an_experiment_that_is_too_long_for_mlflow_is_one_line() -> None:
    with pytest.raises(BertlineError, match=r"experiment: given 'x{501}', allowed is text of at most 500 characters$"):
        load(*with_experiment("x" * 501))


def test_mlflows_own_experiment_whose_files_only_a_server_takes_is_one_line(record: Path) -> None:
    write(record, json.loads(record.read_text()) | {"experiment": "Default"})
    with pytest.raises(
        BertlineError, match="experiment: Default is one whose files only a server of MLflow takes; choose"
    ):
        track([record], uri())


def test_in_an_experiment_that_a_person_renamed_the_runs_end(record: Path) -> None:
    unfinish("phase1", durable=50)
    track([record], uri())
    client = MlflowClient(uri())
    client.rename_experiment(client.get_experiment_by_name("bertline").experiment_id, "renamed")
    track([record], uri())
    found = statuses()
    assert found["bertline", "demo"] == found["bertline", "phase1"] == ("RUNNING", False)
    assert found["renamed", "demo"] == found["renamed", "phase1"] == ("KILLED", True)


def test_a_phase_that_a_changed_recipe_no_longer_trains_ends(record: Path) -> None:
    unfinish("phase1", durable=50)
    unfinish("phase2", durable=50)
    track([record], uri())
    track([another_recipe(record)], uri())
    assert statuses()["bertline", "phase1"] == ("RUNNING", False)
    assert statuses()["bertline", "phase2"] == ("KILLED", True)


def sweep(folder: Path, *, finished: int) -> None:
    content = {"name": "demo/phase1", "started": START, "settings": {"steps": 1}, "model": {"layers": 2}, "seed": 1}
    content |= {"device": "2 CPU cores", "options": [], "experiment": "bertline", "scaling": []}
    rows = [{"micro_batch_size": 8, "fits": True, "tokens_per_second": 900.0}]
    write(folder / "sweep.json", content | {"finished": START + finished, "micro_batches": rows})


def test_sweeps_are_sent_with_the_folder_of_the_runs_next_to_them_and_once(record: Path) -> None:
    record.with_name("record.json").symlink_to(record.name)
    for number in range(2):
        sweep(Path(f"results/sweeps/demo/phase1/{number}"), finished=number)
    write(Path("results/sweeps/demo/phase2/0/sweep.json"), {"name": "damaged"})
    line = r"^results/sweeps/demo/phase2/0/sweep\.json lacks [^;]*; [^;]* delete its folder and run `make sweep` again$"
    for _ in range(2):
        with pytest.raises(BertlineError, match=line):
            track(["results/runs"], uri())
        client = MlflowClient(uri())
        sent = client.search_runs(
            [client.get_experiment_by_name("bertline").experiment_id], "tags.`bertline.stage` = 'sweep'"
        )
        assert [run.data.metrics["micro_batches/tokens_per_second"] for run in sent] == [900.0, 900.0]
        assert [len(stored_points(run, client)) for run in sent] == [2, 2]
    shutil.rmtree("results/sweeps/demo/phase2")
    assert track(["results/runs"], uri())["sent"] == 0
    known: dict = {}
    track(["results/runs"], uri(), known=known)
    assert len(known) == 3
    shutil.rmtree("results/runs")  # `make sweep` needs no run
    sweep(Path("results/sweeps/demo/phase1/2"), finished=2)
    assert track(["results/runs"], uri())["sent"] == 2


def test_a_follower_does_not_read_a_run_again_of_which_no_file_changed(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict = {}
    reads: list[Path] = []
    read_entry = store.read_entry

    def counted(path: Path, report: Path | None = None) -> Entry:
        reads.append(path)
        return read_entry(path, report)

    monkeypatch.setattr(store, "read_entry", counted)
    folder = unfinish("phase1", durable=100)
    track([record], uri(), known=known)
    del reads[:]
    track([record], uri(), known=known)
    assert not reads
    (folder / "checkpoints" / "journal.jsonl").touch()  # as if it had a point that may be taken back
    assert track([record], uri(), known=known)["sent"] == 0
    assert len(reads) == 1
    track([record], uri(), known=known)
    assert len(reads) == 1
    write(folder / "checkpoints" / "durable.json", {"step": 200})
    assert track([record], uri(), known=known)["sent"] > 0


def test_a_follower_sees_every_file_that_it_reads(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinish("phase2", durable=100)
    page = write_report([record], Path("report"))
    opened, open_file = set(), io.open

    def recorded(file: Any, *arguments: Any, **options: Any) -> Any:
        opened.add(Path(file).absolute())
        return open_file(file, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(io, "open", recorded)
        read_entry(record, page)
    assert {"metrics.jsonl", "journal.jsonl", "dataset.json", "files.json"} <= {path.name for path in opened}
    assert opened <= {path.absolute() for path in changes_of_inputs(record, page)}


def test_a_follower_sends_a_file_that_changed_though_its_run_did_not(record: Path) -> None:
    report, known = Path("index.html"), {}

    def sizes() -> list[int]:
        artifacts = MlflowClient(uri()).list_artifacts(runs()["demo"].info.run_id)
        return [file.file_size for file in artifacts if file.path in (report.name, record.name)]

    for text in ("<p>first", "<p>second, which is longer"):
        report.write_text(text)
        write(record, json.loads(record.read_text()) | {"model_card": {"license": text}})
        track([record], uri(), report, known)
        assert sizes() == [len(text), record.stat().st_size]


def test_without_any_run_what_to_do_is_said(record: Path) -> None:
    shutil.rmtree("results/runs")
    for _ in range(2):
        with pytest.raises(BertlineError, match=r"^results/runs contains no run yet; run snakemake first$"):
            track(["results/runs"], uri())
        Path("results/runs").mkdir(exist_ok=True)


def test_the_loss_is_on_the_axes_by_which_runs_are_compared(record: Path) -> None:
    track([record], uri())
    client, run = MlflowClient(uri()), runs()["demo"]
    history = sorted(client.get_metric_history(run.info.run_id, "by_tokens/mlm_loss"), key=lambda point: point.step)
    first = [(point.step, point.value) for point in history][:2]
    lines = read_journal(Path("results/phases/phase1/metrics.jsonl"))
    assert first == [(int(line.metrics["train/tokens"]), line.metrics["train/mlm_loss"]) for line in lines[:2]]
    last = read_journal(Path("results/phases/phase2/metrics.jsonl"))[-1]
    assert history[-1].step == lines[-1].metrics["train/tokens"] + last.metrics["train/tokens"]
    assert {"by_samples/held_out_mlm_loss", "by_seconds/mlm_loss"} <= run.data.metrics.keys()


def test_the_figures_and_tables_of_the_report_are_artifacts_of_the_run(record: Path) -> None:
    report = write_report([record], Path("report"))
    track([record], uri(), report)
    client, run = MlflowClient(uri()), runs()["demo"]
    stored = {file.path for folder in ("figures", "tables") for file in client.list_artifacts(run.info.run_id, folder)}
    assert {"figures/scores.svg", "figures/loss-by-tokens.svg", "tables/summary.csv"} <= stored
    assert "demo.md" in {file.path for file in client.list_artifacts(run.info.run_id)}


def test_a_recipe_that_was_never_trained_gets_no_file_of_the_one_before(record: Path) -> None:
    """The report of what succeeded when a run of the workflow fails is in one folder, whatever the recipe."""
    other = record.with_name("record-ffffffffffffffff.json")
    changed = {"fingerprint": "f" * 16, "phases": [], "finetunings": [], "kept": {}}
    write(other, json.loads(record.read_text()) | changed)
    report = write_report([record], Path("report"))
    assert {artifact.folder for artifact in read_entry(record, report).artifacts} == {"", "figures", "tables"}
    # The report is of the recipe before, and then of both, one after the other.
    assert [artifact.path for artifact in read_entry(other, report).artifacts] == [other.resolve(), report]
    write_report([other], Path("report"))
    sent = {str(artifact.path) for artifact in read_entry(other, report).artifacts}
    assert not {path for path in sent if "loss" in path or "scores.svg" in path or path.endswith(".md")}
    assert {"report/tables/demo/corpora.csv", "report/figures/demo/documents.svg"} < sent
