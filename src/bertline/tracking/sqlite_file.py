"""The SQLite file of a store: its upgrade to the schema of this MLflow, and its paths after a move."""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from bertline.console import BertlineError
from bertline.files import fsync_directory

logger = logging.getLogger(__name__)

# Tables and columns of MLflow's database with paths of artifacts.
_ARTIFACT_PATHS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
# Full disks, in the messages of SQLite, PostgreSQL and the operating system.
FULL = ("database or disk is full", "DiskFull", "No space left on device", "Disk quota exceeded")


def is_gone(path: Path | str) -> bool:
    """Return whether nothing is at a path; False if that cannot be seen, as in a private folder of somebody else."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def upgrade_schema(database: Path) -> None:
    """Upgrade a database of an older MLflow; the file before is kept next to it, named by its revision.

    MLflow's upgrade consists of many transactions, and a file in which it was interrupted can never be upgraded. So a
    copy is upgraded, and takes the place of the file once it is complete. This must precede MLflow's client, which
    upgrades some files by itself. The caller must hold the lock.
    """
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    revision, known = _revision_of(database), ScriptDirectory.from_config(_get_alembic_config(db_url=""))
    if revision in (None, *known.get_heads()):
        return
    if revision not in {one.revision for one in known.walk_revisions()}:  # without a copy in every pass
        raise BertlineError(
            f"MLflow cannot upgrade sqlite:///{database} (its schema {revision} is of a newer version); move that file "
            "away, or install the MLflow that wrote it"
        )
    database = database.resolve()  # a link remains one
    unfinished = f".{database.name}.upgrade-"
    remove_left(database, "upgrade-*")
    logger.info("upgrading the MLflow database %s", database)
    with (
        TemporaryDirectory(prefix=unfinished, dir=database.parent) as folder,
        closing(sqlite3.connect(database, isolation_level=None)) as guard,
    ):
        # What is still in a journal or a write-ahead log goes into the file, and until the end nobody writes to it:
        # SQLite would apply a log that stays behind to the new file.
        guard.execute("PRAGMA journal_mode = DELETE")
        guard.execute("BEGIN IMMEDIATE")
        copy, kept = Path(folder, database.name), database.with_name(f"{database.name}.before-{revision}")
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        _upgrade(copy, database)
        _give_rights(copy, database.stat())
        before = Path(folder, "before")
        try:
            os.link(database, before)  # not a rename: at every moment there is a complete database
        except OSError:  # a file system without hard links
            shutil.copy2(database, before)
        before.replace(kept)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
        copy.replace(database)
        fsync_directory(database.parent)
    remove_left(database, "upgrade-*")  # again: the process of a killed one may have lived on
    logger.info("the MLflow database %s is upgraded; the file before is kept as %s", database, kept.name)


def remove_left(database: Path, pattern: str) -> None:
    """Remove what processes that were killed have left beside a database: a hidden name with its name and a pattern.

    The caller must hold the lock.
    """
    for left in database.parent.glob(f".{glob.escape(database.name)}.{pattern}"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _revision_of(database: Path) -> str | None:
    """Return the revision of a database's schema; None for one that MLflow has not written."""
    with closing(sqlite3.connect(database)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return None
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(found[0]) if found else None


def _upgrade(copy: Path, database: Path) -> None:
    command = [sys.executable, "-m", "mlflow", "db", "upgrade", f"sqlite:///{copy}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["no reason given"]
        # After the last traceback's message SQLAlchemy prints a statement and an address.
        reason = next((line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception): ", line)), lines[-1])
        remedy = "move that file away, or install the MLflow that wrote it"
        if full := next((full for full in FULL if full in result.stderr), None):
            reason, remedy = full, "make room for two more copies of that file, which is not changed"
        raise BertlineError(f"MLflow cannot upgrade sqlite:///{database} ({reason}); {remedy}")


def _give_rights(path: Path, of: os.stat_result) -> None:
    """Give a file the owner, the group and the mode of another one, as far as this user may."""
    for owner, group in ((-1, of.st_gid), (of.st_uid, -1)):
        with suppress(OSError):
            os.chown(path, owner, group)
    path.chmod(stat.S_IMODE(of.st_mode))


def find_moved_artifacts(database: Path, here: Path) -> None:
    """Set the current folder for artifacts in the database, if the project was moved or copied.

    MLflow stores absolute paths, and would continue to write to the previous folder of the project. A folder that
    exists, without a database next to it, was chosen for an experiment, and stays.

    Args:
        here: the current folder for artifacts.
    """
    if database.absolute().parent != Path.cwd():
        return  # of another project, or of several
    with closing(sqlite3.connect(database)) as connection, connection:
        found = connection.execute("SELECT DISTINCT artifact_location FROM experiments")
        for (before,) in found.fetchall():
            if before is None or before == str(here) or Path(before).name != here.name:
                continue
            is_copied = not is_gone(before)
            if is_copied and is_gone(Path(before).with_name(database.name)):
                continue
            if is_gone(here):
                if is_copied:
                    raise BertlineError(f"{database} was copied without its files; copy {before} to {here}, too")
                logger.warning(
                    "%s was moved without its files; if you have them, move %s to %s", database, before, here
                )
            logger.info("the artifacts of %s are now in %s, before in %s", database, here, before)
            for table, column in _ARTIFACT_PATHS:
                connection.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) IN (?, ?)",  # noqa: S608
                    (str(here), len(before) + 1, len(before) + 1, before, f"{before}/"),
                )
