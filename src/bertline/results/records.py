"""Read a run record and what the stages it names have left on disk so far.

A record is the graph's list of what a run consists of: names and fingerprints. Everything else (recipes, journals,
scores, the dataset's card) is read from the folders it points to, whatever of it exists yet.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import read_json
from bertline.results import paths
from bertline.results.journal import JournalPoint, read_journal


@dataclass(frozen=True)
class Training:
    """A pretraining phase or a fine-tuning as it lies on disk.

    `recipe` is empty until a trainer has started; `journal` holds only points that no resume will take back.
    """

    name: str
    fingerprint: str
    path: Path
    recipe: dict[str, Any]
    journal: list[JournalPoint]
    finished: bool

    @property
    def started(self) -> bool:
        """Whether a trainer has left anything."""
        return bool(self.recipe or self.journal)

    def series(self, key: str) -> tuple[list[int], list[float]]:
        """The steps at which `key` was written and its values there."""
        points = [point for point in self.journal if key in point.metrics]
        return [point.step for point in points], [point.metrics[key] for point in points]


@dataclass(frozen=True)
class Finetuning(Training):
    """A fine-tuning: one task, one seed, one start. `result` is its metrics.json, empty until it is finished."""

    task: str = ""
    seed: int = 0
    start: str = "pretrained"
    learning_rate: float | None = None
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The task's name as a person writes it: `squad_v1`, `glue/cola`."""
        return "glue/" + self.task if self.name.startswith("glue/") else self.task

    @property
    def settings_name(self) -> str:
        """The name without the seed: all seeds of a task's settings, such as a point of its grid, share it."""
        return self.name.rpartition("/")[0]


def chosen_on_dev(finetunings: Sequence[Finetuning]) -> list[Finetuning]:
    """Of a task's grid only the settings that score best on the dev set; without a grid, all fine-tunings.

    The finished fine-tunings from pretrained weights are compared by the median of their main score over the seeds, the
    first of equals being chosen. Those from random weights stay.
    """
    settings: dict[str, list[float]] = {}
    for one in finetunings:
        if one.start == "pretrained" and one.finished:
            settings.setdefault(one.settings_name, []).append(one.result["scores"][one.result["primary"]])
    if len(settings) < 2:
        return list(finetunings)
    best = max(settings, key=lambda name: statistics.median(settings[name]))
    return [one for one in finetunings if one.start != "pretrained" or one.settings_name == best]


@dataclass(frozen=True)
class Phase(Training):
    """A pretraining phase. `trigram_loss` is the baseline on its held-out tokens, in nats; None when not measured."""

    trigram_loss: float | None = None

    def held_out(self, name: str) -> float | None:
        """The last value of held_out/`name`; of a finished phase, that of the step whose weights it published."""
        steps, values = self.series(f"held_out/{name}")
        published = self.recipe.get("published_step")
        if published in steps:
            return values[steps.index(published)]
        return values[-1] if values else None


@dataclass(frozen=True)
class EncodedDataset:
    """A dataset folder; `card` is its dataset.json, empty until it is there.

    A run that fine-tunes weights from elsewhere has none: its fingerprint is empty.
    """

    fingerprint: str
    path: Path
    card: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Whether nothing of it is still to be made."""
        return bool(self.card) or not self.fingerprint


@dataclass(frozen=True)
class Record:
    """An entry of `runs:` and what exists of it. `skipped`: a line for each task whose data was not there."""

    path: Path
    name: str
    description: str
    experiment: str
    fingerprint: str
    config: dict[str, Any]
    dataset: EncodedDataset
    phases: list[Phase]
    finetunings: list[Finetuning]
    skipped: list[str]

    @property
    def finished(self) -> bool:
        """True when every stage of the run is complete."""
        return self.dataset.finished and all(stage.finished for stage in [*self.phases, *self.finetunings])

    @property
    def network(self) -> dict[str, Any]:
        """The description of the run's network: of its last phase or, without phases, of what is fine-tuned.

        Empty while no trainer has started.
        """
        stages: list[Training] = [*self.phases] if self.phases else [*self.finetunings]
        models = [stage.recipe["model"] for stage in stages if stage.recipe]
        return models[-1] if models else {}

    @property
    def phase_names(self) -> dict[str, str]:
        """The run's phases by fingerprint."""
        return {phase.fingerprint: phase.name for phase in self.phases}

    @property
    def groups(self) -> dict[str, list[Finetuning]]:
        """The fine-tunings by task, in the record's order."""
        groups: dict[str, list[Finetuning]] = {}
        for finetuning in self.finetunings:
            groups.setdefault(finetuning.group, []).append(finetuning)
        return groups


def read_record(path: Path | str) -> Record:
    """Read a record-{fingerprint}.json and everything it points to. Raises BertlineError for a malformed file."""
    path = Path(path).resolve()  # record.json beside the run's links is a link to it
    content = read_json(path)
    try:
        dataset = content["dataset"]
        folder = Path(dataset["path"]) if dataset else Path()
        return Record(
            path=path,
            name=content["run"],
            description=content.get("description", ""),
            experiment=content["experiment"],
            fingerprint=content["fingerprint"],
            config=content["config"],
            dataset=read_dataset(dataset["fingerprint"], folder) if dataset else EncodedDataset("", folder, {}),
            phases=[_read_phase(phase, folder) for phase in content["phases"]],
            finetunings=[_read_finetuning(finetuning) for finetuning in content["finetunings"]],
            skipped=content.get("skipped", []),
        )
    except KeyError as error:
        raise BertlineError(f"{path} lacks the key {error}; delete it and let the graph write it again") from None


def read_dataset(fingerprint: str, path: Path) -> EncodedDataset:
    """Read a dataset's card, if it is there."""
    card = path / paths.CARD
    return EncodedDataset(fingerprint, path, read_json(card) if card.exists() else {})


def _read_phase(entry: dict[str, Any], dataset: Path) -> Phase:
    path = Path(entry["path"])
    recipe, journal, finished = _read_training(path, paths.PHASE_OUTPUTS)
    trigram = next((file for file in (path / paths.TRIGRAM, dataset / paths.TRIGRAM) if file.exists()), None)
    return Phase(
        name=entry["name"],
        fingerprint=entry["fingerprint"],
        path=path,
        recipe=recipe,
        journal=journal,
        finished=finished,
        trigram_loss=read_json(trigram)["cross_entropy"] if trigram else None,
    )


def _read_finetuning(entry: dict[str, Any]) -> Finetuning:
    path = Path(entry["path"])
    recipe, journal, finished = _read_training(path, paths.FINETUNING_OUTPUTS)
    return Finetuning(
        name=entry["name"],
        fingerprint=entry["fingerprint"],
        path=path,
        recipe=recipe,
        journal=journal,
        finished=finished,
        task=entry["task"],
        seed=entry["seed"],
        start=entry["start"],
        learning_rate=entry.get("learning_rate"),
        result=read_json(path / paths.SCORES) if finished else {},
    )


def _read_training(path: Path, outputs: tuple[str, ...]) -> tuple[dict[str, Any], list[JournalPoint], bool]:
    """Read recipe and journal, and whether the training is finished."""
    if paths.is_finished(path, outputs):
        return read_json(path / paths.RECIPE), read_journal(path / paths.JOURNAL), True
    started = path / paths.STARTED_RECIPE
    recipe = read_json(started) if started.exists() else {}
    if not (path / paths.DURABLE).exists():
        return recipe, [], False
    return recipe, read_journal(path / paths.STARTED_JOURNAL, last_step=paths.durable_step(path)), False
