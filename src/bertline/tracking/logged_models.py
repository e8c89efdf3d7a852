"""MLflow's logged models: entries with metrics that the Models table of an experiment ranks.

A pretraining checkpoint is logged with its path, without files.
"""

from __future__ import annotations

import logging
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertline.console import BertlineError
from bertline.results import paths
from bertline.tracking.run_tree import DatasetInput, Entry, Point
from bertline.tracking.sending import DOWN, metrics_of, reason_of
from bertline.tracking.sqlite_file import is_gone
from bertline.tracking.tags import FINGERPRINT_TAG, HOST_TAG, ORIGIN_TAG, PATH_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Metric, Run

logger = logging.getLogger(__name__)


def offers_logged_models(client: MlflowClient, experiment_id: str) -> bool:
    """Return whether a store has logged models; warn if it is a server older than MLflow 3, which has none."""
    from mlflow.exceptions import MlflowException

    try:
        client.search_logged_models([experiment_id], max_results=1)
    except MlflowException as error:
        if error.error_code != "ENDPOINT_NOT_FOUND":
            raise
        logger.warning(
            "the MLflow server is older than 3.0 and has no logged models; all else is sent, models stay in results/"
        )
        return False
    return True


def find_logged_models(client: MlflowClient, experiment_id: str, fingerprint: str) -> Iterator[LoggedModel]:
    """Yield the logged models of the phase or the fine-tuning with this fingerprint, those of any MLflow run."""
    condition, token = f"tags.`{FINGERPRINT_TAG}` = '{fingerprint}'", None
    while True:
        found = client.search_logged_models([experiment_id], condition, page_token=token)
        yield from found
        if not (token := found.token):
            return


def add_logged_model(
    client: MlflowClient,
    run: Run,
    *,
    name: str,
    kind: str,
    tags: Mapping[str, str],
    points: Sequence[Point] = (),
    dataset: DatasetInput | None = None,
    folder: Path | None = None,
    parameters: Mapping[str, str] | None = None,
) -> LoggedModel:
    """Add a model of `run` with its metrics; a model that a kill leaves incomplete does not have the status READY.

    Args:
        client: of the store.
        run: the MLflow run that the model is from.
        name: characters that MLflow refuses in it are replaced.
        kind: the model's type in MLflow.
        tags: of the model.
        points: its metrics, which are those of the run.
        dataset: an input of the run, on which the metrics were measured.
        folder: its files, to copy to MLflow; None for a model without files, which the run's page does not list.
        parameters: of the model.
    """
    model = client.create_logged_model(
        run.info.experiment_id,
        name=re.sub(r"[/:.%\"']", "-", name),
        source_run_id=run.info.run_id,
        tags=dict(tags),
        params=dict(parameters or {}),
        model_type=kind,
    )
    if folder is not None:
        _send_files(client, model, folder)
        make_output(client, run, model.model_id)
    log_scores(client, run, model.model_id, points, dataset)
    return client.finalize_logged_model(model.model_id, "READY")


def make_output(client: MlflowClient, run: Run, model_id: str) -> None:
    """Make a model an output of a run, whose page lists these, not the models that name it as their source."""
    from mlflow.entities import LoggedModelOutput

    outputs = client.get_run(run.info.run_id).outputs  # MLflow would store equal ones repeatedly
    if outputs is None or all(output.model_id != model_id for output in outputs.model_outputs):
        client.log_outputs(run.info.run_id, [LoggedModelOutput(model_id, step=0)])


def log_scores(
    client: MlflowClient, run: Run, model_id: str, points: Sequence[Point], dataset: DatasetInput | None
) -> None:
    """Make points of a run metrics of a model, unless they are already, of whichever dataset.

    Args:
        client: of the store.
        run: the run that the points are from, not necessarily the one that the model is from.
        model_id: of the model.
        points: MLflow stores a NaN of a model as 0: they are left out.
        dataset: an input of the run, on which the metrics were measured.
    """
    measured_on = {"dataset_name": dataset.name, "dataset_digest": dataset.digest} if dataset else {}
    finite = (point for point in points if math.isfinite(point.value))
    metrics = metrics_of(run, finite, model_id=model_id, **measured_on)
    # MLflow stores equal ones once, but refuses one that it has with another dataset, or without any.
    present = client.get_logged_model(model_id).metrics or ()
    stored = {_point_of(metric) for metric in present if metric.run_id == run.info.run_id}
    missing = [metric for metric in metrics if _point_of(metric) not in stored]
    client.log_batch(run.info.run_id, missing, synchronous=True)


def _point_of(metric: Metric) -> Point:
    return Point(metric.key, metric.step, metric.timestamp, metric.value)


def _send_files(client: MlflowClient, model: LoggedModel, folder: Path) -> None:
    """Copy a model's files to MLflow; delete the model if the store does not accept them."""
    try:
        client.log_model_artifacts(model.model_id, str(folder))
    except Exception as error:  # each kind of store has a library with errors of its own
        if DOWN in str(error):
            raise  # nor can the server delete the model now, which the next call does
        client.delete_logged_model(model.model_id)
        raise BertlineError(
            f"MLflow's artifact store did not take the model {model.name} ({reason_of(error)[:200]}); make it writable "
            "or make room, then repeat the command"
        ) from error


def log_checkpoints(client: MlflowClient, run: Run, entry: Entry, origin: str) -> None:
    """Add a logged model of `run` for each checkpoint of a phase's entry, and delete those of deleted checkpoints.

    Another tracker may do the same at once: each checkpoint has one at the end.
    """
    from mlflow.exceptions import MlflowException

    logged = _sort_out(client, run, entry, origin)
    missing = [checkpoint for checkpoint in entry.checkpoints if str(checkpoint.path) not in logged]
    tags = {FINGERPRINT_TAG: entry.identity_tags[FINGERPRINT_TAG], HOST_TAG: platform.node(), ORIGIN_TAG: origin}
    for checkpoint in missing:
        path = str(checkpoint.path)
        try:
            add_logged_model(
                client,
                run,
                name=f"{entry.name}-step-{checkpoint.step}",
                kind="checkpoint",
                tags=tags | {PATH_TAG: path},
                points=checkpoint.points,
                dataset=entry.dataset,
                parameters={"path": path, "step": str(checkpoint.step)},
            )
        except MlflowException:
            if path not in _sort_out(client, run, entry, origin):
                raise  # unless another tracker has logged it and deleted this one
    if missing:
        _sort_out(client, run, entry, origin)


def _sort_out(client: MlflowClient, run: Run, entry: Entry, origin: str) -> set[str]:
    """Return the paths of the logged checkpoints of a phase; delete entries of deleted ones, and duplicates.

    A path names a file of one machine only, and is there if its folder may not be entered. Logged models from another
    machine, of another origin, or of another run whose checkpoints are in another folder, are not changed. An
    incomplete one is deleted if there is a complete one of the same checkpoint: else another tracker may be writing it.
    """
    from mlflow.exceptions import MlflowException

    folder = Path(entry.tags[PATH_TAG], paths.CHECKPOINTS).absolute()
    found = find_logged_models(client, run.info.experiment_id, entry.identity_tags[FINGERPRINT_TAG])
    logged: set[str] = set()
    # All trackers use this order, so that no two delete each other's models.
    for model in sorted(found, key=lambda model: (model.status != "READY", model.model_id)):
        path = model.tags.get(PATH_TAG)
        if path is None or model.tags.get(ORIGIN_TAG, origin) != origin:
            continue
        is_of_run, is_here = model.source_run_id == run.info.run_id, model.tags.get(HOST_TAG) == platform.node()
        if is_of_run and path not in logged and not (is_here and is_gone(path)):
            if model.status == "READY":
                logged.add(path)
        elif is_here and (is_of_run or Path(path).is_relative_to(folder)):
            try:
                client.delete_logged_model(model.model_id)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise  # unless another tracker has deleted it
    return logged
