"""The input files of a phase, a fine-tuning or a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.planning.entries import last_phase
from bertline.planning.plan import Plan
from bertline.planning.predictions import model_folder
from bertline.planning.targets import choices, deleted_models, of_runs, samples, scores
from bertline.results import paths


def made(plan: Plan, files: list[str]) -> list[str]:
    """Return those of the `files` that the graph makes.

    Only these are inputs of rules. The others are identified by their content, and may be anywhere, also among the
    results of another configuration, which no rule of this one makes.
    """
    planned = {**plan.named_by_fingerprint, Path(paths.DATASET).parent: plan.built_datasets}

    def is_made(file: str) -> bool:
        results, kind, key = (*Path(file).parts, "", "", "")[:3]
        in_plan = results == Path(paths.RUN).parts[0] and key in planned.get(Path(results, kind), [key])
        return in_plan or file in plan.downloads or file in plan.fetched

    return list(filter(is_made, files))


def models_to_make_again(plan: Plan) -> list[str]:
    """List the deleted models of finished fine-tunings that a choice or a prediction needs."""
    absent = [entry for output, entry in plan.predictions.items() if not Path(output).exists()]
    return [*deleted_models(plan), *(model_folder(entry["model"]) for entry in absent)]


def training_shards(plan: Plan, dataset: str) -> list[str]:
    """List the shards on which a dataset's vocabulary is trained."""
    shards = plan.datasets[dataset]["shards"]
    return [paths.DATASET_SHARD.format(dataset=dataset, shard=shard) for shard in shards if shard != paths.HELD_OUT]


def card_of_phase(plan: Plan, phase: str) -> str:
    """Return the dataset.json of a phase's samples."""
    return plan.dataset_file(plan.phases[phase]["dataset"], paths.CARD)


def samples_of_phase(plan: Plan, phase: str) -> list[str]:
    """List the files of a phase's samples, of its sequence length, if the graph makes them."""
    key, length = plan.phases[phase]["dataset"], plan.phases[phase]["settings"]["sequence_length"]
    return samples(plan, [key], lengths=[length]) if key in plan.built_datasets else []


def tokenizer_of(plan: Plan, key: str) -> str:
    """Return the tokenizer of a phase, a fine-tuning or a collection: of its dataset, or of external weights."""
    recipe: Mapping[str, Any] = plan.phases.get(key) or plan.finetunings.get(key) or plan.collections[key]
    return recipe["tokenizer"] if "tokenizer" in recipe else plan.dataset_file(recipe["dataset"], paths.TOKENIZER)


def weights_before_phase(plan: Plan, phase: str) -> list[str]:
    """Return the initial weights of a phase; none for random weights."""
    initial = plan.phases[phase]["initial_weights"] or {}
    if "phase" in initial:
        return [paths.PHASE_WEIGHTS.format(phase=initial["phase"])]
    if initial.get("directory") in plan.fetched:
        return [initial["directory"]]
    return [f"{initial['directory']}/{paths.WEIGHTS}"] if initial else []


def data_of_finetuning(plan: Plan, finetuning: str) -> list[str]:
    """List the files of a fine-tuning's task."""
    return list(plan.finetunings[finetuning]["data"].values())


def source_of_collection(plan: Plan, collection: str) -> str:
    """Return the file with a collection's passages."""
    return str(plan.collections[collection]["source"])


def weights_of_finetuning(plan: Plan, finetuning: str) -> list[str]:
    """Return the export to start from, or external weights; none for random weights."""
    initial = plan.finetunings[finetuning]["initial_weights"] or {}
    if "step" in initial:
        return [paths.CHECKPOINT_EXPORT.format(**initial)]
    if "phase" in initial:
        return [paths.PHASE_EXPORT.format(phase=initial["phase"])]
    return [initial["directory"]] if initial else []


def scores_of_choice(plan: Plan, kept: str) -> list[str]:
    """List the scores among which a kept model is chosen."""
    return scores(plan.kept[kept]["finetunings"])


def predictions_of_choice(plan: Plan, kept: str) -> list[str]:
    """List the predictions with a single fine-tuning among those of a choice, which may delete its model."""
    finetunings = plan.kept[kept]["finetunings"]
    return [
        output
        for output, entry in plan.predictions.items()
        if entry["model"].get("finetuning") in finetunings and not entry["absent"]
    ]


def inputs_of_prediction(plan: Plan, output: str) -> list[str]:
    """List the files of inputs of a prediction."""
    return list(plan.predictions[output]["inputs"])


def model_of_prediction(plan: Plan, output: str) -> list[str]:
    """Return the files that a prediction needs first: the choice of its model, or the model; none for a folder that
    the graph does not make."""
    model = plan.predictions[output]["model"]
    if "kept" in model:
        return [paths.KEPT_CHOICE.format(kept=model["kept"])]
    made = "phase" in model or "finetuning" in model or model["directory"] in plan.fetched
    return [model_folder(model)] if made else []


def card_of_run(plan: Plan, run: str) -> list[str]:
    """Return the dataset.json of a run that pretrains, see `cards_of_report`."""
    dataset = plan.phases[last_phase(plan.runs[run])]["dataset"]
    is_made = dataset in plan.built_datasets and not _was_deleted(plan, dataset)
    return [plan.dataset_file(dataset, paths.CARD)] if is_made else []


def cards_of_report(plan: Plan) -> list[str]:
    """List the dataset.json of every dataset that the graph makes, without those deleted after all phases on them.

    A phase has a copy of it.
    """
    left = [dataset for dataset in plan.built_datasets if not _was_deleted(plan, dataset)]
    return [plan.dataset_file(dataset, paths.CARD) for dataset in left]


def _was_deleted(plan: Plan, dataset: str) -> bool:
    """Return whether a dataset's card is absent, and all phases on it, of which there are some, have a copy."""
    if Path(plan.dataset_file(dataset, paths.CARD)).exists():
        return False
    phases = [paths.PHASE.format(phase=key) for key, entry in plan.phases.items() if entry["dataset"] == dataset]
    copied = (*paths.PHASE_OUTPUTS, paths.CARD)
    return bool(phases) and all(paths.is_finished(folder, copied) for folder in phases)


def journals_of_run(plan: Plan, run: str) -> list[str]:
    """List the journals of a run's phases."""
    return [paths.PHASE_JOURNAL.format(phase=phase) for phase in plan.runs[run]["phases"].values()]


def scores_of_run(plan: Plan, run: str) -> list[str]:
    """List the scores of all fine-tunings of a run."""
    return scores(plan.runs[run]["finetunings"].values())


def models_of_run(plan: Plan, run: str) -> list[str]:
    """List the final model of a run, if it pretrains one, and the choices of its fine-tuned models."""
    entry = plan.runs[run]
    final = [paths.PHASE_EXPORT.format(phase=last_phase(entry))] if entry["phases"] else []
    return final + choices(entry["kept"].values())


def tracked_pretraining(plan: Plan, run: str) -> list[str]:
    """Return the marker that a run's pretraining is in MLflow; none for a run that fine-tunes external weights."""
    return of_runs(paths.TRACKED_PRETRAINING, {run: plan.runs[run]} if run in plan.trained_runs else {})
