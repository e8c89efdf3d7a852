"""Logging of a run's final model to MLflow, for `mlflow.transformers` and `mlflow.pytorch`; registered on request."""

from __future__ import annotations

import inspect
import logging
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bertline.console import BertlineError
from bertline.files import write_json
from bertline.results import paths
from bertline.results.records import Record, read_record
from bertline.tracking.run_tree import run_summary
from bertline.tracking.store import connect, default_tracking_uri, one_line_errors, tracking_lock

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run

logger = logging.getLogger(__name__)


def log_model(record: Path, *, uri: str | None = None, register: str | None = None, output: Path | None = None) -> str:
    """Log the export of a run's last phase as a model of the run, with its scores. The function is idempotent.

    Args:
        record: record.json of a tracked run.
        uri: the tracking store (default: $MLFLOW_TRACKING_URI, or mlflow.db here).
        register: make it a version of the registered model of this name, unless it already is one.
        output: write the model's id to this file.

    Returns how to load it. Raises BertlineError if the run was not tracked or not exported.
    """
    run_record, uri = read_record(record), uri or default_tracking_uri()
    if not run_record.phases:
        raise BertlineError(f"the run {run_record.name} pretrains no model, so there is none to keep; name another run")
    phase = run_record.phases[-1]
    export = phase.path / paths.EXPORT
    if not (export / "config.json").exists():
        raise BertlineError(f"{export} does not exist; ask snakemake for `pretrain` first")
    with tracking_lock(uri), one_line_errors(uri):
        client = connect(uri)
        run = _run_of(client, run_record)
        model = _logged_model(client, run, phase.fingerprint) or _log(client, run, run_record, export)
        address = f"models:/{model.model_id}"
        result = {"model_id": model.model_id, "load": f'mlflow.transformers.load_model("{address}")'}
        if register is not None:
            result["version"] = _register(client, run, run_record, model, register)
    if output:
        write_json(output, result)
    return result["load"] + (f"   {register} version {result['version']}" if register else "")


def _run_of(client: MlflowClient, record: Record) -> Run:
    experiment = client.get_experiment_by_name(record.experiment)
    condition = f"tags.`bertline.stage` = 'run' AND tags.`bertline.record` = '{record.fingerprint}'"
    found = client.search_runs([experiment.experiment_id], condition) if experiment else []
    if not found:
        raise BertlineError(f"MLflow does not have the run {record.name}; run `make track` first")
    return found[0]


def _logged_model(client: MlflowClient, run: Run, fingerprint: str) -> LoggedModel | None:
    """Return this run's complete logged model of a phase, if there is one; remove incomplete ones."""
    found = client.search_logged_models(
        experiment_ids=[run.info.experiment_id], filter_string=f"tags.`bertline.fingerprint` = '{fingerprint}'"
    )
    for model in found:
        if model.source_run_id != run.info.run_id:
            continue
        if model.status == "READY":
            return model
        client.delete_logged_model(model.model_id)
    return None


def _log(client: MlflowClient, run: Run, record: Record, export: Path) -> LoggedModel:
    import mlflow.transformers
    import transformers
    from mlflow.entities import LoggedModelOutput

    # Their warnings concern models from the Hub: a missing card, an unknown licence.
    logging.getLogger("mlflow.transformers").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = client.create_logged_model(
        run.info.experiment_id,
        name=record.name,
        source_run_id=run.info.run_id,
        tags={"bertline.fingerprint": record.phases[-1].fingerprint, "bertline.record": record.fingerprint},
        model_type="fill-mask",
    )
    pipeline = transformers.pipeline("fill-mask", model=str(export))
    with TemporaryDirectory(prefix="bertline-model-") as folder:
        local = Path(folder, "model")
        mlflow.transformers.save_model(pipeline, str(local), pip_requirements=["mlflow", "torch", "transformers"])
        _add_network(pipeline, local)
        client.log_model_artifacts(model.model_id, str(local))
    for score in run_summary(record):
        client.log_metric(
            run.info.run_id, score.key, score.value, model_id=model.model_id, timestamp=run.info.start_time
        )
    logger.info("logged the model of %s as %s", record.name, model.model_id)
    # The run's page lists the run's outputs, not the models that name it as their source.
    client.log_outputs(run.info.run_id, [LoggedModelOutput(model.model_id, step=0)])
    return client.finalize_logged_model(model.model_id, "READY")


def _add_network(pipeline: Any, saved: Path) -> None:
    """Make a saved pipeline readable by `mlflow.pytorch.load_model`, too: its network from token ids to logits.

    It is saved as an exported graph, the only format without pickles, with a second copy of the weights.
    """
    import mlflow.pytorch
    import numpy as np
    import torch
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec
    from torch import Tensor

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = pipeline.model.eval()

        def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
            segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            return self.network(input_ids, attention_mask, **segments).logits

    # Two texts: with a batch of one, the exported batch size would be fixed to one.
    example = pipeline.tokenizer(["one text", "and another text"], padding=True, return_tensors="pt")
    taken = inspect.signature(pipeline.model.forward).parameters
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in taken and name in example]
    inputs = Schema([TensorSpec(np.dtype("int64"), (-1, -1), name) for name in names])
    with TemporaryDirectory(prefix="bertline-network-") as folder:
        network = Path(folder, "network")
        mlflow.pytorch.save_model(
            Logits(),
            str(network),
            serialization_format="pt2",
            input_example=tuple(example[name] for name in names),
            signature=ModelSignature(inputs, Schema([TensorSpec(np.dtype("float32"), (-1, -1, -1), "logits")])),
            pip_requirements=["mlflow", "torch"],
        )
        flavor = Model.load(str(network)).flavors["pytorch"]
        shutil.move(network / flavor["model_data"], saved / flavor["model_data"])
    both = Model.load(str(saved))
    both.add_flavor("pytorch", **flavor)
    both.save(str(saved / "MLmodel"))


def _register(client: MlflowClient, run: Run, record: Record, model: LoggedModel, name: str) -> str:
    import mlflow

    # Addresses such as models:/m-... are resolved with this URI, not with the client's store.
    mlflow.set_tracking_uri(client.tracking_uri)
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name, description=record.description)
    for version in client.search_model_versions(f"name = '{name}'"):
        if version.tags.get("bertline.model_id") == model.model_id:
            return str(version.version)
    tags = {score.key: f"{score.value:.4f}" for score in run_summary(record)} | {"bertline.model_id": model.model_id}
    created = client.create_model_version(
        name, f"models:/{model.model_id}", run_id=run.info.run_id, tags=tags, model_id=model.model_id
    )
    return str(created.version)
