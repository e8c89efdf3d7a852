"""Layout of a run in MLflow as a tree of entries, derived from files alone.

The root is the entry of `runs:`; its children are the data, each phase and each task, and a task's are its seeds. An
entry is found by its identity tags, which are unique; names need not be.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from bertline.files import digest_of_file, one_line_damage
from bertline.fingerprint import fingerprint
from bertline.results import describe, paths
from bertline.results.curves import places
from bertline.results.records import Finetuning, Phase, Record, Training, chosen_on_dev
from bertline.results.report_files import CARDS, report_files
from bertline.tracking.tags import DATASET_DIGEST_TAG, PATH_TAG
from bertline.tracking.thinning import thin

# A recipe's keys that affect the result, in addition to its settings. MLflow's parameters are immutable, so they
# include nothing else: a resume on other hardware must not conflict.
_PARAMETERS = ("dataset", "initial_weights", "model", "phase", "seed", "start", "task")
# Keys of paths: weights that were moved are the same weights.
_PLACES = ("directory", "google", "pretrained")
# The file, or a ranking's queries or TFRecord files, that a fine-tuning's scores are of.
_DEVELOPMENT_SETS = ("dev", "dev_queries", "dev_tfrecords")
# Keys that may differ when the same result is made again.
_CIRCUMSTANCES = (
    *("git_commit", "git_dirty", "hardware", "world_size", "threads"),
    *("dataset_digest", "started", "finished"),
)


@dataclass(frozen=True)
class Point:
    """A metric's value. A timestamp of None means the start of its MLflow run."""

    key: str
    step: int
    timestamp: int | None
    value: float


@dataclass(frozen=True)
class DatasetInput:
    """Dataset of an entry. `digest` is at most 36 characters long."""

    name: str
    digest: str
    source: str
    profile: str
    context: str


class Artifact(NamedTuple):
    """A file to keep with an entry, and its folder in MLflow; empty for the root."""

    path: Path
    folder: str = ""


class Checkpoint(NamedTuple):
    """A checkpoint on disk, and the values of the journal at its step."""

    path: Path
    step: int
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Entry:
    """Target state of one MLflow run. Times are Unix milliseconds.

    Data, phases and fine-tunings that several runs share have identity tags without a run: each is one MLflow run,
    a child of the first of these runs and linked from the others. Only the root has the name of their experiment.
    """

    name: str
    identity_tags: dict[str, str]
    description: str
    finished: bool
    started: int | None = None
    ended: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    dataset: DatasetInput | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    children: list[Entry] = field(default_factory=list)
    experiment: str = ""


def lay_out(record: Record, report: Path | None = None) -> Entry:
    """Return the tree of entries for `record`; stages that have not started are absent."""
    children = []
    if record.dataset.card:
        with one_line_damage(record.dataset.card_file):
            children.append(_data_entry(record))
    children += [training_entry(record, phase) for phase in record.phases if phase.started]
    for group, finetunings in record.groups.items():
        if present := [finetuning for finetuning in finetunings if finetuning.started]:
            children.append(_task_entry(record, group, finetunings, present))
    config = {key: value for key, value in record.config.items() if key != "description"}
    started, ended = _span(children)
    return Entry(
        name=record.name,
        identity_tags=identity_of("run", record.fingerprint, run=record.name, record=record.fingerprint),
        description=_run_description(record),
        finished=record.finished,
        started=started,
        ended=ended,
        parameters=_without_places(describe.flatten(config)),
        tags={"mlflow.source.name": "Snakefile", "mlflow.source.type": "LOCAL"}
        | _latest_tags(record)
        | _sizes(record.finetunings),
        points=_curves(record) + (run_summary(record) if record.finished else []),
        artifacts=[Artifact(record.path), *(_report_artifacts(record, report) if report else [])],
        dataset=_dataset_input(record, "pretraining"),
        children=children,
        experiment=record.experiment,
    )


def identity_of(stage: str, fingerprint: str, **more: Any) -> dict[str, str]:
    """Return the tags by which the MLflow run of an entry is found."""
    tags = {"stage": stage, "fingerprint": fingerprint, **more}
    return {f"bertline.{key}": str(value) for key, value in tags.items()}


def _span(children: Sequence[Entry]) -> tuple[int | None, int | None]:
    """Return the start of the first and the end of the last of several entries."""
    starts = [child.started for child in children if child.started is not None]
    ends = [child.ended for child in children if child.ended is not None]
    return min(starts, default=None), max(ends, default=None)


def _data_entry(record: Record) -> Entry:
    card, path = record.dataset.card, record.dataset.card_file
    written = int(path.stat().st_mtime * 1000)
    settings = {**card.get("settings", {}), "tokenizer.vocab_size": card["tokenizer"]["vocab_size"]}
    return Entry(
        name="data",
        identity_tags=identity_of("data", record.dataset.fingerprint),
        description=describe.describe_dataset(card),
        finished=True,
        started=written,
        ended=written,
        parameters=describe.flatten(settings),
        tags={DATASET_DIGEST_TAG: digest_of_file(path), PATH_TAG: str(record.dataset.path)}
        | source_tags("write_dataset_card"),
        points=[Point(key, 0, None, float(value)) for key, value in _counts(card).items()],
        artifacts=[Artifact(path)],
        dataset=_dataset_input(record, "encoding"),
    )


def _task_entry(record: Record, group: str, planned: list[Finetuning], started: list[Finetuning]) -> Entry:
    """Return a task's entry with its seeds as children and, once all are finished, the medians for each start."""
    children = [training_entry(record, finetuning) for finetuning in started]
    finished = all(finetuning.finished for finetuning in planned)
    started_at, ended_at = _span(children)
    seeds = len({finetuning.seed for finetuning in planned})
    return Entry(
        name=group,
        identity_tags=identity_of(group, record.fingerprint, run=record.name, record=record.fingerprint, task=group),
        description=f"{describe.task_title(group)}: {len(planned)} fine-tunings over {seeds} seeds.",
        finished=finished,
        started=started_at,
        ended=ended_at,
        tags=source_tags("finetune") | _sizes(planned),
        points=_medians(chosen_on_dev(planned)) if finished else [],
        children=children,
    )


def training_entry(record: Record, training: Phase | Finetuning) -> Entry:
    """Return the entry of a phase or a fine-tuning.

    Its points are the journal's values in the order written and with the journal's timestamps, then the final ones: a
    phase's baseline, a fine-tuning's scores and baselines.
    """
    with one_line_damage(training.recipe_path):
        return _training_entry(record, training)


def _training_entry(record: Record, training: Phase | Finetuning) -> Entry:
    final: dict[str, float | None] = {}
    if isinstance(training, Phase):
        identity_tags, describe_recipe = identity_of(training.name, training.fingerprint), describe.describe_phase
        if training.finished:
            final = {"baseline/trigram_loss": training.trigram_loss}
    else:
        group, start, describe_recipe = training.group, training.start, describe.describe_finetuning
        identity_tags = identity_of(group, training.fingerprint, task=group, seed=training.seed, start=start)
        for prefix, values in (("score", "scores"), ("baseline", "baselines")):
            final |= {f"{prefix}/{name}": value for name, value in training.result.get(values, {}).items()}
    recipe = describe_recipe(training.recipe, record.phase_names) if training.recipe else ""
    kept = {key: training.recipe[key] for key in _PARAMETERS if key in training.recipe}
    files = [training.recipe_path, training.path / paths.SCORES, *sorted(training.path.glob(paths.PREDICTIONS))]
    last_step = training.journal[-1].step if training.journal else 0
    ended = _moment(training, "finished", -1)
    points = [
        Point(key, line.step, line.timestamp, value)
        for line, metrics in zip(training.journal, thin(training), strict=True)
        for key, value in metrics.items()
    ]
    checkpoints = _checkpoints(training) if isinstance(training, Phase) else []
    points += [Point(key, last_step, ended, float(value)) for key, value in final.items() if value is not None]
    return Entry(
        name=training.name,
        identity_tags=identity_tags,
        description=recipe if training.finished else f"Still training. {recipe}".strip(),
        finished=training.finished,
        started=_moment(training, "started", 0),
        ended=ended,
        parameters=_without_places(describe.flatten(kept | training.recipe.get("settings", {}))),
        tags=_recipe_tags(training)
        | (source_tags("pretrain") if isinstance(training, Phase) else source_tags("finetune") | _sizes([training])),
        points=points,
        artifacts=[Artifact(file) for file in files if file.exists()] if training.finished else [],
        dataset=_dataset_input(record, training.name) if isinstance(training, Phase) else _task_dataset(training),
        checkpoints=checkpoints,
    )


def _checkpoints(phase: Phase) -> list[Checkpoint]:
    """Return the checkpoints up to the last point of the journal: later points may be retracted."""
    steps = {step: folder.absolute() for step, folder in paths.checkpoints_in(phase.path / paths.CHECKPOINTS).items()}
    points: defaultdict[int, list[Point]] = defaultdict(list)
    for line in phase.journal:
        if line.step in steps:
            points[line.step] += [Point(key, line.step, line.timestamp, value) for key, value in line.metrics.items()]
    last = phase.journal[-1].step if phase.journal else -1
    return [Checkpoint(folder, step, tuple(points[step])) for step, folder in steps.items() if step <= last]


def _medians(finetunings: list[Finetuning]) -> list[Point]:
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for finetuning in finetunings:
        start = finetuning.start
        if start == "random" and finetuning.learning_rate is not None:
            start = f"random_{describe.number(finetuning.learning_rate)}"
        for score, value in finetuning.result["scores"].items():
            groups[f"{start}/{score}_median"].append(value)
    return [Point(key, 0, None, statistics.median(values)) for key, values in groups.items()]


def _curves(record: Record) -> list[Point]:
    """Return the loss over all phases by samples, tokens and seconds, each as MLflow's step."""
    every, chosen = places(record.phases), chain.from_iterable(map(thin, record.phases))
    return [
        Point(f"by_{axis}/{name}", round(amount), place.timestamp, metrics[key])
        for (_, place, _), metrics in zip(every, chosen, strict=True)
        for name, key in (("mlm_loss", "train/mlm_loss"), ("held_out_mlm_loss", "held_out/mlm_loss"))
        if key in metrics
        for axis, amount in (("samples", place.samples), ("tokens", place.tokens), ("seconds", 3600 * place.hours))
        if math.isfinite(amount)
    ]


def run_summary(record: Record) -> list[Point]:
    """Return the metrics that compare runs: each phase's held-out loss, and each finished task's median score."""
    points = []
    for phase in record.phases:
        loss = phase.held_out("mlm_loss")
        if loss is not None:
            points.append(Point(f"{phase.name}/held_out_mlm_loss", 0, None, loss))
    for group, finetunings in record.groups.items():
        pretrained = [one.result for one in chosen_on_dev(finetunings) if one.start == "pretrained"]
        if pretrained and all(one.finished for one in finetunings):
            primary = pretrained[0]["primary"]
            median = statistics.median(result["scores"][primary] for result in pretrained)
            points.append(Point(f"{group}/{primary}", 0, None, median))
    return points


def _run_description(record: Record) -> str:
    lines = [record.description] if record.description else []
    if record.last_training:
        with one_line_damage(record.last_training.recipe_path):
            lines.append(describe.describe_network(record.network))
    if record.dataset.card:
        lines.append(f"Data: {describe.describe_dataset(record.dataset.card)}")
    lines += [
        f"{phase.name}: {describe.describe_phase(phase.recipe, record.phase_names)}"
        for phase in record.phases
        if phase.recipe
    ]
    lines += record.skipped
    return "\n\n".join(lines)


def _without_places(parameters: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in parameters.items() if key.rpartition(".")[2] not in _PLACES}


def _recipe_tags(training: Training) -> dict[str, str]:
    """Return tags of the circumstances of a training: path, commit, hardware, jobs, initial weights, versions."""
    recipe = training.recipe
    tags = {PATH_TAG: str(training.path)}
    if recipe.get("git_commit"):
        tags["mlflow.source.git.commit"] = str(recipe["git_commit"])
    for key in _CIRCUMSTANCES:
        if recipe.get(key) is not None:
            tags |= describe.flatten({key: recipe[key]}, "bertline.")
    if recipe.get("jobs"):
        tags["bertline.jobs"] = ", ".join(recipe["jobs"])
    if initial := recipe.get("initial_weights"):
        phase = initial.get("phase")
        tags["bertline.parent"] = phase or initial["content"]
        tags["bertline.parent_path"] = paths.PHASE.format(phase=phase) if phase else initial["directory"]
    return tags | describe.flatten(recipe.get("versions", {}), "bertline.version.")


def _sizes(trainings: Sequence[Finetuning]) -> dict[str, str]:
    """Return a tag with the sizes of the development sets that the scores of finished fine-tunings are of."""
    results = {one.group: one.result for one in trainings if one.finished}
    sizes = {group: describe.number_of_examples(result, result["primary"]) for group, result in results.items()}
    known = [f"{group} {size}" for group, size in sizes.items() if size is not None]
    return {"bertline.dev_examples": ", ".join(known)} if known else {}


def _latest_tags(record: Record) -> dict[str, str]:
    """Return the code and dataset tags of the run's last training."""
    kept = ("mlflow.source.git.commit", "bertline.git_commit", "bertline.git_dirty", DATASET_DIGEST_TAG)
    tags = _recipe_tags(record.last_training) if record.last_training else {}
    return {key: value for key, value in tags.items() if key in kept}


def _dataset_input(record: Record, context: str) -> DatasetInput | None:
    dataset = record.dataset
    if not dataset.card:
        return None
    profile = {name: count for name, count in _counts(dataset.card).items() if name != "held_out_documents"}
    return DatasetInput(
        name=record.config.get("dataset", dataset.fingerprint),
        digest=dataset.fingerprint[:36],
        source=str(dataset.path / paths.CARD),
        profile=json.dumps(profile, sort_keys=True),
        context=context,
    )


def _task_dataset(finetuning: Finetuning) -> DatasetInput | None:
    """Return the data of a finished fine-tuning's task; None if its recipe is of a version without digests.

    It is what was trained on, by the recipe: the files may have been changed or moved since. A download or a tokenized
    collection has the fingerprint of its source in its path.
    """
    files, sha256 = finetuning.recipe.get("data", {}), finetuning.recipe.get("sha256")
    if not finetuning.finished or not files or sha256 is None:
        return None
    collections = paths.COLLECTION.format(collection="")
    digests = {name: sha256.get(path, path.removeprefix(collections)) for name, path in files.items()}
    return DatasetInput(
        name=finetuning.group,
        digest=fingerprint(digests),
        source=files[next((name for name in _DEVELOPMENT_SETS if name in files), "dev")],
        profile=json.dumps(finetuning.result.get("examples", {}), sort_keys=True),
        context="fine-tuning",
    )


def source_tags(script: str) -> dict[str, str]:
    """Return the tags that name the script that made an entry."""
    return {"mlflow.source.name": f"workflow/scripts/{script}.py", "mlflow.source.type": "LOCAL"}


def _counts(card: Mapping[str, Any]) -> dict[str, int]:
    """Return the documents and sentences of a dataset, and the samples and tokens of each sequence length."""
    counts = {name: card[name] for name in ("documents", "sentences", "held_out_documents")}
    for length, content in card["sequence_lengths"].items():
        counts |= {f"samples_{length}": content["samples"], f"tokens_{length}": content["tokens"]}
    return counts


def _report_artifacts(record: Record, report: Path) -> list[Artifact]:
    """Return the existing files of a report: its page, and the figures, tables and model card of this record's run."""
    files = [Artifact(report)]
    for path in report_files(report.parent, record.fingerprint):
        folder = path.relative_to(report.parent).parts[0]
        files.append(Artifact(path, "" if folder == CARDS else folder))
    return [file for file in files if file.path.exists()]


def _moment(training: Training, key: str, point: int) -> int | None:
    """Return a time of the recipe, else that of a point of the journal, in milliseconds since 1970."""
    moment = training.recipe.get(key)
    if isinstance(moment, int):
        return moment
    return training.journal[point].timestamp if training.journal else None
