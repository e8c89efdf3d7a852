"""The experiment of an MLflow store, and the runs in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bertline.console import BertlineError

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MAX_FOUND = 50_000  # runs or experiments, by a search


def find_or_create_experiment(client: MlflowClient, name: str, artifact_root: Path | None) -> str:
    """Return the id of the experiment of this name; one that was deleted is restored.

    Args:
        artifact_root: folder for the artifacts of a new experiment; None for the server's own.

    Raises BertlineError without a server for an experiment whose artifacts only a server takes: MLflow's own, Default.
    """
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            return client.create_experiment(name, artifact_location=str(artifact_root) if artifact_root else None)
        except MlflowException:
            experiment = client.get_experiment_by_name(name)  # another tracker was first
            if experiment is None:
                raise
    if artifact_root and experiment.artifact_location.startswith("mlflow-artifacts:"):
        raise BertlineError(f"experiment: {name} is one whose files only a server of MLflow takes; choose another name")
    if experiment.lifecycle_stage == "deleted":
        # In MLflow the name of a deleted experiment stays reserved.
        client.restore_experiment(experiment.experiment_id)
    return experiment.experiment_id


def search_runs(client: MlflowClient, experiment_id: str | None, condition: str) -> list[Run]:
    """Return the runs that meet a condition, oldest first; few of one run have the same tag.

    Args:
        client: of the store.
        experiment_id: the experiment to search; None for all that are not deleted.
        condition: in MLflow's syntax.
    """
    if experiment_id is None:
        ids = [one.experiment_id for one in client.search_experiments(max_results=MAX_FOUND)]
    else:
        ids = [experiment_id]
    order = ["attributes.start_time", "attributes.run_id"]
    return list(client.search_runs(ids, condition, max_results=MAX_FOUND, order_by=order))
