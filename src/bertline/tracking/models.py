"""Logging of a run's final model and of its kept fine-tuned models to MLflow; registered on request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bertline.console import DISK_IS_FULL, BertlineError
from bertline.files import digest_of_file, one_line_damage, write_json
from bertline.results import paths
from bertline.results.records import KeptModel, Record, read_record
from bertline.tracking.flavors import kind_of, load_expression, save_model
from bertline.tracking.logged_models import (
    add_logged_model,
    find_logged_models,
    log_scores,
    make_output,
    offers_logged_models,
)
from bertline.tracking.origin import read_origin
from bertline.tracking.publishing import find_run
from bertline.tracking.run_tree import Entry, Point, lay_out, run_summary, training_entry
from bertline.tracking.sending import DOWN, reason_of
from bertline.tracking.store import connect, default_tracking_uri, one_line_errors, tracking_lock
from bertline.tracking.tags import FINGERPRINT_TAG, MODEL_ID_TAG, ORIGIN_TAG, PATH_TAG, WEIGHTS_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, LoggedModel, Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Model:
    """A model to log.

    Attributes:
        name: in MLflow.
        folder: in Hugging Face's layout.
        target: the result that makes it again.
        fingerprint: of the phase or the fine-tuning that it is from.
        entry: of the MLflow run of that phase or fine-tuning.
        scored: the entry of the MLflow run that has its scores: other tasks give another run, but not another model.
        points: its scores.
        suffix: of the name to register it under; None for a baseline, which is not registered.
        kept: the fine-tuned model; None for a run's final model.
    """

    name: str
    folder: Path
    target: str
    fingerprint: str
    entry: Entry
    scored: Entry
    points: list[Point]
    suffix: str | None
    kept: KeptModel | None = None


def log_model(record: Path, *, uri: str | None = None, register: str | None = None, output: Path | None = None) -> str:
    """Log the export of a run's last phase and the kept fine-tuned models, with scores. The function is idempotent.

    Args:
        record: record.json of a tracked run.
        uri: the tracking store (default: $MLFLOW_TRACKING_URI, or mlflow.db here).
        register: make the export a version of the registered model of this name, and a task's model one of NAME-TASK,
            unless they already are.
        output: write the models' ids to this file.

    Returns how to load them. Raises BertlineError if the run was not tracked, or a model does not exist, is damaged or
    cannot be registered; the others are logged first.
    """
    from mlflow.exceptions import MlflowException

    run_record, uri = read_record(record), uri or default_tracking_uri()
    results, failures = [], []
    with one_line_errors(uri), tracking_lock(uri):
        client = connect(uri)
        with one_line_damage(record):
            models = list(_models(run_record))
        experiment = client.get_experiment_by_name(run_record.experiment)
        if experiment is not None and not offers_logged_models(client, experiment.experiment_id):
            models = []
        for model in models:
            try:
                run = _run_of(client, experiment, model, model.entry)
                scored = _run_of(client, experiment, model, model.scored)
                logged = _logged(client, run, model.fingerprint) or _log(client, run, model)
            except BertlineError as error:
                failures.append(str(error))
                continue
            make_output(client, scored, logged.model_id)
            log_scores(client, scored, logged.model_id, model.points, model.entry.dataset if model.kept else None)
            load = load_expression(str(logged.model_type), f"models:/{logged.model_id}")
            result = {"model": model.name, "model_id": logged.model_id, "load": load}
            if register is not None and model.suffix is not None:
                result["registered"] = name = register + model.suffix
                try:
                    result["version"] = _register(client, run_record, model, logged, name)
                except BertlineError as error:
                    failures.append(str(error))
                except MlflowException as error:
                    if DOWN in str(error):
                        raise
                    failures.append(_explain_unregistered(name, error))
            results.append(result)
    if failures:
        raise BertlineError("; ".join(failures))
    if output:
        write_json(output, {"models": results})
    return "\n".join(
        result["load"] + (f"   {result['registered']} version {result['version']}" if "version" in result else "")
        for result in results
    )


def _models(record: Record) -> Iterator[_Model]:
    """Yield the final model of a run that pretrains, and the kept ones."""
    if record.phases:
        yield _Model(
            name=record.name,
            folder=record.phases[-1].path / paths.EXPORT,
            target="pretrain",
            fingerprint=record.phases[-1].fingerprint,
            entry=training_entry(record, record.phases[-1]),
            scored=lay_out(record),
            points=run_summary(record),
            suffix="",
        )
    for kept in record.kept:
        entry = training_entry(record, kept.finetuning)
        yield _Model(
            name=f"{record.name}-{kept.name}",
            folder=kept.folder.resolve(),
            target="finetune",
            fingerprint=kept.finetuning.fingerprint,
            entry=entry,
            scored=entry,
            points=[point for point in entry.points if point.key.startswith("score/")],
            suffix=f"-{kept.finetuning.task.replace('/', '-')}" if kept.finetuning.start == "pretrained" else None,
            kept=kept,
        )


def _run_of(client: MlflowClient, experiment: Experiment | None, model: _Model, entry: Entry) -> Run:
    """Return the MLflow run of an entry of a model: the one that tracking continues."""
    run = find_run(client, experiment.experiment_id, entry, read_origin()) if experiment else None
    if run is None:
        raise BertlineError(f"MLflow does not have the run of the model {model.name}; run `make track` first")
    return run


def _logged(client: MlflowClient, run: Run, fingerprint: str) -> LoggedModel | None:
    """Return this run's complete logged model of a phase or fine-tuning, if there is one; remove incomplete ones.

    Models of other runs, entries of checkpoints, and models whose files were deleted, are neither returned nor removed.
    """
    for model in list(find_logged_models(client, run.info.experiment_id, fingerprint)):
        if model.source_run_id != run.info.run_id or PATH_TAG in model.tags:
            continue
        if model.status == "READY":
            if _has_files(client, model.model_id):
                return model
            continue
        client.delete_logged_model(model.model_id)
    return None


def _existing(model: _Model) -> Path:
    """Return the folder of a model. Raises BertlineError if it does not exist."""
    if not (model.folder / paths.CONFIG).exists():
        raise BertlineError(f"{model.folder} does not exist; ask snakemake for `{model.target}` first")
    return model.folder


def _log(client: MlflowClient, run: Run, model: _Model) -> LoggedModel:
    _existing(model)  # first: what is damaged has another remedy
    with TemporaryDirectory(prefix="bertline-model-") as folder:
        saved = Path(folder, "model")
        kind = _save(model, saved)
        logged = add_logged_model(
            client,
            run,
            name=model.name,
            kind=kind,
            tags={FINGERPRINT_TAG: model.fingerprint},
            folder=saved,
        )
    logger.info("logged the model %s as %s", model.name, logged.model_id)
    return logged


def _save(model: _Model, saved: Path) -> str:
    """Save a model in MLflow's layout; return its kind."""
    try:
        save_model(model.folder, saved)
        return kind_of(model.folder)
    except Exception as error:  # damaged files raise many types in transformers, PyTorch and MLflow
        if isinstance(error, OSError) and error.errno in DISK_IS_FULL:
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise BertlineError(
            f"{model.folder} cannot be converted to MLflow's layout ({reason}); delete it and ask snakemake for "
            f"`{model.target}`, which makes it again"
        ) from error


def _register(client: MlflowClient, record: Record, model: _Model, logged: LoggedModel, name: str) -> str:
    """Return the version of a registered model that has the weights of a logged one; create it if it does not exist."""
    import mlflow
    from mlflow.exceptions import MlflowException

    # Addresses such as models:/m-... are resolved with this URI, not with the client's store.
    mlflow.set_tracking_uri(client.tracking_uri)
    if not client.search_registered_models(f"name = '{name}'"):
        try:
            client.create_registered_model(name, description=record.description)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise  # unless somebody else was first
    scores = {point.key: f"{point.value:.4f}" for point in model.points}
    versions = list(client.search_model_versions(f"name = '{name}'"))
    found = next((one for one in versions if one.tags.get(MODEL_ID_TAG) == logged.model_id), None)
    if found is None:
        # Or of a model with the same weights in another experiment: MLflow's experiments share no models.
        weights = {ORIGIN_TAG: read_origin(), WEIGHTS_TAG: digest_of_file(_existing(model) / paths.WEIGHTS)}
        equal = (one for one in versions if weights.items() <= one.tags.items())
        found = next((one for one in equal if _is_there(client, one.tags[MODEL_ID_TAG])), None)
    if found is None:
        tags = scores | weights | {MODEL_ID_TAG: logged.model_id}
        found = client.create_model_version(
            name, f"models:/{logged.model_id}", run_id=logged.source_run_id, tags=tags, model_id=logged.model_id
        )
    for key, value in scores.items():  # of the present tasks
        if found.tags.get(key) != value:
            client.set_model_version_tag(name, found.version, key, value)
    return str(found.version)


def _has_files(client: MlflowClient, model_id: str) -> bool:
    """Return whether the store has the file by which MLflow loads a logged model."""
    return any(file.path == "MLmodel" for file in client.list_logged_model_artifacts(model_id))


def _is_there(client: MlflowClient, model_id: str) -> bool:
    """Return whether neither a logged model nor its files were deleted."""
    from mlflow.exceptions import MlflowException

    try:
        client.get_logged_model(model_id)
        return _has_files(client, model_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False


def _explain_unregistered(name: str, error: Exception) -> str:
    reason = reason_of(error)[:200]
    if "error code 403" in reason:
        reason = "you may not edit it"
    return (
        f"the model is logged, but MLflow refused a version of the registered model {name} ({reason}); give another "
        "name under `register`, or ask its owner for the permission to edit it, and repeat the command"
    )
