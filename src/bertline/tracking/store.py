"""Make MLflow hold what `layout` says it should, and nothing twice.

Every pass compares and sends only what is missing, so it may run at any time, as often as one likes, by several people
at once: passes over the same store take turns through a lock file. MLflow 3 does not survive several processes that
start on a fresh SQLite file, and cannot take points back; hence `initialise`, and hence runs whose points are no longer
the journal's are deleted and made again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from bertline.console import BertlineError
from bertline.files import sha256_of_file, write_atomically
from bertline.tracking.layout import DatasetInput, Entry, Point, lay_out
from bertline.tracking.records import read_record

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

# MLflow's limits for one request are 1,000 entities, of which 100 parameters and 100 tags, and 1 MB.
METRICS_PER_BATCH = 800
PARAMETERS_PER_BATCH = 100
TAGS_PER_BATCH = 99  # One more is the note of what was sent.
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000

# What was sent to an MLflow run is noted in the run itself, so it disappears with the run or the database.
SENT_TAG = "bertline.sent"

_MLFLOW_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # The default of 7 leaves one waiting for minutes on a server that is down; every pass can be repeated.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    # A pooled connection would go on writing into a database file that someone deleted.
    "MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool",
}


def default_tracking_uri() -> str:
    """MLFLOW_TRACKING_URI, or the SQLite file mlflow.db in the working directory."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def initialise(tracking_uri: str) -> None:
    """Create the SQLite database of `tracking_uri`, or bring an older one to this MLflow's schema.

    Safe against concurrent starts and kills: a new database appears complete or not at all. Does nothing for a server.
    """
    database = _sqlite_file(tracking_uri)
    if database is None:
        return
    with tracking_lock(tracking_uri):
        _initialise(database, tracking_uri)


def track(records: Sequence[Path | str], tracking_uri: str, report: Path | None = None) -> dict[str, Any]:
    """Bring MLflow up to date with what the runs of `records` have left on disk.

    Returns for each run its experiment, the id of its MLflow run and the points each stage has, and how many points
    were sent now. A record that cannot be read or sent does not keep the others back: BertlineError is raised at the
    end.
    """
    marker: dict[str, Any] = {"runs": {}, "sent": 0}
    failures = []
    for path in records:
        try:
            with tracking_lock(tracking_uri), _one_line_errors(tracking_uri):
                # Read under the lock: an older reading than the one sent last would look like a journal cut back.
                record = read_record(path)
                client = _connect(tracking_uri)
                published = _publish(client, record.experiment, lay_out(record, report), _artifact_root(tracking_uri))
        except BertlineError as error:
            failures.append(str(error))
            continue
        marker["sent"] += published.pop("sent")
        marker["runs"][record.name] = published
    if failures:
        raise BertlineError("; ".join(failures))
    return marker


def follow(records: Sequence[Path | str], tracking_uri: str, seconds: float, report: Path | None = None) -> None:
    """Track every `seconds` seconds until interrupted; a failed pass is reported and tried again."""
    try:
        while True:
            try:
                sent = track(records, tracking_uri, report)["sent"]
                if sent:
                    logger.info("sent %d points to MLflow", sent)
            except BertlineError as error:
                logger.warning("%s; trying again in %g seconds", error, seconds)
            time.sleep(seconds)
    except KeyboardInterrupt:
        logger.info("stopped following")


def tracking_lock(tracking_uri: str) -> FileLock:
    """The lock that trackers of one store take turns with: beside a SQLite database, in results/ for a server."""
    database = _sqlite_file(tracking_uri)
    path = Path("results/mlflow.lock") if database is None else database.with_name(f"{database.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path)


def _initialise(database: Path, tracking_uri: str) -> None:
    if not database.exists() or database.stat().st_size == 0:
        logger.info("creating the MLflow database %s", database)
        with write_atomically(database) as temporary:
            # A client that opens an empty database makes its tables; NullPool leaves no handle on it.
            _new_client(f"sqlite:///{temporary.absolute()}").search_experiments(max_results=1)
        return
    from mlflow.exceptions import MlflowException

    try:
        _new_client(tracking_uri).search_experiments(max_results=1)
    except MlflowException as error:
        if "out-of-date database schema" not in str(error):
            raise BertlineError(_explain(error, tracking_uri)) from None
        logger.info("upgrading the MLflow database %s", database)
        _upgrade_schema(tracking_uri)


def _upgrade_schema(tracking_uri: str) -> None:
    command = [sys.executable, "-m", "mlflow", "db", "upgrade", tracking_uri]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | _MLFLOW_SETTINGS)  # noqa: S603
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise BertlineError(
            f"MLflow cannot upgrade {tracking_uri} ({reason}); move that file away, or install the MLflow that wrote it"
        )


def _connect(tracking_uri: str) -> MlflowClient:
    """A client of a store that is ready for use. The caller holds the lock."""
    database = _sqlite_file(tracking_uri)
    if database is not None:
        _initialise(database, tracking_uri)
    return _new_client(tracking_uri)


def _new_client(tracking_uri: str) -> MlflowClient:
    for name, value in _MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    for name, level in (("mlflow", logging.WARNING), ("alembic", logging.WARNING), ("urllib3", logging.ERROR)):
        logging.getLogger(name).setLevel(level)
    return MlflowClient(tracking_uri)


def _publish(client: MlflowClient, experiment: str, entry: Entry, artifact_root: Path | None) -> dict[str, Any]:
    experiment_id = _experiment(client, experiment, artifact_root)
    known = _known_runs(client, experiment_id, entry.identity["bertline.record"])
    points: dict[str, int] = {}
    sent = 0

    def publish(entry: Entry, parent: str | None) -> str:
        nonlocal sent
        run_id, new = _synchronise(client, experiment_id, entry, parent, known)
        sent += new
        points[entry.name] = len(entry.points)
        for child in entry.children:
            publish(child, run_id)
        return run_id

    run_id = publish(entry, None)
    return {"experiment": experiment, "mlflow_run": run_id, "points": points, "sent": sent}


def _experiment(client: MlflowClient, name: str, artifact_root: Path | None) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return client.create_experiment(name, artifact_location=None if artifact_root is None else str(artifact_root))
    if experiment.lifecycle_stage == "deleted":
        # MLflow keeps the name of a deleted experiment taken.
        client.restore_experiment(experiment.experiment_id)
    return experiment.experiment_id


Identity = frozenset[tuple[str, str]]


def _known_runs(client: MlflowClient, experiment_id: str, record: str) -> dict[str, list[Run]]:
    """The runs MLflow holds for a record that nobody deleted, by fingerprint, the oldest first."""
    runs: dict[str, list[Run]] = {}
    page = None
    while True:
        found = client.search_runs(
            [experiment_id],
            f"tags.`bertline.record` = '{record}'",
            max_results=1000,
            order_by=["attributes.start_time", "attributes.run_id"],
            page_token=page,
        )
        for run in found:
            runs.setdefault(run.data.tags["bertline.fingerprint"], []).append(run)
        page = found.token
        if not page:
            return runs


def _synchronise(
    client: MlflowClient, experiment_id: str, entry: Entry, parent: str | None, known: dict[str, list[Run]]
) -> tuple[str, int]:
    """Make one MLflow run equal to `entry`; returns its id and how many points were sent."""
    identity = entry.identity.items()
    candidates = [
        run for run in known.get(entry.identity["bertline.fingerprint"], []) if identity <= run.data.tags.items()
    ]
    run = candidates[0] if candidates else None
    parameters = {key: value[:PARAMETER_LENGTH] for key, value in entry.parameters.items()}
    if run is not None and not (_holds_prefix(run, entry.points) and _agrees(run.data.params, parameters)):
        logger.info("%s was made again; its old MLflow run is deleted", entry.name)
        client.delete_run(run.info.run_id)
        run = None
    tags = entry.tags | entry.identity | {"mlflow.note.content": entry.description}
    if parent is not None:
        tags["mlflow.parentRunId"] = parent
    tags = {key: value[:TAG_LENGTH] for key, value in tags.items()}
    if run is None:
        now = int(time.time() * 1000)
        run = client.create_run(
            experiment_id,
            start_time=entry.started or now,
            tags=dict(itertools.islice(tags.items(), 50)),
            run_name=entry.name,
        )
    run_id, before = run.info.run_id, _sent(run)

    if entry.dataset is not None and before.get("dataset") != entry.dataset.digest:
        _log_dataset(client, run_id, entry.dataset)
    artifacts = {path.name: sha256_of_file(path)[:16] for path in entry.artifacts}
    for path in entry.artifacts:
        if before.get("artifacts", {}).get(path.name) != artifacts[path.name]:
            client.log_artifact(run_id, str(path))

    sent = before.get("points", 0)
    after = {"points": len(entry.points), "digest": _digest(entry.points)}
    after |= {
        "artifacts": before.get("artifacts", {}) | artifacts,
        "dataset": entry.dataset.digest if entry.dataset else None,
    }
    _log_batches(
        client,
        run,
        entry.points[sent:],
        {key: value for key, value in parameters.items() if key not in run.data.params},
        {key: value for key, value in tags.items() if run.data.tags.get(key) != value},
        None if after == before else json.dumps(after, sort_keys=True),
    )
    if entry.finished and run.info.status != "FINISHED":
        client.set_terminated(run_id, "FINISHED", end_time=entry.ended)
    elif not entry.finished and run.info.status != "RUNNING":
        client.update_run(run_id, status="RUNNING")
    return run_id, len(entry.points) - sent


def _log_batches(
    client: MlflowClient,
    run: Run,
    points: Sequence[Point],
    parameters: dict[str, str],
    tags: dict[str, str],
    note: str | None,
) -> None:
    """Send everything in as few requests as MLflow allows; `note` becomes the run's note of what was sent."""
    from mlflow.entities import Metric, Param, RunTag

    start = run.info.start_time
    metrics = [
        Metric(point.key, point.value, start if point.timestamp is None else point.timestamp, point.step)
        for point in points
    ]
    zipped: Iterable[tuple[list[Any], ...]] = itertools.zip_longest(
        _chunks(metrics, METRICS_PER_BATCH),
        _chunks([Param(key, value) for key, value in parameters.items()], PARAMETERS_PER_BATCH),
        _chunks([RunTag(key, value) for key, value in tags.items()], TAGS_PER_BATCH),
        fillvalue=[],
    )
    batches = list(zipped)
    if note is not None:
        # With the last request, whose tags MLflow writes last: a pass killed half-way is repeated in full, and MLflow
        # stores equal points once.
        *batches, (last_metrics, last_parameters, last_tags) = batches or [([], [], [])]
        batches.append((last_metrics, last_parameters, [*last_tags, RunTag(SENT_TAG, note)]))
    for metric_batch, parameter_batch, tag_batch in batches:
        client.log_batch(run.info.run_id, metric_batch, parameter_batch, tag_batch, synchronous=True)


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _log_dataset(client: MlflowClient, run_id: str, dataset: DatasetInput) -> None:
    from mlflow.entities import Dataset, InputTag
    from mlflow.entities import DatasetInput as MlflowDatasetInput

    source = json.dumps({"uri": dataset.source})
    described = Dataset(dataset.name, dataset.digest, "local", source, profile=dataset.profile)
    client.log_inputs(run_id, [MlflowDatasetInput(described, [InputTag("mlflow.data.context", dataset.context)])])


def _sent(run: Run) -> dict[str, Any]:
    return json.loads(run.data.tags.get(SENT_TAG, "{}"))


def _holds_prefix(run: Run, points: Sequence[Point]) -> bool:
    """True when what was sent to `run` is how `points` begin."""
    sent = _sent(run)
    number = sent.get("points", 0)
    return number <= len(points) and (number == 0 or sent["digest"] == _digest(points[:number]))


def _agrees(stored: dict[str, str], wanted: dict[str, str]) -> bool:
    """True when no parameter would have to change; MLflow's parameters cannot."""
    return all(stored.get(key, value) == value for key, value in wanted.items())


def _digest(points: Sequence[Point]) -> str:
    digest = hashlib.sha256()
    for point in points:
        digest.update(f"{point.key} {point.step} {point.timestamp} {point.value!r}\n".encode())
    return digest.hexdigest()[:16]


def _sqlite_file(tracking_uri: str) -> Path | None:
    """The file of a SQLite store, None for a server or another database."""
    if not tracking_uri.startswith("sqlite:///"):
        return None
    return Path(tracking_uri.removeprefix("sqlite:///").partition("?")[0])


def _artifact_root(tracking_uri: str) -> Path | None:
    """Where artifacts of a local store go; a server has its own place."""
    return None if tracking_uri.startswith(("http://", "https://")) else Path("mlartifacts").resolve()


@contextmanager
def _one_line_errors(tracking_uri: str) -> Iterator[None]:
    """Turn MLflow's refusals into one line that names the store."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("mlflow.", "sqlalchemy.", "requests.")):
            raise
        raise BertlineError(_explain(error, tracking_uri)) from error


def _explain(error: Exception, tracking_uri: str) -> str:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    place = re.sub(r"//[^/@]*@", "//", tracking_uri)
    if "Max retries exceeded" in reason:
        return f"MLflow at {place} does not answer; nothing is lost, `make track` sends it again once it does"
    return f"MLflow at {place} refused ({reason}); nothing is lost, `make track` sends it again"
