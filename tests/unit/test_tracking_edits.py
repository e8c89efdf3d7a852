"""What people change in MLflow's pages stays, and equal settings in another spelling make no second run."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from synthetic_runs import START, journal_line, write, write_journal, write_run

from bertline.results.report_files import ReportFiles
from bertline.tracking import publishing
from bertline.tracking.origin import read_origin
from bertline.tracking.sending import digest_of_lines
from bertline.tracking.store import track

DESCRIPTION = "mlflow.note.content"
PHASE1 = Path("results/phases/phase1")


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_database: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(fresh_database, "mlflow.db")
    return write_run(tmp_path, tasks=("cola",), seeds=1, steps=60)


def uri() -> str:
    # MLflow remembers a store by its URI within a process, so every test gives its own, absolute one.
    return f"sqlite:///{Path('mlflow.db').absolute()}"


def runs(view: int = ViewType.ACTIVE_ONLY) -> dict[str, Run]:
    """Return the runs by id."""
    client = MlflowClient(uri())
    experiment = client.get_experiment_by_name("bertline")
    return {run.info.run_id: run for run in client.search_runs([experiment.experiment_id], run_view_type=view)}


def named(name: str) -> Run:
    (run,) = [run for run in runs().values() if run.info.run_name == name]
    return run


def train_to(steps: list[int]) -> None:
    """Write the state of a phase1 in training."""
    for phase in (PHASE1, PHASE1.with_name("phase2")):
        (phase / "metrics.jsonl").unlink(missing_ok=True)
    journal = [journal_line(step, timestamp=START + step) for step in steps]
    write_journal(PHASE1 / "checkpoints/journal.jsonl", journal)
    write(PHASE1 / "checkpoints/durable.json", {"step": steps[-1]})


def test_an_edited_description_stays_and_an_emptied_one_is_written_again(record: Path) -> None:
    track([record], uri())
    client, run_id, sent = MlflowClient(uri()), named("demo").info.run_id, named("demo").data.tags[DESCRIPTION]
    client.set_tag(run_id, DESCRIPTION, "The learning rate is too high: see page 12")
    content = json.loads(record.read_text())
    for text in ("A tiny BERT.", "Another text."):
        write(record, content | {"description": text})
        track([record], uri())
        assert named("demo").data.tags[DESCRIPTION] == "The learning rate is too high: see page 12"
    client.set_tag(run_id, DESCRIPTION, "")
    track([record], uri())
    assert named("demo").data.tags[DESCRIPTION].startswith("Another text.")
    write(record, content)
    track([record], uri())
    assert named("demo").data.tags[DESCRIPTION] == sent


def test_runs_that_a_person_restored_stay_next_to_those_that_were_made_again(
    record: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="bertline")
    track([record], uri())
    client, old = MlflowClient(uri()), runs().keys()
    for run_id in old:
        client.delete_run(run_id)
    track([record], uri())
    for run_id in old:
        client.restore_run(run_id)
    both = runs().keys()
    assert len(both) == 2 * len(old)
    for _ in range(2):
        assert track([record], uri())["sent"] == 0
        assert runs().keys() == both
    assert not [line for line in caplog.messages if "two trackers" in line]


def test_of_a_restored_run_and_its_successor_the_one_with_more_points_continues(record: Path) -> None:
    client, ids = MlflowClient(uri()), []
    for steps in ([10], [10, 20]):
        train_to(steps)
        track([record], uri())
        ids.append(named("phase1").info.run_id)
        client.delete_run(ids[-1])
    for run_id in ids:
        client.restore_run(run_id)
    train_to([10, 20, 30])
    track([record], uri())
    last = {run_id: client.get_metric_history(run_id, "train/mlm_loss")[-1].step for run_id in ids}
    assert last == {ids[0]: 10, ids[1]: 30}


def test_a_run_that_a_killed_tracker_left_is_withdrawn(record: Path) -> None:
    track([record], uri())
    client, complete = MlflowClient(uri()), named("phase1")
    kept = {
        key: value
        for key, value in complete.data.tags.items()
        if key.startswith("bertline.") or key == "mlflow.parentRunId"
    }
    started = {publishing.SENT_TAG: json.dumps({"sending": [0, digest_of_lines([])]})}
    experiment = complete.info.experiment_id
    left = [client.create_run(experiment, START - 1, kept | started, "phase1").info.run_id for _ in range(2)]
    track([record], uri())
    assert named("phase1").info.run_id == complete.info.run_id
    assert {run for run in runs(ViewType.DELETED_ONLY)} == set(left)


def test_a_damaged_note_of_somebody_else_does_not_matter(
    record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    track([record], uri())
    store, mine = uri(), read_origin()
    other = tmp_path / "other"
    write_run(other, tasks=("cola",), seeds=1, steps=60)
    monkeypatch.chdir(other)
    monkeypatch.setattr(f"{__name__}.uri", lambda: store)
    for run_id in runs():
        MlflowClient(store).set_tag(run_id, publishing.SENT_TAG, "damaged")
    before = runs().keys()
    assert track([record], store)["sent"] > 0
    assert {run.data.tags["bertline.origin"] == mine for run_id, run in runs().items() if run_id in before} == {True}
    assert len(runs()) == 2 * len(before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"max_gradient_norm": 1.0}, {"max_gradient_norm": 1}),
        ({"betas": [0.9, 1.0]}, {"betas": [0.9, 1]}),
        ({"finetune": {"cola": {"keep": "best"}}}, {"finetune": {"cola": {"keep": "all"}}}),
        ({"sources": {"w": {"encoding": "utf8"}}}, {"sources": {"w": {"encoding": "utf-8"}}}),
    ],
)
def test_settings_of_equal_fingerprint_are_those_of_one_run(
    record: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    content = json.loads(record.read_text())
    write(record, content | {"config": content["config"] | before})
    track([record], uri())
    ids, parameters = runs().keys(), named("demo").data.params
    write(record, content | {"config": content["config"] | after})
    assert track([record], uri())["sent"] == 0
    assert runs().keys() == ids
    assert named("demo").data.params == parameters
    assert publishing.SUPERSEDED_TAG not in named("demo").data.tags


def figures(number: int) -> Path:
    """Write a report with figures of long names."""
    files = ReportFiles(Path("report"))
    for one in range(number):
        name = f"figures/demo/fine-tuning-of-a-task-of-their-own-number-{one:04d}.svg"
        files.write(name, "<svg/>", "0123456789abcdef")
    files.finish()
    (files.folder / "index.html").write_text("<p>report")
    return files.folder / "index.html"


@pytest.mark.parametrize("number", [130, 300])
def test_a_run_with_hundreds_of_files_is_sent_again_and_again(record: Path, number: int) -> None:
    report = figures(number)
    for _ in range(3):
        track([record], uri(), report)
        assert len(named("demo").data.tags[publishing.SENT_TAG]) < 8000
    files = MlflowClient(uri()).list_artifacts(named("demo").info.run_id, "figures")
    assert len(files) == number
