"""Synchronisation of MLflow with the tree that `run_tree.lay_out` returns.

A pass sends only what is missing, so it may run at any time, repeatedly, and for several people at once: passes over
one SQLite file, or from one folder to a server, take turns through a lock file; others find each other's runs. MLflow 3
fails if several processes start on a new SQLite file, which is why `initialise` exists, and it cannot retract points,
which is why runs whose points are no longer the journal's are replaced by new ones.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from filelock import FileLock

from bertline.console import BertlineError, without_credentials
from bertline.files import one_line_damage, write_atomically
from bertline.results.records import read_record, records_in, runs_in
from bertline.tracking.following import repeat
from bertline.tracking.inputs import Changes, changes_of_artifacts, changes_of_inputs
from bertline.tracking.origin import read_origin
from bertline.tracking.publishing import publish
from bertline.tracking.run_tree import Entry, lay_out
from bertline.tracking.sending import DOWN, SECRETS, reason_of
from bertline.tracking.sqlite_file import FULL, find_moved_artifacts, remove_left, upgrade_schema
from bertline.tracking.sweeps import entry_of, sweeps_beside

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

_MLFLOW_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # The default of 7 means minutes of waiting for a server that is down; every pass can be repeated.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    # A pooled connection would keep writing to a deleted database file.
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
}


# Errors of a folder for artifacts.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
# Ports of the databases that MLflow can use without a server of its own.
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
# In messages about the address of a folder, or one with a scheme that MLflow does not know.
_NO_ADDRESS = ("filesystem tracking backend", "unsupported URI")
# What to do about an address that cannot be read, which may contain a password: it is not shown.
_ENCODE = "percent-encode what is not a letter or a digit in its user name and password, such as %2F for a slash"
# Keys of an address that replace its host.
_OTHER_SERVERS = {"host", "hostaddr", "service", "unix_socket", "odbc_connect"}


class DoesNotAnswerError(BertlineError):
    """A server that is down, as far as can be seen from here."""


class _State(NamedTuple):
    """What was sent of a run: its tree of entries, and the last changes of their files and of those it was made of."""

    entry: Entry
    files: Changes
    inputs: Changes


def default_tracking_uri() -> str:
    """Return MLFLOW_TRACKING_URI, or the SQLite file mlflow.db in the working directory."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def initialise(uri: str | None = None) -> None:
    """Create the SQLite database of a tracking store, or upgrade an older one to this MLflow's schema.

    Safe against concurrent starts and kills: a new database appears complete or not at all. Does nothing for a server.

    Args:
        uri: the tracking store (default: $MLFLOW_TRACKING_URI, or mlflow.db here).
    """
    uri = uri or default_tracking_uri()
    if _sqlite_file(uri) is not None:
        with one_line_errors(uri), tracking_lock(uri):
            connect(uri)


def read_entry(record: Path, report: Path | None = None) -> Entry:
    """Return the tree of entries for a run as it is on disk. Raises BertlineError for a damaged file."""
    with one_line_damage(record):
        return lay_out(read_record(record), report)


def track(
    records: Sequence[Path | str],
    tracking_uri: str,
    report: Path | None = None,
    known: dict[Path, _State] | None = None,
) -> dict[str, Any]:
    """Bring MLflow up to date with the files of the runs of `records`, and of the sweeps beside a folder of runs.

    Returns for each run its experiment, the id of its MLflow run and the number of points of each stage, and how many
    points were sent now. A record that cannot be read or sent does not affect the others: BertlineError is raised at
    the end. `known` contains what was sent before: unchanged runs are skipped, and it is updated.
    """
    marker: dict[str, Any] = {"runs": {}, "sent": 0}
    failures: list[str] = []
    sweeps = sweeps_beside(records)
    reads = {sweep: partial(entry_of, sweep.parent) for sweep in sweeps}
    reads |= {path: partial(read_entry, path, report) for path in (records_in if sweeps else runs_in)(records)}
    for path, read in reads.items():
        before = (known or {}).get(path)
        try:
            # Before they are read: the next pass sees what changes meanwhile.
            inputs = {} if known is None or path in sweeps else changes_of_inputs(path, report)
            if before and inputs and before.inputs == inputs and before.files == changes_of_artifacts(before.entry):
                continue
            state, published = _send(read, tracking_uri, before)
        except BertlineError as error:
            failures.append(str(error))
            continue
        state = state._replace(inputs=inputs)
        if published is None:
            if known is not None:
                known[path] = state
            continue
        refused = published.pop("refused")
        if refused:
            failures.append(_explain_refused(refused, tracking_uri))
        elif known is not None:
            known[path] = state
        marker["sent"] += published.pop("sent")
        if path not in sweeps:
            marker["runs"][state.entry.name] = published
    if failures:
        raise BertlineError("; ".join(dict.fromkeys(failures)))  # of a store, the same for each run
    return marker


def track_entry(read: Callable[[], Entry], tracking_uri: str) -> None:
    """Bring MLflow up to date with the tree of entries that `read` returns. Raises BertlineError in one line."""
    _, published = _send(read, tracking_uri, None)
    if published and published["refused"]:
        raise BertlineError(_explain_refused(published["refused"], tracking_uri))


def _send(read: Callable[[], Entry], tracking_uri: str, known: _State | None) -> tuple[_State, dict[str, Any] | None]:
    """Send what `read` returns; return it and what `publish` does, None if it is equal to `known`."""
    with one_line_errors(tracking_uri), tracking_lock(tracking_uri):
        # Read under the lock: a record older than the one sent last would look like a truncated journal.
        entry, origin = read(), read_origin()
        state = _State(entry, changes_of_artifacts(entry), {})
        if known and known[:2] == state[:2]:
            return state, None
        client, root = connect(tracking_uri), _artifact_root(tracking_uri)
        return state, publish(client, entry, root, origin=origin, read_again=read)


def follow(records: Sequence[Path | str], tracking_uri: str, seconds: float, report: Path | None = None) -> None:
    """Track every `seconds` seconds until interrupted; a failed pass is repeated, and reported if its reason is new."""
    known: dict[Path, _State] = {}
    repeat(lambda: int(track(records, tracking_uri, report, known)["sent"]), "sent %d points to MLflow", seconds)


def tracking_lock(tracking_uri: str) -> FileLock:
    """Return the lock that trackers of one store share: next to a SQLite database, in results/ for a server."""
    database = _sqlite_file(tracking_uri)
    path = Path("results/mlflow.lock") if database is None else database.with_name(f"{database.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path)


def _initialise(database: Path, tracking_uri: str) -> None:
    _set_up_mlflow()
    if not database.exists() or database.stat().st_size == 0:
        logger.info("creating the MLflow database %s", database)
        remove_left(database, "*.part*")
        with write_atomically(database) as temporary:
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            # It creates the tables of an empty database; NullPool leaves no handle open. A client would, too, but puts
            # the working directory into SQL, which fails if that has an apostrophe.
            SqlAlchemyStore(f"sqlite:///{temporary.absolute()}", "mlflow-artifacts:/")
        return
    upgrade_schema(database)
    _new_client(tracking_uri).search_experiments(max_results=1)  # which adds MLflow's own experiment


def connect(tracking_uri: str) -> MlflowClient:
    """Return a client of a store that is ready for use. The caller must hold the lock."""
    database = _sqlite_file(tracking_uri)
    if database is not None:
        _initialise(database, tracking_uri)
        find_moved_artifacts(database, _artifact_folder(database))
    else:
        _check_secrets()
        _reach_database(tracking_uri)
    return _new_client(tracking_uri)


def _check_secrets() -> None:
    """Raise BertlineError for a token or a password with white space at its end, which no server accepts."""
    for name in SECRETS:
        if (secret := os.environ.get(name, "")) != secret.rstrip():
            raise BertlineError(
                f"{name} ends with white space, such as the line ending of a file made on Windows; set it without"
            )


def check_server(tracking_uri: str) -> None:
    """Raise BertlineError if a server cannot be used as it is; not if it is down, as it may come back."""
    with suppress(DoesNotAnswerError), one_line_errors(tracking_uri), tracking_lock(tracking_uri):
        connect(tracking_uri).search_experiments(max_results=1)


def _reach_database(tracking_uri: str) -> None:
    """Raise BertlineError if the host of a database does not answer: MLflow would try in silence for two minutes.

    Addresses that name the server in another way, such as a socket file or ODBC's name of a data source, are left to
    MLflow.
    """
    scheme, (host, port) = tracking_uri.partition(":")[0], host_and_port(tracking_uri)
    default = _PORTS.get(scheme.partition("+")[0])
    if not host or default is None or "," in host or scheme == "mssql+pyodbc":
        return
    if _OTHER_SERVERS & parse_qs(tracking_uri.rpartition("@")[2].partition("?")[2]).keys():
        return
    try:
        socket.create_connection((host, port or default), timeout=10).close()
    except (OSError, UnicodeError):  # the latter for a name that cannot be a host's
        raise _unanswered(tracking_uri) from None


def host_and_port(tracking_uri: str) -> tuple[str | None, int | None]:
    """Return the host and the port of an address, as far as it has them.

    Raises BertlineError if MLflow would try a part of its password for a minute, or a message show one after a space.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    scheme = tracking_uri.partition(":")[0]
    try:
        address = urlsplit(tracking_uri)  # as MLflow does with all addresses
        if scheme.partition("+")[0] in _PORTS:
            of_database = make_url(tracking_uri)  # which allows more characters in a password
            host, port = of_database.host, of_database.port
        else:
            host, port = address.hostname, address.port
    except (ArgumentError, ValueError):
        host, port = "@", None
    if "@" in (host or "") or not 0 <= (port or 0) <= 65535 or re.search(r"\s", tracking_uri.rpartition("@")[0]):
        remedy = _ENCODE if "@" in tracking_uri else "correct them"
        raise BertlineError(f"MLflow's address, {scheme}://..., has no readable host and port; {remedy}")
    return host, port


def _new_client(tracking_uri: str) -> MlflowClient:
    _set_up_mlflow()
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri)


def _set_up_mlflow() -> None:
    for name, value in _MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    levels = {"mlflow": logging.WARNING, "alembic": logging.WARNING, "urllib3": logging.ERROR}
    levels["mlflow.store.db.utils"] = logging.CRITICAL  # it logs the traceback of an error that is raised, too
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _sqlite_file(tracking_uri: str) -> Path | None:
    """Return the file of a SQLite store; None for a server or another database.

    Raises BertlineError for a database in memory, which ends with the process, for other spellings of a file's
    address, as its lock is found by its path, and for an address that cannot be read.
    """
    if tracking_uri != tracking_uri.strip():
        raise BertlineError("MLflow's address begins or ends with white space; set MLFLOW_TRACKING_URI without")
    if not is_sqlite(tracking_uri):
        host_and_port(tracking_uri)
        return None
    scheme, _, path = tracking_uri.partition("?")[0].partition(":///")
    if path.startswith("~"):
        raise BertlineError(
            f"{tracking_uri} has a ~, which only a shell replaces; write the path of the folder instead"
        )
    if scheme != "sqlite" or path in ("", ":memory:") or path.startswith("file:"):
        raise BertlineError(
            f"{without_credentials(tracking_uri)} is not sqlite:/// and the path of a database's file; give "
            "MLFLOW_TRACKING_URI in this form"
        )
    return Path(path)


def is_sqlite(tracking_uri: str) -> bool:
    """Return whether an address is that of a SQLite database, with any driver."""
    return tracking_uri.startswith(("sqlite:", "sqlite+"))


def _artifact_root(tracking_uri: str) -> Path | None:
    """Return the folder for artifacts of a local store; None for a server, which has its own."""
    if tracking_uri.startswith(("http://", "https://")):
        return None
    return _artifact_folder(_sqlite_file(tracking_uri) or Path("mlflow.db"))


def _artifact_folder(database: Path) -> Path:
    return database.absolute().with_name("mlartifacts")


@contextmanager
def one_line_errors(tracking_uri: str) -> Iterator[None]:
    """Convert MLflow's errors to one line that names the store."""
    try:
        yield
    except Exception as error:
        is_one = isinstance(error, ImportError) or (isinstance(error, OSError) and error.errno in _REFUSALS)
        if not is_one and not type(error).__module__.startswith(("mlflow.", "sqlalchemy.", "sqlite3", "requests.")):
            raise
        reason = reason_of(error)
        if DOWN in reason:
            raise _of_tries(reason, tracking_uri) from error
        raise BertlineError(_explain(error, reason, tracking_uri)) from error


def _explain_refused(refused: Sequence[str], tracking_uri: str) -> str:
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return (
        f"MLflow at {without_credentials(tracking_uri)} has all points, "
        f"but its artifact store did not take {refused[0]}{more}; "
        "make it writable or make room, then run `make track`"
    )


def _unanswered(tracking_uri: str) -> DoesNotAnswerError:
    place = f"MLflow at {without_credentials(tracking_uri)}"
    return DoesNotAnswerError(f"{place} does not answer; nothing is lost, `make track` sends it again once it does")


def _of_tries(reason: str, tracking_uri: str) -> BertlineError:
    """Return why each of several tries failed: the cause is at the end of the reason, its text in quotes."""
    place, cause = f"MLflow at {without_credentials(tracking_uri)}", reason.rpartition("Caused by ")[2]
    found = re.search(r"""["'](.*)["']""", cause)
    text = (found[1] if found else cause)[:200]
    if "certificate" in cause:
        return BertlineError(
            f"{place} has a certificate that is not trusted here ({text}); if it is the right server, give the file "
            "of that certificate, or of its authority, in MLFLOW_TRACKING_SERVER_CERT_PATH, then run `make track`"
        )
    if "SSLError" in cause:
        return BertlineError(
            f"{place} allows no encrypted connection ({text}); check whether it is http:// or https://"
        )
    if "error responses" in cause:
        return BertlineError(f"{place} answers only with errors ({text}); see the server's log, then run `make track`")
    return _unanswered(tracking_uri)


def _explain(error: Exception, reason: str, tracking_uri: str) -> str:
    place = f"MLflow at {without_credentials(tracking_uri)}"
    if any(refusal in reason for refusal in _NO_ADDRESS):
        return (
            f"{without_credentials(tracking_uri)} is not an address that MLflow can use; write https:// and the name "
            "of a server, or sqlite:/// and the path of a database's file, in MLFLOW_TRACKING_URI"
        )
    if "not authenticated" in reason or "error code 401" in reason:
        if os.environ.get("MLFLOW_TRACKING_TOKEN") and not os.environ.get("MLFLOW_TRACKING_USERNAME"):
            return f"{place} does not accept the token in MLFLOW_TRACKING_TOKEN; set a valid one and run `make track`"
        wanted = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,"
        return f"{place} did not accept the credentials; set {wanted} in the environment and run `make track`"
    if "error code 403" in reason:
        return f"{place} does not let you write; ask for the permission to edit its experiment, then run `make track`"
    if "valid JSON" in reason:
        return f"{place} answers with a page, not as MLflow does; check the address in MLFLOW_TRACKING_URI"
    if any(full in str(error) for full in FULL):
        return f"{place} has no space left; nothing is lost, make room and run `make track`, which sends it again"
    if "readonly database" in reason or (isinstance(error, PermissionError) and _is_of_store(error.filename)):
        return f"{place} cannot be written ({reason[:200]}); allow it, then run `make track`"
    if isinstance(error, PermissionError):
        return f"{error.filename} cannot be used ({reason[:200]}); allow it, then run `make track`"
    return f"{place} refused ({reason[:200]}); nothing is lost, `make track` sends it again"


def _is_of_store(path: str | bytes | None) -> bool:
    """Return whether a path is that of MLflow's database, or of its lock."""
    return str(path).endswith((".db", ".lock"))
