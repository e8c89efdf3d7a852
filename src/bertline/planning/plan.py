"""Everything that a configuration asks for, each under its fingerprint, and what a run consists of.

The graph looks its paths and settings up here; nothing in this package runs a stage or touches the network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertline.fingerprint import fingerprint
from bertline.results import paths

Json = dict[str, Any]


@dataclass
class Plan:
    """Everything a configuration asks for. Keys are names with fingerprints, or fingerprints."""

    config: Json
    schema: Json
    models: Path
    problems: list[str] = field(default_factory=list)  # inputs that are not there yet: a dry run goes on without
    warnings: list[str] = field(default_factory=list)  # what a real run goes on without, too
    corpora: dict[str, Json] = field(default_factory=dict)
    corpus_of_name: dict[str, str] = field(default_factory=dict)
    evaluation: Json | None = None  # the sets that documents are compared with, if a dataset asks for it
    datasets: dict[str, Json] = field(default_factory=dict)
    phases: dict[str, Json] = field(default_factory=dict)
    finetunings: dict[str, Json] = field(default_factory=dict)
    downloads: dict[str, Json] = field(default_factory=dict)  # evaluation data, by path
    runs: dict[str, Json] = field(default_factory=dict)

    @property
    def trained_runs(self) -> dict[str, Json]:
        """The runs that pretrain a model; the others fine-tune weights from elsewhere."""
        return {name: run for name, run in self.runs.items() if run["phases"]}

    @property
    def skipped(self) -> dict[tuple[str, str], str]:
        """The tasks that are left out because their data is not there: run and task -> a line that says so."""
        return {(name, task): line for name, run in self.runs.items() for task, line in run["skipped"].items()}

    @property
    def built_datasets(self) -> dict[str, Json]:
        """The datasets that the graph makes itself; the others are finished ones of someone else's."""
        return {key: dataset for key, dataset in self.datasets.items() if "path" not in dataset}

    def dataset_folder(self, dataset: str) -> str:
        """Where the dataset lies: in results/, or where someone else's finished one was named."""
        return self.datasets[dataset].get("path", paths.DATASET.format(dataset=dataset))

    def dataset_file(self, dataset: str, name: str) -> str:
        """Return the path of a file in a dataset's folder."""
        return f"{self.dataset_folder(dataset)}/{name}"


def record(plan: Plan, name: str) -> Json:
    """What a run consists of: its names and the fingerprints and folders behind them."""
    run = plan.runs[name]
    return {
        "run": name,
        "fingerprint": run["fingerprint"],
        "experiment": plan.config["experiment"],
        "description": run["config"]["description"],
        "config": run["config"],
        "dataset": run["dataset"] and {"fingerprint": run["dataset"], "path": plan.dataset_folder(run["dataset"])},
        "phases": [
            {"name": phase, "fingerprint": key, "path": paths.PHASE.format(phase=key)}
            for phase, key in run["phases"].items()
        ],
        "finetunings": [
            {
                "name": finetuning,
                "fingerprint": key,
                "path": paths.FINETUNING.format(finetuning=key),
                "learning_rate": plan.finetunings[key]["settings"]["learning_rate"],
                **{part: plan.finetunings[key][part] for part in ("task", "seed", "start")},
            }
            for finetuning, key in run["finetunings"].items()
        ],
        **({"skipped": list(run["skipped"].values())} if run["skipped"] else {}),
    }


def report_fingerprint(plan: Plan) -> str:
    """The name of the report over all runs of the plan."""
    return fingerprint([run["fingerprint"] for run in plan.runs.values()])
