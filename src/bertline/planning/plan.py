"""The plan: everything that a configuration requests, by fingerprint, and the parts of each run.

The graph gets its paths and settings from the plan; nothing in this package runs a stage or accesses the network.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import Json
from bertline.fingerprint import fingerprint
from bertline.planning.entries import (
    ChoiceRecipe,
    CollectionRecipe,
    CorpusEntry,
    DatasetEntry,
    EvaluationSets,
    FinetuningRecipe,
    PhaseRecipe,
    PredictionRecipe,
    RunEntry,
)
from bertline.results import paths


@dataclass
class Plan:
    """Everything that a configuration requests. Keys are names with fingerprints, or fingerprints."""

    config: Json
    schema: Json
    models: Path
    problems: list[str] = field(default_factory=list)  # missing inputs: only a dry run continues without
    warnings: list[str] = field(default_factory=list)  # missing inputs that a real run continues without, too
    corpora: dict[str, CorpusEntry] = field(default_factory=dict)
    corpus_of_name: dict[str, str] = field(default_factory=dict)
    evaluation: EvaluationSets | None = None  # the sets to compare documents with, if a dataset requests it
    datasets: dict[str, DatasetEntry] = field(default_factory=dict)
    phases: dict[str, PhaseRecipe] = field(default_factory=dict)
    checkpoints: dict[str, set[int]] = field(default_factory=dict)  # steps of phases that runs start from
    finetunings: dict[str, FinetuningRecipe] = field(default_factory=dict)
    kept: dict[str, ChoiceRecipe] = field(default_factory=dict)  # choices among the fine-tunings of a task and start
    predictions: dict[str, PredictionRecipe] = field(default_factory=dict)  # by the file to write
    downloads: dict[str, Json] = field(default_factory=dict)  # files that the graph gets, by path: url, sha256, member
    fetched: dict[str, Json] = field(default_factory=dict)  # external weights that the graph gets, by folder
    collections: dict[str, CollectionRecipe] = field(default_factory=dict)  # of passages, tokenized
    runs: dict[str, RunEntry] = field(default_factory=dict)

    @property
    def trained_runs(self) -> dict[str, RunEntry]:
        """The runs that pretrain a model; the others fine-tune external weights."""
        return {name: run for name, run in self.runs.items() if run["phases"]}

    @property
    def skipped(self) -> dict[tuple[str, str], str]:
        """The tasks that are skipped because their data is missing: (run, task) -> a message."""
        return {(name, task): line for name, run in self.runs.items() for task, line in run["skipped"].items()}

    @property
    def named_by_fingerprint(self) -> dict[Path, Collection[str]]:
        """The folders whose results are named by fingerprints, and the fingerprints that the plan has there."""
        kinds: dict[str, Collection[str]] = {
            paths.CORPUS: self.corpora,
            paths.EVALUATION: [self.evaluation["fingerprint"]] if self.evaluation else [],
            paths.DATASET: self.datasets,
            paths.PHASE: self.phases,
            paths.FINETUNING: self.finetunings,
            paths.KEPT: self.kept,
            paths.COLLECTION: self.collections,
        }
        return {Path(template).parent: keys for template, keys in kinds.items()}

    @property
    def built_datasets(self) -> dict[str, DatasetEntry]:
        """The datasets that the graph makes; the others are finished external ones."""
        return {key: dataset for key, dataset in self.datasets.items() if "path" not in dataset}

    def keep_checkpoint(self, phase: str, step: int, where: str) -> str | None:
        """Keep the checkpoint of a step of a phase, and return why it is too late for that; None if it is not.

        Raises BertlineError naming `where` if the phase does not have this step.
        """
        steps, folder = self.phases[phase]["settings"]["steps"], Path(paths.PHASE.format(phase=phase))
        if step > steps:
            raise BertlineError(f"{where}: given step {step}, allowed are 0 to {steps}")
        self.checkpoints.setdefault(phase, set()).add(step)
        kept = paths.checkpoints_in(folder / paths.CHECKPOINTS)
        passed = paths.is_finished(folder, paths.PHASE_OUTPUTS) or paths.durable_step(folder) > step
        exported = Path(paths.CHECKPOINT_EXPORT.format(phase=phase, step=step))
        if not passed or step in kept or exported.exists():
            return None
        others = f"; name one of its checkpoints: {', '.join(map(str, kept))}" if kept else ""
        return f"{where}: {folder} has passed step {step} and keeps no checkpoint of it{others}"

    def dataset_folder(self, dataset: str) -> str:
        """Return the dataset's folder: in results/, or the configured one of a finished dataset."""
        return self.datasets[dataset].get("path", paths.DATASET.format(dataset=dataset))

    def dataset_file(self, dataset: str, name: str) -> str:
        """Return the path of a file in a dataset's folder."""
        return f"{self.dataset_folder(dataset)}/{name}"


def record(plan: Plan, name: str) -> Json:
    """Return the record of a run: its stages with names, fingerprints and folders."""
    run = plan.runs[name]
    return {
        "run": name,
        "fingerprint": run["fingerprint"],
        "experiment": plan.config["experiment"],
        "description": run["config"]["description"],
        "model_card": run["config"].get("model_card", {}),
        # Neither a parameter nor a difference between two runs: the name for MLflow's registry, what only cards say.
        "config": {key: value for key, value in run["config"].items() if key not in ("register", "model_card")},
        "dataset": run["dataset"]
        and {
            "fingerprint": run["dataset"],
            "path": plan.dataset_folder(run["dataset"]),
            **({"corpora": plan.datasets[run["dataset"]]["corpora"]} if run["dataset"] in plan.built_datasets else {}),
            **_phases_of_others(plan, run),
        },
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
        "kept": dict(run["kept"]),
        **({"skipped": list(run["skipped"].values())} if run["skipped"] else {}),
    }


def _phases_of_others(plan: Plan, run: RunEntry) -> Json:
    """Return, of a run without phases, those of others that its fine-tunings start from: they have the data's card."""
    if run["phases"]:
        return {}
    starts = (plan.finetunings[key]["initial_weights"] or {} for key in run["finetunings"].values())
    return {"phases": sorted({paths.PHASE.format(phase=start["phase"]) for start in starts if "phase" in start})}


def report_fingerprint(plan: Plan) -> str:
    """Return the fingerprint of the report over all runs of the plan."""
    return fingerprint([run["fingerprint"] for run in plan.runs.values()])
