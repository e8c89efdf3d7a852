"""Sending of points, parameters, tags, artifacts and datasets of a run, within MLflow's limits."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bertline.console import without_credentials
from bertline.files import digest_of_file
from bertline.tracking.run_tree import DatasetInput, Entry, Point

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

# MLflow's limits for one request are 1,000 entities, of which 100 parameters and 100 tags, and 1 MB.
METRICS_PER_BATCH = 800
PARAMETERS_PER_BATCH = 100
TAGS_PER_BATCH = 100
KEY_LENGTH = 250
PARAMETER_LENGTH = 6000
TAG_LENGTH = 8000
# Artifacts whose digests, of 30 characters each, are in a run's note: MLflow would cut a longer one. More artifacts are
# sent again whenever their run changes.
NOTED_ARTIFACTS = 240

DOWN = "Max retries exceeded"  # in the message about a server that does not answer, or only with errors
SECRETS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")


@dataclass
class Refusals:
    """The artifacts that a store did not accept in one pass, a line each, and whether it did not answer at all."""

    lines: list[str] = field(default_factory=list)
    is_down: bool = False


def log_batches(
    client: MlflowClient, run: Run, points: Sequence[Point], parameters: dict[str, str], tags: dict[str, str]
) -> None:
    """Send everything in as few requests as MLflow allows."""
    from mlflow.entities import Param, RunTag

    chunks = (
        _chunks(metrics_of(run, points), METRICS_PER_BATCH),
        _chunks([Param(key, value) for key, value in parameters.items()], PARAMETERS_PER_BATCH),
        _chunks([RunTag(key, value) for key, value in tags.items()], TAGS_PER_BATCH),
    )
    for metric_batch, parameter_batch, tag_batch in itertools.zip_longest(*chunks, fillvalue=()):
        client.log_batch(run.info.run_id, metric_batch, parameter_batch, tag_batch, synchronous=True)


def metrics_of(run: Run, points: Iterable[Point], **of_model: str) -> list[Metric]:
    """Return points as MLflow's metrics of a run, and `of_model`; those without a time have that of its start."""
    from mlflow.entities import Metric

    start = run.info.start_time
    dated = ((point, start if point.timestamp is None else point.timestamp) for point in points)
    return [Metric(shortened(point.key), point.value, moment, point.step, **of_model) for point, moment in dated]


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def send_artifacts(
    client: MlflowClient, run_id: str, entry: Entry, before: dict[str, str], refusals: Refusals
) -> dict[str, str]:
    """Send the missing artifacts; return the digests of those that are now present, by `short_name`.

    What the store does not accept is added to `refusals`. Once it does not answer, no other artifact is tried: each
    would take as long.
    """
    stored: dict[str, str] = {}
    for path, folder in entry.artifacts:
        if refusals.is_down:
            break
        name, digest = f"{folder}/{path.name}".lstrip("/"), digest_of_file(path)[:16]
        try:
            if before.get(short_name(name)) != digest:
                client.log_artifact(run_id, str(path), folder or None)
        except Exception as error:  # each kind of store has a library with errors of its own
            refusals.is_down = DOWN in str(error)
            refusals.lines.append(f"{name} of {entry.name} ({reason_of(error)[:200]})")
        else:
            stored[short_name(name)] = digest
    return stored


def reason_of(error: Exception) -> str:
    """Return the first line of an error, without secrets."""
    return without_secrets((str(error).strip().splitlines() or [type(error).__name__])[0])


def without_secrets(text: str) -> str:
    """Leave out addresses' credentials, and what a web server may repeat of the header that it did not accept."""
    for name in SECRETS:
        secret = os.environ.get(name, "")
        for one in (secret, secret.strip()):
            if one:
                text = text.replace(one, "...")
    return without_credentials(text)


def short_name(name: str) -> str:
    """Return 8 hexadecimal digits for an artifact's name: names of any length would not fit a note."""
    return digest_of_lines([name])[:8]


def log_dataset(client: MlflowClient, run_id: str, dataset: DatasetInput) -> None:
    """Make a dataset an input of an MLflow run."""
    from mlflow.entities import Dataset, InputTag
    from mlflow.entities import DatasetInput as MlflowDatasetInput
    from mlflow.exceptions import MlflowException

    source = json.dumps({"uri": dataset.source})
    described = Dataset(dataset.name, dataset.digest, "local", source, profile=dataset.profile)
    inputs = [MlflowDatasetInput(described, [InputTag("mlflow.data.context", dataset.context)])]
    try:
        client.log_inputs(run_id, inputs)
    except MlflowException:
        # MLflow fails if another tracker logs the same at the same time.
        present = client.get_run(run_id).inputs
        if present is None or all(one.dataset.digest != dataset.digest for one in present.dataset_inputs):
            client.log_inputs(run_id, inputs)


def shortened(key: str) -> str:
    """Return a key of the length that MLflow allows: the end of a longer one is replaced by a digest."""
    return key if len(key) <= KEY_LENGTH else f"{key[: KEY_LENGTH - 17]}-{digest_of_lines([key])}"


def digest_of_lines(lines: Iterable[str]) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of several lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()[:16]
