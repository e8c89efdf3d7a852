"""Several people, copies of a project and several trackers share one store of MLflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.exceptions import MlflowException
from synthetic_runs import START, journal_line, write, write_journal, write_run

from bertline.console import BertlineError
from bertline.results.journal import read_journal
from bertline.results.records import read_record
from bertline.tracking import publishing
from bertline.tracking.origin import read_origin
from bertline.tracking.run_tree import Entry, lay_out
from bertline.tracking.store import read_entry, track

SCRIPT = Path(__file__).parents[2] / "workflow" / "scripts" / "track.py"
RECORD = Path("results/runs/demo/record-0123456789abcdef.json")
PHASE1 = Path("results/phases/phase1")


@pytest.fixture
def uri(tmp_path: Path, fresh_database: Path) -> str:
    shutil.copy(fresh_database, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def anna(tmp_path: Path) -> Path:
    return checkout(tmp_path / "anna")


def checkout(folder: Path, *, later: int = 0) -> Path:
    """A project of the one configuration, trained `later` milliseconds after the first."""
    write_run(folder, tasks=("cola",), seeds=1)
    for journal in folder.glob("results/*/*/metrics.jsonl"):
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        write_journal(journal, [line | {"timestamp": line["timestamp"] + later} for line in lines])
    return folder


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def track_in(folder: Path, uri: str) -> dict[str, Any]:
    with inside(folder):
        return track([RECORD], uri)


def runs(uri: str, view: int = ViewType.ACTIVE_ONLY) -> dict[str, Run]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("bertline")
    return {run.info.run_id: run for run in client.search_runs([experiment.experiment_id], run_view_type=view)}


def names(uri: str) -> Counter[str]:
    return Counter(run.info.run_name for run in runs(uri).values())


def tags(uri: str) -> dict[str, dict[str, str]]:
    return {run_id: run.data.tags for run_id, run in runs(uri).items()}


def assert_nothing_was_deleted(uri: str) -> None:
    assert not runs(uri, ViewType.DELETED_ONLY)


def losses(uri: str, run: Run) -> list[tuple[int, int]]:
    """Return the step and the time of each loss of a run."""
    history = MlflowClient(uri).get_metric_history(run.info.run_id, "train/mlm_loss")
    return sorted((metric.step, metric.timestamp) for metric in history)


def written(folder: Path) -> list[tuple[int, int]]:
    """Return the same of the journal of phase1."""
    paths = (folder / PHASE1 / "metrics.jsonl", folder / PHASE1 / "checkpoints/journal.jsonl")
    return sorted((point.step, point.timestamp) for path in paths for point in read_journal(path))


def phases(uri: str) -> list[list[tuple[int, int]]]:
    return sorted(losses(uri, run) for run in runs(uri).values() if run.info.run_name == "phase1")


def train_to(folder: Path, steps: list[int], *, later: int = 0, after: int = 0) -> None:
    """Write the state of a phase1 in training. Steps beyond `after` were made `later` milliseconds later."""
    started = folder / PHASE1 / "checkpoints"
    if not started.exists():
        (folder / PHASE1 / "metrics.jsonl").unlink()
        (folder / "results/phases/phase2/metrics.jsonl").unlink()
    lines = [journal_line(step, timestamp=START + step + (later if step > after else 0)) for step in steps]
    write_journal(started / "journal.jsonl", lines)
    write(started / "durable.json", {"step": steps[-1]})


def test_equal_configurations_of_two_people_are_separate_runs(tmp_path: Path, uri: str, anna: Path) -> None:
    bert = checkout(tmp_path / "bert", later=1_000_000)
    track_in(anna, uri)
    alone = names(uri)
    track_in(bert, uri)
    both = tags(uri)
    assert names(uri) == alone + alone
    assert [track_in(folder, uri)["sent"] for folder in (anna, bert, anna, bert)] == [0] * 4
    assert tags(uri) == both
    assert_nothing_was_deleted(uri)
    assert phases(uri) == sorted([written(anna), written(bert)])
    origins = [tags_of_run["bertline.origin"] for tags_of_run in both.values()]
    assert sorted(Counter(origins).values()) == [sum(alone.values())] * 2
    for tags_of_run in both.values():
        parent = tags_of_run.get("mlflow.parentRunId")
        assert parent is None or both[parent]["bertline.origin"] == tags_of_run["bertline.origin"]


def test_a_run_has_an_owner_and_the_place_it_was_sent_from(
    uri: str, anna: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "anna")
    track_in(anna, uri)
    (origin,) = {tags_of_run["bertline.origin"] for tags_of_run in tags(uri).values()}
    assert origin == (anna / "results/origin").read_text().strip()
    assert {tags_of_run["mlflow.user"] for tags_of_run in tags(uri).values()} == {"anna"}
    assert {tags_of_run["bertline.place"] for tags_of_run in tags(uri).values()} == {f"{os.uname().nodename}:{anna}"}
    monkeypatch.setenv("LOGNAME", "bert")  # a colleague tracks the same results
    assert track_in(anna, uri)["sent"] == 0
    assert {tags_of_run["mlflow.user"] for tags_of_run in tags(uri).values()} == {"anna"}
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "anna@university")
    client = MlflowClient(uri)
    for run_id in runs(uri):
        client.delete_run(run_id)
    track_in(anna, uri)
    assert {run.info.user_id for run in runs(uri).values()} == {"anna@university"}


@pytest.mark.parametrize("copy", [shutil.copytree, shutil.move])
def test_results_that_were_copied_or_moved_have_the_same_runs(
    tmp_path: Path, uri: str, anna: Path, copy: Callable[[Path, Path], object]
) -> None:
    track_in(anna, uri)
    before = runs(uri)
    copy(anna, tmp_path / "elsewhere")
    assert track_in(tmp_path / "elsewhere", uri)["sent"] == 0
    assert runs(uri).keys() == before.keys()
    assert_nothing_was_deleted(uri)
    places = {tags_of_run["bertline.place"] for tags_of_run in tags(uri).values()}
    assert places == {f"{os.uname().nodename}:{tmp_path / 'elsewhere'}"}


def test_a_copy_that_trains_on_by_itself_gets_runs_of_its_own(tmp_path: Path, uri: str, anna: Path) -> None:
    train_to(anna, [10, 20])
    track_in(anna, uri)
    (first,) = [run_id for run_id, run in runs(uri).items() if run.info.run_name == "phase1"]
    copy = tmp_path / "copy"
    shutil.copytree(anna, copy)
    for step in (30, 40):
        steps = list(range(10, step + 1, 10))
        train_to(anna, steps, after=20)
        train_to(copy, steps, after=20, later=77)
        track_in(anna, uri)
        track_in(copy, uri)
        assert phases(uri) == sorted([written(anna), written(copy)])
    assert losses(uri, runs(uri)[first]) == written(anna)
    assert_nothing_was_deleted(uri)
    assert not any("bertline.superseded_by" in tags_of_run for tags_of_run in tags(uri).values())


def test_a_copy_that_lags_behind_makes_and_deletes_nothing(
    tmp_path: Path, uri: str, anna: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="bertline")
    train_to(anna, [10, 20])
    track_in(anna, uri)
    copy = tmp_path / "copy"
    shutil.copytree(anna, copy)
    train_to(anna, [10, 20, 30, 40])
    track_in(anna, uri)
    assert not caplog.messages
    ids, points = runs(uri).keys(), phases(uri)
    for folder in (copy, anna, copy):
        assert track_in(folder, uri)["sent"] == 0
        assert runs(uri).keys() == ids
        assert phases(uri) == points
    assert caplog.messages == ["MLflow has more points of demo than results/ here, and keeps them: demo, phase1"] * 2
    assert_nothing_was_deleted(uri)
    with inside(copy):  # for its models, too, it is the same run
        entry, experiment = read_entry(RECORD), MlflowClient(uri).get_experiment_by_name("bertline").experiment_id
        found = publishing.find_run(MlflowClient(uri), experiment, entry, read_origin())
    assert found is not None
    assert found.info.run_id in ids
    train_to(copy, [10, 20, 30, 40, 50])  # brought up to date, as by rsync, and first
    assert track_in(copy, uri)["sent"] > 0
    track_in(anna, uri)
    assert runs(uri).keys() == ids
    assert_nothing_was_deleted(uri)


def test_a_run_of_a_copy_is_not_withdrawn_by_a_later_pass(tmp_path: Path, uri: str, anna: Path) -> None:
    _, entry = small_entries(anna)
    with inside(anna):
        publish_with(MlflowClient(uri), entry)
    first = runs(uri).keys()
    client = MlflowClient(uri)
    for run_id in first:
        client.delete_run(run_id)
    copy = tmp_path / "copy"
    copy.mkdir()
    with inside(copy):
        publish_with(client, entry)
    for run_id in first:
        client.restore_run(run_id)
    both = runs(uri).keys()
    for folder in (copy, anna, copy, anna):
        with inside(folder):
            publish_with(client, entry)
        assert runs(uri).keys() == both


@pytest.mark.slow
def test_a_run_that_a_copy_has_just_created_is_not_a_duplicate(tmp_path: Path, uri: str, anna: Path) -> None:
    train_to(anna, [10, 20])
    copy = tmp_path / "copy"
    track_in(anna, uri)
    shutil.copytree(anna, copy)
    for folder, later in ((anna, 0), (copy, 77)):
        train_to(folder, [10, 20, 30], after=10, later=later)  # the copy differs from the second point on
    with inside(copy):
        entry, origin = read_entry(RECORD), read_origin()
    track_in(anna, uri)
    before = runs(uri).keys()
    counted = Paused(uri, 0, lambda: None)
    with inside(copy):
        publish_with(counted, entry, origin=origin)
    for pause in range(1, counted.calls + 1):
        for run_id in runs(uri).keys() - before:
            MlflowClient(uri).delete_run(run_id)
        with inside(copy):
            publish_with(Paused(uri, pause, lambda: track_in(anna, uri) and None), entry, origin=origin)
        assert before <= runs(uri).keys()
        assert phases(uri) == sorted([written(anna), written(copy)])


def test_a_phase_trained_anew_supersedes_the_run_that_its_folder_sent(uri: str, anna: Path) -> None:
    track_in(anna, uri)
    old = written(anna)
    write_journal(anna / PHASE1 / "metrics.jsonl", [journal_line(step, timestamp=START + step) for step in (10, 20)])
    track_in(anna, uri)
    track_in(anna, uri)
    assert_nothing_was_deleted(uri)
    found = {run_id: run for run_id, run in runs(uri).items() if run.info.run_name == "phase1"}
    assert phases(uri) == sorted([old, written(anna)])
    (new,) = [run_id for run_id, run in found.items() if losses(uri, run) == written(anna)]
    marks = {run_id: run.data.tags.get(publishing.SUPERSEDED_TAG) for run_id, run in found.items()}
    assert marks == {run_id: None if run_id == new else new for run_id in found}


def without_origin(uri: str) -> None:
    """Make the runs those of a version that did not write an origin."""
    client = MlflowClient(uri)
    for run_id, tags_of_run in tags(uri).items():
        for key in ("bertline.origin", "bertline.place"):
            if key in tags_of_run:
                client.delete_tag(run_id, key)


def test_runs_without_an_origin_are_adopted_by_the_results_that_they_are_from(
    tmp_path: Path, uri: str, anna: Path
) -> None:
    track_in(anna, uri)
    before = runs(uri)
    without_origin(uri)
    bert = checkout(tmp_path / "bert", later=1_000_000)
    (bert / "results/datasets" / ("d" * 16) / "dataset.json").unlink()  # would be as much Bert's as Anna's
    shutil.rmtree(bert / "results/finetunings")
    track_in(bert, uri)
    assert all("bertline.origin" not in tags(uri)[run_id] for run_id in before)
    assert track_in(anna, uri)["sent"] == 0
    assert all(tags(uri)[run_id]["bertline.origin"] in (anna / "results/origin").read_text() for run_id in before)
    assert_nothing_was_deleted(uri)
    assert len(runs(uri)) == len(before) + 3  # Bert's run and two phases


def test_a_task_without_points_is_adopted_with_the_run_above_it(uri: str, anna: Path) -> None:
    for file in (anna / "results/finetunings/cola-random-0.0005-1").glob("recipe.json"):
        file.unlink()
    track_in(anna, uri)
    before = runs(uri).keys()
    without_origin(uri)
    track_in(anna, uri)
    assert runs(uri).keys() == before


def test_another_experiment_supersedes_no_run_of_another_origin(tmp_path: Path, uri: str, anna: Path) -> None:
    ben = checkout(tmp_path / "ben")
    for folder in (anna, ben):
        journal = folder / PHASE1 / "metrics.jsonl"
        (folder / PHASE1 / "checkpoints").mkdir()
        journal.rename(folder / PHASE1 / "checkpoints/journal.jsonl")
        write(folder / PHASE1 / "checkpoints/durable.json", {"step": 50})
        track_in(folder, uri)
    before = {run_id: (run.info.status, run.data.tags) for run_id, run in runs(uri).items()}
    assert sorted(status for status, _ in before.values()).count("RUNNING") == 4
    content = json.loads((ben / RECORD).read_text())
    write(ben / RECORD, content | {"fingerprint": "f" * 16, "experiment": "other"})
    track_in(ben, uri)
    origin = (anna / "results/origin").read_text().strip()
    after = {run_id: (run.info.status, run.data.tags) for run_id, run in runs(uri).items()}
    changed = {run_id for run_id in before if after[run_id] != before[run_id]}
    assert changed
    assert all(before[run_id][1]["bertline.origin"] != origin for run_id in changed)


def test_a_changed_recipe_supersedes_no_run_of_another_origin(tmp_path: Path, uri: str, anna: Path) -> None:
    bert = checkout(tmp_path / "bert", later=1_000_000)
    track_in(anna, uri)
    content = json.loads((bert / RECORD).read_text()) | {"fingerprint": "f" * 16}
    write(bert / RECORD, content)
    track_in(bert, uri)
    assert not any(publishing.SUPERSEDED_TAG in tags_of_run for tags_of_run in tags(uri).values())


def test_entries_of_checkpoints_of_another_origin_stay(tmp_path: Path, uri: str, anna: Path) -> None:
    bert = checkout(tmp_path / "bert", later=1_000_000)
    copy = tmp_path / "copy"
    for folder in (anna, bert):
        (folder / PHASE1 / "checkpoints/step-00000100").mkdir(parents=True)
        track_in(folder, uri)
    shutil.copytree(bert, copy)
    write_journal(copy / PHASE1 / "metrics.jsonl", [journal_line(step, timestamp=START + step) for step in (10, 100)])
    track_in(copy, uri)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("bertline").experiment_id
    expected = {str(folder / PHASE1 / "checkpoints/step-00000100") for folder in (anna, bert, copy)}
    assert {model.params["path"] for model in client.search_logged_models([experiment])} == expected
    (copy / PHASE1 / "checkpoints/step-00000100").rmdir()
    (anna / PHASE1 / "checkpoints/step-00000100").rmdir()  # what Anna deletes is hers to take away
    track_in(copy, uri)
    expected.remove(str(copy / PHASE1 / "checkpoints/step-00000100"))
    assert {model.params["path"] for model in client.search_logged_models([experiment])} == expected


def test_processes_that_make_the_origin_at_once_get_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from bertline.tracking.origin import read_origin; print(read_origin())"]
    started = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {process.communicate()[0] for process in started}
    assert printed == {(tmp_path / "results/origin").read_text()}
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["origin"]


@pytest.mark.parametrize("content", ["", "not an origin\n", "\x00"])
def test_a_damaged_origin_is_one_line(anna: Path, uri: str, content: str) -> None:
    (anna / "results/origin").write_text(content)
    with pytest.raises(BertlineError, match=r"^results/origin is not 32 hexadecimal digits; restore it, or [^\n]*$"):
        track_in(anna, uri)


@pytest.mark.slow
def test_trackers_with_a_lock_each_make_every_run_once(tmp_path: Path, uri: str, anna: Path) -> None:
    track_in(anna, uri)
    expected = names(uri)
    points = phases(uri)
    for run_id in runs(uri):
        MlflowClient(uri).delete_run(run_id)
    # The lock is named after the file: under these names trackers do not wait for each other.
    uris = [f"sqlite:///{tmp_path}/link{number}.db" for number in range(3)]
    for one in uris:
        Path(one.removeprefix("sqlite:///")).symlink_to(tmp_path / "mlflow.db")
    trackers = [subprocess.Popen([sys.executable, str(SCRIPT), str(RECORD), "--uri", one], cwd=anna) for one in uris]
    assert [tracker.wait(timeout=300) for tracker in trackers] == [0] * 3
    assert names(uri) == expected
    assert phases(uri) == points


class Paused(MlflowClient):
    """A client that hands over to `other` before its call number `pause`."""

    def __init__(self, uri: str, pause: int, other: Callable[[], None]) -> None:
        super().__init__(uri)
        self.calls, self.pause, self.other = 0, pause, other

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name in REQUESTS:
            self.calls += 1
            if self.calls == self.pause:
                self.other()
        return value


REQUESTS = {
    *("get_experiment_by_name", "search_runs", "create_run", "delete_run", "log_batch", "log_artifact", "log_inputs"),
    *("set_tag", "delete_tag", "set_terminated", "update_run", "search_logged_models", "create_logged_model"),
    *("finalize_logged_model", "delete_logged_model"),
}


def publish_with(
    client: MlflowClient, entry: Entry, *, origin: str = "0" * 32, read_again: Callable[[], Entry] | None = None
) -> dict[str, Any]:
    """Publish with the artifacts beside the database: without a folder, MLflow writes to mlruns in the checkout."""
    folder = Path(client.tracking_uri.removeprefix("sqlite:///")).with_name("mlartifacts")
    return publishing.publish(client, entry, folder, origin=origin, read_again=read_again)


def small_entries(folder: Path) -> tuple[Entry, Entry]:
    """The state of a run with one phase at two moments."""
    states = []
    for steps in ([10], [10, 20]):
        train_to(folder, steps)
        with inside(folder):
            entry = lay_out(read_record(RECORD))
        (phase,) = [child for child in entry.children if child.name == "phase1"]
        states.append(replace(entry, artifacts=[], children=[phase]))
    return states[0], states[1]


@pytest.mark.slow
def test_two_trackers_may_stop_each_other_anywhere_while_they_log_a_checkpoint(uri: str, anna: Path) -> None:
    (anna / PHASE1 / "checkpoints/step-00000100").mkdir(parents=True)
    with inside(anna):
        (phase,) = [child for child in lay_out(read_record(RECORD)).children if child.name == "phase1"]
        entry = replace(lay_out(read_record(RECORD)), artifacts=[], children=[phase])
    client = MlflowClient(uri)
    with inside(anna):
        counted = Paused(uri, 0, lambda: None)
        publish_with(counted, entry)
        experiment = client.get_experiment_by_name("bertline").experiment_id
        for pause in range(counted.calls + 1):
            clear(uri)
            for model in client.search_logged_models([experiment]):
                client.delete_logged_model(model.model_id)
            publish_with(Paused(uri, pause, lambda: publish_with(MlflowClient(uri), entry) and None), entry)
            (model,) = client.search_logged_models([experiment])
            assert model.status == "READY"
            assert model.source_run_id in runs(uri)


class Refused(MlflowClient):
    """A client whose first `refusals` writings of parameters the store refuses, as another tracker was first."""

    def __init__(self, uri: str, refusals: int) -> None:
        super().__init__(uri)
        self.refusals = refusals

    def log_batch(self, *arguments: Any, **options: Any) -> None:
        super().log_batch(*arguments, **options)
        self.refusals -= 1
        if self.refusals >= 0:
            message = "BAD_REQUEST: (sqlite3.IntegrityError) UNIQUE constraint failed: params.key, params.run_uuid"
            raise MlflowException(message)


def test_parameters_that_another_tracker_writes_at_the_same_moment_are_not_an_error(uri: str, anna: Path) -> None:
    _, entry = small_entries(anna)
    publish_with(Refused(uri, 2), entry)
    assert_one_of_each(uri, entry)
    clear(uri)
    with pytest.raises(MlflowException, match="UNIQUE constraint failed"):
        publish_with(Refused(uri, 1000), entry)


def assert_one_of_each(uri: str, entry: Entry) -> None:
    assert names(uri) == {"demo": 1, "phase1": 1}
    found = {run.info.run_name: run for run in runs(uri).values()}
    assert found["phase1"].data.tags["mlflow.parentRunId"] == found["demo"].info.run_id
    assert len(losses(uri, found["phase1"])) == sum(point.key == "train/mlm_loss" for point in entry.children[0].points)


def clear(uri: str) -> None:
    for run_id in runs(uri):
        MlflowClient(uri).delete_run(run_id)


def test_a_tracker_may_run_between_any_two_requests_of_another(uri: str, anna: Path) -> None:
    _, entry = small_entries(anna)
    pause, counted = 1, Paused(uri, 0, lambda: None)
    publish_with(counted, entry)
    assert counted.calls > 10
    while pause <= counted.calls:
        clear(uri)
        publish_with(Paused(uri, pause, lambda: publish_with(MlflowClient(uri), entry) and None), entry)
        assert_one_of_each(uri, entry)
        pause += 1


@pytest.mark.slow
def test_the_tracker_of_a_copy_that_lags_behind_may_stop_anywhere(tmp_path: Path, uri: str, anna: Path) -> None:
    """The original's tracker runs before any one of its requests, on an empty store; later passes change nothing."""
    before, after = small_entries(anna)
    copy = tmp_path / "copy"
    copy.mkdir()

    def track_original() -> None:
        with inside(anna):
            publish_with(MlflowClient(uri), after)

    def track_copy(client: MlflowClient) -> None:
        with inside(copy):
            publish_with(client, before, read_again=lambda: before)

    counted = Paused(uri, 0, lambda: None)
    track_copy(counted)
    for pause in range(1, counted.calls + 1):
        clear(uri)
        track_copy(Paused(uri, pause, track_original))
        ids = runs(uri).keys()
        for _ in range(2):
            track_original()
            track_copy(MlflowClient(uri))
        assert runs(uri).keys() == ids
        assert_one_of_each(uri, after)


@pytest.mark.parametrize("first", range(3, 8))  # the root: look, create, look again, withdraw, send
def test_two_trackers_may_stop_each_other_anywhere_while_they_create_a_run(uri: str, anna: Path, first: int) -> None:
    """The first stops before its request `first`, the second before its request `second`; then the first continues."""
    _, entry = small_entries(anna)
    publish_with(MlflowClient(uri), entry)
    for second in range(3, 8):
        clear(uri)
        stopped, ended, problems = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)], []

        def stop(number: int, until: threading.Event, stopped: list[threading.Event] = stopped) -> None:
            stopped[number].set()
            assert until.wait(240)

        def pass_of(
            number: int,
            client: MlflowClient,
            stopped: list[threading.Event] = stopped,
            ended: list[threading.Event] = ended,
            problems: list[Exception] = problems,
        ) -> None:
            try:
                publish_with(client, entry)
            except Exception as error:
                problems.append(error)
            stopped[number].set()
            ended[number].set()

        clients = [
            Paused(uri, first, lambda stop=stop, stopped=stopped: stop(0, stopped[1])),
            Paused(uri, second, lambda stop=stop, ended=ended: stop(1, ended[0])),
        ]
        threads = [threading.Thread(target=pass_of, args=pair) for pair in enumerate(clients)]
        threads[0].start()
        assert stopped[0].wait(240)
        threads[1].start()
        for thread in threads:
            thread.join()
        assert not problems
        assert_one_of_each(uri, entry)


def test_a_tracker_that_read_the_journal_before_another_s_pass_reads_it_again(uri: str, anna: Path) -> None:
    before, after = small_entries(anna)
    publish_with(MlflowClient(uri), after)
    ids = runs(uri).keys()
    publish_with(MlflowClient(uri), before, read_again=lambda: after)
    assert runs(uri).keys() == ids
    assert_one_of_each(uri, after)
    assert not any(publishing.SUPERSEDED_TAG in tags_of_run for tags_of_run in tags(uri).values())
