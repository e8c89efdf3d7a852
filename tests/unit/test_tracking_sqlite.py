"""MLflow's SQLite file of an older version is upgraded as a copy; its paths are those of the folders that exist."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from alembic import command
from alembic.script import ScriptDirectory
from mlflow import MlflowClient
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
from synthetic_runs import write_run

from bertline.console import BertlineError
from bertline.tracking import store
from bertline.tracking.store import initialise, track


def uri() -> str:
    # MLflow remembers a store by its URI within a process, so every test gives its own, absolute one.
    return f"sqlite:///{Path('mlflow.db').absolute()}"


@pytest.fixture(scope="module")
def old_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of an older MLflow, half of whose migrations are missing."""
    path = tmp_path_factory.mktemp("old") / "mlflow.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=sqlalchemy.pool.NullPool)
    Base.metadata.create_all(engine)
    config = _get_alembic_config(f"sqlite:///{path}")
    revisions = [one.revision for one in ScriptDirectory.from_config(config).walk_revisions()]
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revisions[len(revisions) // 2])
        connection.execute(sqlalchemy.text("INSERT INTO experiments (name, lifecycle_stage) VALUES ('mine', 'active')"))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(path: Path | str, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return [row[0] for row in database.execute(question).fetchall()]


def revision(path: Path | str) -> str:
    return ask(path, "SELECT version_num FROM alembic_version")[0]


def tables(path: Path | str) -> set[str]:
    return set(ask(path, "SELECT name FROM sqlite_master WHERE type = 'table'"))


def names() -> set[str]:
    return {path.name for path in Path.cwd().iterdir()} - {"mlflow.db.lock"}


def test_an_upgrade_that_was_interrupted_is_done_by_the_next_pass(
    folder: Path, old_database: Path, fresh_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(old_database, "mlflow.db")
    before, missing = Path("mlflow.db").read_bytes(), tables(fresh_database) - tables(old_database)
    assert missing

    def interrupted(arguments: list[str], **_: object) -> None:
        with closing(sqlite3.connect(arguments[-1].removeprefix("sqlite:///"))) as database:
            for table in missing:
                database.execute(f"CREATE TABLE {table} (x)")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            initialise(uri())
    assert Path("mlflow.db").read_bytes() == before
    Path(".mlflow.db.upgrade-killed").mkdir()  # what a kill leaves
    initialise(uri())
    assert revision("mlflow.db") == revision(fresh_database)
    assert "mine" in ask("mlflow.db", "SELECT name FROM experiments")
    kept = f"mlflow.db.before-{revision(old_database)}"
    assert names() == {"mlflow.db", kept}
    assert Path(kept).read_bytes() == before


def test_an_upgraded_database_has_its_rights_and_what_its_write_ahead_log_had(
    folder: Path, old_database: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="bertline")
    shutil.copy(old_database, "other.db")
    with closing(sqlite3.connect("other.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("INSERT INTO experiments (name, lifecycle_stage) VALUES ('in the log', 'active')")
        Path("shared").mkdir()
        for end in ("", "-wal"):
            shutil.copy(f"other.db{end}", f"shared/mlflow.db{end}")
    Path("shared/mlflow.db").chmod(0o660)
    Path("mlflow.db").symlink_to("shared/mlflow.db")
    initialise(uri())
    kept = f"mlflow.db.before-{revision(old_database)}"
    assert {path.name for path in Path("shared").iterdir()} == {"mlflow.db", kept}
    assert Path("mlflow.db").is_symlink()
    assert Path("shared/mlflow.db").stat().st_mode & 0o777 == 0o660
    for path in ("mlflow.db", f"shared/{kept}"):
        assert {"mine", "in the log"} <= set(ask(path, "SELECT name FROM experiments"))
    assert f"is upgraded; the file before is kept as {kept}" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (
            "OperationalError: database or disk is full\n(Background on this error)",
            r"\(database or disk is full\); make",
        ),
        ("Can't locate revision identified by 'x'", r"\(Can't locate [^\n]*\); move that file away, or install"),
    ],
)
def test_an_upgrade_that_fails_changes_nothing_and_is_one_line(
    folder: Path, old_database: Path, monkeypatch: pytest.MonkeyPatch, printed: str, line: str
) -> None:
    shutil.copy(old_database, "mlflow.db")
    before = Path("mlflow.db").read_bytes()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stderr=printed))
    with pytest.raises(BertlineError, match=rf"^MLflow cannot upgrade sqlite:///\S*mlflow\.db {line}[^\n]*$"):
        initialise(uri())
    assert names() == {"mlflow.db"}
    assert Path("mlflow.db").read_bytes() == before


@pytest.fixture
def record(folder: Path, fresh_database: Path) -> Path:
    shutil.copy(fresh_database, "mlflow.db")
    return write_run(folder, tasks=(), seeds=1)


def locations() -> set[str]:
    return set(ask("mlflow.db", "SELECT artifact_location FROM experiments WHERE experiment_id > 0"))


def test_a_folder_of_artifacts_that_was_chosen_for_an_experiment_stays(record: Path, folder: Path) -> None:
    chosen = folder / "scratch/mlartifacts"
    chosen.mkdir(parents=True)
    MlflowClient(uri()).create_experiment("bertline", artifact_location=str(chosen))
    for _ in range(2):
        track([record], uri())
        assert locations() == {str(chosen)}
        Path("mlartifacts").mkdir(exist_ok=True)
    assert list(chosen.glob("**/recipe.json"))


def test_a_database_that_was_moved_without_its_files_is_reported_once(
    record: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    track([record], uri())
    there = folder / "there"
    there.mkdir()
    for name in ("mlflow.db", "results"):
        shutil.move(name, there / name)
    shutil.rmtree("mlartifacts")  # as on another machine
    monkeypatch.chdir(there)
    for _ in range(2):
        initialise(uri())
    assert locations() == {str(there / "mlartifacts")}
    (line,) = [message for message in caplog.messages if "without its files" in message]
    assert line.endswith(f"if you have them, move {folder}/mlartifacts to {there}/mlartifacts")


def test_a_lock_that_may_not_be_taken_is_one_line_and_the_follower_continues(
    record: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(uri: str) -> None:
        raise PermissionError(13, "Permission denied", "mlflow.db.lock")

    passes: list[float] = []

    def sleep(seconds: float) -> None:
        passes.append(seconds)
        if len(passes) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(store, "tracking_lock", refused)
    monkeypatch.setattr("bertline.tracking.following.time.sleep", sleep)
    store.follow([record], uri(), 5)
    assert len(passes) == 2
    (line,) = [message for message in caplog.messages if "mlflow.db.lock" in message]
    assert "cannot be written" in line


def test_a_moved_database_that_may_not_be_written_is_one_line(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(store, "find_moved_artifacts", refused)
    with pytest.raises(BertlineError, match=r"^MLflow at \S+ cannot be written \([^\n]*\); allow it, then run"):
        track([record], uri())


def test_what_was_left_by_a_killed_creation_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".mlflow.db.0123abcd.part", ".mlflow.db.0123abcd.part-journal", ".mlflow.db.swp"):
        Path(name).touch()
    initialise("sqlite:///mlflow.db")
    assert {path.name for path in tmp_path.glob(".*")} == {".mlflow.db.swp"}
