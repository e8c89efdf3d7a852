"""Synchronisation of a tree of MLflow runs with a tree of entries; only what is missing is sent.

MLflow cannot retract points: a run whose points are no longer a prefix of the entry's is deleted and made again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.files import sha256_of_file
from bertline.tracking.logged_models import log_checkpoints
from bertline.tracking.run_tree import DatasetInput, Entry, Point

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

# MLflow's limits for one request are 1,000 entities, of which 100 parameters and 100 tags, and 1 MB.
METRICS_PER_BATCH = 800
PARAMETERS_PER_BATCH = 100
TAGS_PER_BATCH = 100
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000
MAX_RUNS = 50_000  # found by a search

# Tag of the MLflow runs of a recipe that has changed since: the record that now has its name.
SUPERSEDED_TAG = "bertline.superseded_by"
# The note of what was sent is a tag of the MLflow run, so it is deleted with the run or the database.
SENT_TAG = "bertline.sent"


@dataclass(frozen=True)
class _Pass:
    """A pass over one tree: the store, and its runs for the tree's entries by fingerprint.

    `refused` has a line for each artifact that the store did not accept; everything else is sent nevertheless.
    """

    client: MlflowClient
    experiment_id: str
    known: dict[str, list[Run]]
    refused: list[str] = field(default_factory=list)

    def find(self, entry: Entry) -> Run | None:
        """Return the oldest run of an entry."""
        candidates = self.known.get(entry.identity["bertline.fingerprint"], [])
        return next((run for run in candidates if entry.identity.items() <= run.data.tags.items()), None)


def publish(client: MlflowClient, experiment: str, entry: Entry, artifact_root: Path | None) -> dict[str, Any]:
    """Bring the runs of `entry` and of all its descendants up to date.

    Returns the experiment, the id of the tree's MLflow run, the points of each stage, how many were sent now, and a
    line for each artifact that was `refused`, which the next pass sends again.
    """
    experiment_id = _experiment(client, experiment, artifact_root)
    known = {
        fingerprint: _search(client, experiment_id, f"tags.`bertline.fingerprint` = '{fingerprint}'")
        for fingerprint in dict.fromkeys(one.identity["bertline.fingerprint"] for one in _and_below(entry))
    }
    here = _Pass(client, experiment_id, known)
    _supersede_others(here, entry)
    points: dict[str, int] = {}
    sent = 0

    def bring_up_to_date(entry: Entry, parent: str | None, description: str) -> str:
        nonlocal sent
        run_id, new = _synchronise(here, entry, parent, description)
        sent += new
        points[entry.name] = len(entry.points)
        for child in entry.children:
            bring_up_to_date(child, run_id, child.description)
        return run_id

    run_id = bring_up_to_date(entry, None, entry.description + _links(here, entry))
    return {"experiment": experiment, "mlflow_run": run_id, "points": points, "sent": sent, "refused": here.refused}


def _experiment(client: MlflowClient, name: str, artifact_root: Path | None) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return client.create_experiment(name, artifact_location=None if artifact_root is None else str(artifact_root))
    if experiment.lifecycle_stage == "deleted":
        # In MLflow the name of a deleted experiment stays reserved.
        client.restore_experiment(experiment.experiment_id)
    return experiment.experiment_id


def _and_below(entry: Entry) -> Iterator[Entry]:
    yield entry
    for child in entry.children:
        yield from _and_below(child)


def _search(client: MlflowClient, experiment_id: str, condition: str) -> list[Run]:
    """Return the runs that meet a condition, oldest first; few of one run have the same tag."""
    order = ["attributes.start_time", "attributes.run_id"]
    return list(client.search_runs([experiment_id], condition, max_results=MAX_RUNS, order_by=order))


def _supersede_others(here: _Pass, entry: Entry) -> None:
    """Mark the MLflow runs of this run from before its recipe changed."""
    name, record = entry.identity["bertline.run"], entry.identity["bertline.record"]
    for run in _search(here.client, here.experiment_id, f"tags.`bertline.run` = '{name}'"):
        if run.data.tags.get("bertline.record", record) != record:
            if run.data.tags.get(SUPERSEDED_TAG) != record:
                here.client.set_tag(run.info.run_id, SUPERSEDED_TAG, record)
        elif SUPERSEDED_TAG in run.data.tags:
            here.client.delete_tag(run.info.run_id, SUPERSEDED_TAG)  # the recipe was changed back


def _other_parent(here: _Pass, entry: Entry, run: Run | None) -> str | None:
    """Return the present parent of a shared run; None if it was deleted or superseded, so that the entry's applies."""
    is_shared = "bertline.record" not in entry.identity
    parent = run.data.tags.get("mlflow.parentRunId") if run is not None and is_shared else None
    if parent is None:
        return None
    found = _search(here.client, here.experiment_id, f"attributes.run_id = '{parent}'")
    return parent if found and SUPERSEDED_TAG not in found[0].data.tags else None


def _links(here: _Pass, entry: Entry) -> str:
    """Return links, for the description, to shared stages that are below another run."""
    own = {run.info.run_id for run in map(here.find, _and_below(entry)) if run is not None}
    lines = []
    for one in _and_below(entry):
        run = here.find(one)
        parent = _other_parent(here, one, run)
        if run is not None and parent is not None and parent not in own:
            lines.append(f"- [{one.name}](#/experiments/{here.experiment_id}/runs/{run.info.run_id})")
    return "\n\nShared with another run, below which they stand:\n" + "\n".join(lines) if lines else ""


def _synchronise(here: _Pass, entry: Entry, parent: str | None, description: str) -> tuple[str, int]:
    """Make one MLflow run equal to `entry`; return its id and how many points were sent."""
    client, run = here.client, here.find(entry)
    parameters = {key: value[:PARAMETER_LENGTH] for key, value in entry.parameters.items()}
    if run is not None and not _can_continue(run, entry.points, parameters):
        logger.info("%s was made again; its old MLflow run is deleted", entry.name)
        client.delete_run(run.info.run_id)
        run = None
    tags = entry.tags | entry.identity | {"mlflow.note.content": description}
    if parent is not None:
        tags["mlflow.parentRunId"] = _other_parent(here, entry, run) or parent
    tags = {key: value[:TAG_LENGTH] for key, value in tags.items()}
    if run is None:
        now = int(time.time() * 1000)
        run = client.create_run(
            here.experiment_id,
            start_time=entry.started or now,
            tags=dict(itertools.islice(tags.items(), 50)),
            run_name=entry.name,
        )
    run_id, before = run.info.run_id, _sent(run)

    if entry.dataset is not None and before.get("dataset") != entry.dataset.digest:
        log_dataset(client, run_id, entry.dataset)
    artifacts = _send_artifacts(here, run_id, entry, before.get("artifacts", {}))
    on_disk = [str(checkpoint.path) for checkpoint in entry.checkpoints]
    checkpoints = _digest_of_lines(on_disk) if on_disk else None
    if before.get("checkpoints") != checkpoints:
        log_checkpoints(client, run, entry)

    sent = before.get("points", 0)
    after = {
        "points": len(entry.points),
        "digest": _digest(entry.points),
        "artifacts": before.get("artifacts", {}) | artifacts,
        "dataset": entry.dataset.digest if entry.dataset else None,
        "checkpoints": checkpoints,
    }
    _log_batches(
        client,
        run,
        entry.points[sent:],
        {key: value for key, value in parameters.items() if key not in run.data.params},
        {key: value for key, value in tags.items() if run.data.tags.get(key) != value},
    )
    if after != before:
        # Last: a pass that is killed is repeated in full, and MLflow stores equal points once.
        client.set_tag(run_id, SENT_TAG, json.dumps(after, sort_keys=True))
    if entry.finished and run.info.status != "FINISHED":
        client.set_terminated(run_id, "FINISHED", end_time=entry.ended)
    elif not entry.finished and run.info.status != "RUNNING":
        client.update_run(run_id, status="RUNNING")
    return run_id, len(entry.points) - sent


def _log_batches(
    client: MlflowClient, run: Run, points: Sequence[Point], parameters: dict[str, str], tags: dict[str, str]
) -> None:
    """Send everything in as few requests as MLflow allows."""
    from mlflow.entities import Metric, Param, RunTag

    start = run.info.start_time
    metrics = [
        Metric(point.key, point.value, start if point.timestamp is None else point.timestamp, point.step)
        for point in points
    ]
    chunks = (
        _chunks(metrics, METRICS_PER_BATCH),
        _chunks([Param(key, value) for key, value in parameters.items()], PARAMETERS_PER_BATCH),
        _chunks([RunTag(key, value) for key, value in tags.items()], TAGS_PER_BATCH),
    )
    for metric_batch, parameter_batch, tag_batch in itertools.zip_longest(*chunks, fillvalue=()):
        client.log_batch(run.info.run_id, metric_batch, parameter_batch, tag_batch, synchronous=True)


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _send_artifacts(here: _Pass, run_id: str, entry: Entry, before: dict[str, str]) -> dict[str, str]:
    """Send the missing artifacts; return the digests of those that are now present."""
    from mlflow.exceptions import MlflowException

    stored = {}
    for path, folder in entry.artifacts:
        name, digest = f"{folder}/{path.name}".lstrip("/"), sha256_of_file(path)[:16]
        try:
            if before.get(name) != digest:
                here.client.log_artifact(run_id, str(path), folder or None)
        except (OSError, MlflowException) as error:  # the exceptions of requests are OSErrors
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            here.refused.append(f"{name} of {entry.name} ({reason[:200]})")
        else:
            stored[name] = digest
    return stored


def log_dataset(client: MlflowClient, run_id: str, dataset: DatasetInput) -> None:
    """Make a dataset an input of an MLflow run."""
    from mlflow.entities import Dataset, InputTag
    from mlflow.entities import DatasetInput as MlflowDatasetInput

    source = json.dumps({"uri": dataset.source})
    described = Dataset(dataset.name, dataset.digest, "local", source, profile=dataset.profile)
    client.log_inputs(run_id, [MlflowDatasetInput(described, [InputTag("mlflow.data.context", dataset.context)])])


def _sent(run: Run) -> dict[str, Any]:
    return json.loads(run.data.tags.get(SENT_TAG, "{}"))


def _can_continue(run: Run, points: Sequence[Point], parameters: dict[str, str]) -> bool:
    """Return whether the points sent are a prefix of `points` and no parameter changes, as both are immutable."""
    sent, stored = _sent(run), run.data.params
    number = sent.get("points", 0)
    is_prefix = number <= len(points) and (number == 0 or sent["digest"] == _digest(points[:number]))
    return is_prefix and all(stored.get(key, value) == value for key, value in parameters.items())


def _digest(points: Sequence[Point]) -> str:
    return _digest_of_lines(f"{point.key} {point.step} {point.timestamp} {point.value!r}" for point in points)


def _digest_of_lines(lines: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()[:16]
