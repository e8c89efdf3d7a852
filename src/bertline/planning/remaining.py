"""What is still to be made of datasets, phases and fine-tunings, judged by what needs it.

A finished phase needs no samples: a dataset that was deleted after the last phase on it is not made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.planning.entries import last_phase
from bertline.planning.inputs import (
    card_of_phase,
    card_of_run,
    cards_of_report,
    models_to_make_again,
    samples_of_phase,
    weights_of_finetuning,
)
from bertline.planning.plan import Plan
from bertline.planning.targets import of_runs, report_page, samples
from bertline.results import paths

NOT_NEEDED = "not needed"  # state of data that was deleted after all that needs it, or that nothing needs


@dataclass(frozen=True)
class DatasetLeft:
    """What is still to be made of a dataset.

    Attributes:
        card: whether its dataset.json is.
        encode: the shards whose samples are.
        write: the shards whose text is, for their samples or for the tokenizer.
        reads_corpora: whether its corpora are needed.
    """

    card: bool
    encode: list[str]
    write: list[str]
    reads_corpora: bool


def datasets_left(plan: Plan) -> dict[str, DatasetLeft]:
    """Return what is still to be made of each dataset that the graph makes."""
    cards, read = _needed_cards(plan), _datasets_of_tokenizers(plan)
    return {key: _dataset_left(plan, key, cards, needs_tokenizer=key in read) for key in plan.built_datasets}


def files_left(plan: Plan) -> set[str]:
    """Return the files of datasets that are still to be made, and the folders of the corpora and phases that are."""
    found = {paths.PHASE.format(phase=key) for key in phases_left(plan)}
    for key, left in datasets_left(plan).items():
        found |= {paths.DATASET_SHARD.format(dataset=key, shard=shard) for shard in left.write}
        found |= {file for file in samples(plan, [key]) if Path(file).stem in left.encode}
        found |= {plan.dataset_file(key, paths.CARD)} if left.card else set()
        corpora = plan.datasets[key]["corpora"] if left.reads_corpora else []
        found |= {paths.CORPUS.format(corpus=corpus) for corpus in corpora}
    return found


def finetunings_left(plan: Plan) -> set[str]:
    """Return the fine-tunings to make: the unfinished ones, and those whose model was deleted and is needed."""
    again = {model for model in models_to_make_again(plan) if not Path(model).exists()}
    return {
        key
        for key in plan.finetunings
        if not paths.is_finished(paths.FINETUNING.format(finetuning=key), paths.FINETUNING_OUTPUTS)
        or paths.FINETUNED_MODEL.format(finetuning=key) in again
    }


def phases_left(plan: Plan) -> list[str]:
    """Return the unfinished phases that something absent needs; without the report, which needs all, these are all."""
    unfinished = [key for key in plan.phases if not _is_finished(key)]
    return [key for key in unfinished if not Path(report_page(plan)).exists() or _is_needed(plan, key)]


def _is_finished(phase: str) -> bool:
    return paths.is_finished(paths.PHASE.format(phase=phase), paths.PHASE_OUTPUTS)


def _is_needed(plan: Plan, phase: str) -> bool:
    """Return whether anything made of an unfinished phase is absent, or nothing is made of it."""
    following = [key for key, entry in plan.phases.items() if _starts_from(entry, phase)]
    runs = {name: run for name, run in plan.trained_runs.items() if phase in run["phases"].values()}
    files = of_runs(paths.TRACKED_PRETRAINING, runs)
    if any(last_phase(run) == phase for run in runs.values()):
        files.append(paths.PHASE_EXPORT.format(phase=phase))
    for key in finetunings_left(plan):
        files += weights_of_finetuning(plan, key) if _starts_from(plan.finetunings[key], phase) else []
    unfinished = [key for key in following if not _is_finished(key)]
    is_used = any(not Path(file).exists() for file in files) or any(_is_needed(plan, key) for key in unfinished)
    return is_used or not (files or following)


def _starts_from(entry: Mapping[str, Any], phase: str) -> bool:
    return (entry.get("initial_weights") or {}).get("phase") == phase


def _needed_cards(plan: Plan) -> set[str]:
    """Return the cards that the remaining phases, records in MLflow and report need."""
    needed = {card_of_phase(plan, phase) for phase in _phases_on_samples(plan)}
    if not Path(report_page(plan)).exists():
        return needed | set(cards_of_report(plan))
    tracked = {run: of_runs(paths.TRACKED_PRETRAINING, {run: entry})[0] for run, entry in plan.trained_runs.items()}
    return needed | {
        card for run, file in tracked.items() if not Path(file).exists() for card in card_of_run(plan, run)
    }


def _phases_on_samples(plan: Plan) -> list[str]:
    """Return the phases that still need samples, for their training or, for the report, their trigram baseline."""
    if Path(report_page(plan)).exists():
        return phases_left(plan)
    outputs = (*paths.PHASE_OUTPUTS, paths.TRIGRAM)
    return [key for key in plan.phases if not paths.is_finished(paths.PHASE.format(phase=key), outputs)]


def _dataset_left(plan: Plan, key: str, cards: set[str], *, needs_tokenizer: bool) -> DatasetLeft:
    """Return what is left of a dataset, given the needed `cards` of all."""
    folder, shards = Path(plan.dataset_folder(key)), plan.datasets[key]["shards"]
    is_absent = str(folder / paths.CARD) in cards and not (folder / paths.CARD).exists()
    needed = samples(plan, [key]) if is_absent else []
    for phase in _phases_on_samples(plan):
        needed += samples_of_phase(plan, phase) if plan.phases[phase]["dataset"] == key else []
    absent = {Path(file).stem for file in needed if not Path(file).exists()}
    card = is_absent or bool(absent)  # written again after new samples
    read = set(absent)
    is_trained = "train" in plan.datasets[key]["settings"]["tokenizer"]
    if is_trained and (absent or needs_tokenizer) and not (folder / paths.TOKENIZER).exists():
        read |= {shard for shard in shards if shard != paths.HELD_OUT}
    write = [shard for shard in shards if shard in read and not (folder / paths.SHARD.format(shard=shard)).exists()]
    return DatasetLeft(
        card=card,
        encode=[shard for shard in shards if shard in absent],
        write=write,
        # Shards are written by the plan of them; the card has the counts of all documents.
        reads_corpora=card or bool(write and not (folder / paths.PLAN).exists()),
    )


def _datasets_of_tokenizers(plan: Plan) -> set[str | None]:
    """Return the datasets whose tokenizers the remaining exports and fine-tunings need."""
    last = {last_phase(run) for run in plan.trained_runs.values()}
    exported = {plan.phases[key]["dataset"] for key in last if not Path(paths.PHASE_EXPORT.format(phase=key)).exists()}
    return exported | {plan.finetunings[key]["dataset"] for key in finetunings_left(plan)}
