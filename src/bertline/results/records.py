"""Reading of run records and of the results on disk to which they refer.

A record lists a run's stages with names and fingerprints. Everything else (recipes, journals, scores, the dataset's
card) is read from the folders it refers to, as far as it exists.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import one_line_damage, read_object
from bertline.results import paths
from bertline.results.journal import JournalPoint, read_journal

# A part of a name: the configuration's schema allows no other.
_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]*"


@dataclass(frozen=True)
class Training:
    """The state of a pretraining phase or a fine-tuning on disk.

    `recipe` is empty until the trainer has started; `journal` contains only points up to the last checkpoint.
    """

    name: str
    fingerprint: str
    path: Path
    recipe: dict[str, Any]
    journal: list[JournalPoint]
    finished: bool

    @property
    def started(self) -> bool:
        """Whether the trainer has started."""
        return bool(self.recipe or self.journal)

    @property
    def recipe_path(self) -> Path:
        """The file of the recipe."""
        return self.path / (paths.RECIPE if self.finished else paths.STARTED_RECIPE)

    def series(self, key: str) -> tuple[list[int], list[float]]:
        """Return the steps at which `key` was recorded and its values there."""
        points = [point for point in self.journal if key in point.metrics]
        return [point.step for point in points], [point.metrics[key] for point in points]


@dataclass(frozen=True)
class Finetuning(Training):
    """A fine-tuning with one task, one seed, one start. `result` is its metrics.json, empty until it is finished."""

    task: str = ""
    seed: int = 0
    start: str = "pretrained"
    learning_rate: float | None = None
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The task's name as in the configuration: `squad_v1`, `glue/cola`."""
        return "glue/" + self.task if self.name.startswith("glue/") else self.task

    @property
    def settings_name(self) -> str:
        """The name without the seed, shared by all seeds of a task's settings, such as a point of its grid."""
        return self.name.rpartition("/")[0]


@dataclass(frozen=True)
class KeptModel:
    """The fine-tuned model that is kept of a task and a start.

    Attributes:
        name: the task, with /random-weights for that start: it is results/runs/{run}/{name}/model.
        folder: a link to the model.
        finetuning: the fine-tuning that it is from.
    """

    name: str
    folder: Path
    finetuning: Finetuning


def chosen_on_dev(finetunings: Sequence[Finetuning]) -> list[Finetuning]:
    """Return only the settings of a task's grid that score best on the dev set; without a grid, all fine-tunings.

    The finished fine-tunings from pretrained weights are compared by the median of their main score over the seeds; the
    first of equals is chosen. Those from random weights are kept.
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
    """A pretraining phase. `trigram_loss` is the baseline on its held-out tokens, in nats; None if not measured."""

    trigram_loss: float | None = None

    def held_out(self, name: str) -> float | None:
        """Return the last value of held_out/`name`; for a finished phase, that of the step of the published weights."""
        steps, values = self.series(f"held_out/{name}")
        published = self.recipe.get("published_step")
        if published in steps:
            return values[steps.index(published)]
        return values[-1] if values else None


@dataclass(frozen=True)
class EncodedDataset:
    """A dataset folder; `card` is its dataset.json, empty until it exists, `card_file` that or a phase's copy.

    A run that fine-tunes external weights has no dataset: the fingerprint is empty.
    """

    fingerprint: str
    path: Path
    card: dict[str, Any]
    card_file: Path

    @property
    def finished(self) -> bool:
        """Whether the dataset is complete, or not needed."""
        return bool(self.card) or not self.fingerprint


@dataclass(frozen=True)
class Record:
    """An entry of `runs:` and its existing results.

    Attributes:
        path: of its record-{fingerprint}.json.
        model_card: licence and languages of its models, as far as the configuration gives them.
        config: its part of the configuration.
        finetunings: of all tasks, starts and seeds.
        skipped: a line for each task whose data was absent.
    """

    path: Path
    name: str
    description: str
    model_card: dict[str, Any]
    experiment: str
    fingerprint: str
    config: dict[str, Any]
    dataset: EncodedDataset
    phases: list[Phase]
    finetunings: list[Finetuning]
    kept: list[KeptModel]
    skipped: list[str]

    @property
    def finished(self) -> bool:
        """Whether every stage of the run is complete."""
        return self.dataset.finished and all(training.finished for training in self.trainings)

    @property
    def trainings(self) -> list[Training]:
        """The phases and fine-tunings."""
        return [*self.phases, *self.finetunings]

    @property
    def last_training(self) -> Training | None:
        """The last started phase or, without phases, fine-tuning; None until a trainer has started."""
        candidates = self.phases or self.finetunings
        return next((training for training in reversed(candidates) if training.recipe), None)

    @property
    def network(self) -> dict[str, Any]:
        """The configuration of the last training's network; empty until a trainer has started."""
        return self.last_training.recipe["model"] if self.last_training else {}

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


@contextmanager
def one_line_damage_of(record: Record) -> Iterator[None]:
    """Turn the errors of unexpected content of a dataset's card, a recipe or scores into one line.

    It names the record that refers to them. Errors of files, such as those that are written, stay what they are.
    """
    of_file = None
    with one_line_damage(f"a recipe, a card or scores that {record.path} refers to"):
        try:
            yield
        except OSError as error:
            of_file = error
    if of_file is not None:
        raise of_file


def record_in(folder: Path) -> Path | None:
    """Return the record in a run's folder, or None: record.json, or the newest one if that link is dangling.

    The link leads to the record of the last recipe, which is not there if only a part of the run was made.
    """
    current = folder / paths.RUN_RECORD
    if current.is_symlink() and not current.exists():
        return max(folder.glob("record-*.json"), key=lambda record: record.stat().st_mtime, default=None)
    return current if current.exists() else None


def is_current(record: Record) -> bool:
    """Return whether the links in a run's folder lead to the results of this record."""
    link = record.path.with_name(paths.RUN_RECORD)
    return not link.is_symlink() or link.resolve() == record.path


def records_in(given: Sequence[Path | str]) -> list[Path]:
    """Return the records of the `given` paths: files, folders of a run, or of runs as results/runs, perhaps absent."""
    found: list[Path] = []
    for path in map(Path, given):
        if path.suffix == ".json" or path.is_file():  # also a folder in the place of a record
            found.append(path)
        elif record := record_in(path):
            found.append(record)
        else:
            found += filter(None, map(record_in, sorted(path.glob("*"))))
    return found


def runs_in(given: Sequence[Path | str]) -> list[Path]:
    """Return what `records_in` does; raise BertlineError if there is no record."""
    found = records_in(given)
    if given and not found:
        raise BertlineError(f"{', '.join(map(str, given))} contains no run yet; run snakemake first")
    return found


def read_record(path: Path | str) -> Record:
    """Read a record-{fingerprint}.json, or a run's record.json, and everything it refers to.

    Raises BertlineError for a malformed file, for names that cannot be those of files, as reports make them, and for a
    record of another project than that of the working directory.
    """
    given = path = Path(path)
    if path.name == paths.RUN_RECORD:
        path = record_in(path.parent) or path
    path = path.resolve()  # the record.json next to the run's links is a link to it
    with one_line_damage(path):
        content = read_object(path, "run", "experiment", "fingerprint")
        if not all(isinstance(content[key], str) for key in ("run", "experiment", "fingerprint")):
            raise TypeError("a name is not a text")
        _check_names(content)
        _check_project(given, path, content["run"])
        dataset = _read_dataset(content["dataset"], content["phases"])
        finetunings = [_read_finetuning(finetuning) for finetuning in content["finetunings"]]
        return Record(
            path=path,
            name=content["run"],
            description=content.get("description", ""),
            model_card=dict(content.get("model_card", {})),
            experiment=content["experiment"],
            fingerprint=content["fingerprint"],
            config=content["config"],
            dataset=dataset,
            phases=[_read_phase(phase, dataset.path) for phase in content["phases"]],
            finetunings=finetunings,
            kept=list(_read_kept(content["kept"], finetunings)),
            skipped=content.get("skipped", []),
        )


def _check_names(content: dict[str, Any]) -> None:
    """Raise ValueError for a name that is not one of the configuration, or several with slashes between."""
    trainings = [*content["phases"], *content["finetunings"]]
    names = [content["run"], content["fingerprint"], *(training["name"] for training in trainings)]
    names += [training["task"] for training in content["finetunings"]]
    for name in [*names, *content["kept"], *content["kept"].values()]:
        if not isinstance(name, str) or not all(re.fullmatch(_NAME, part) for part in name.split("/")):
            raise ValueError(f"{name!r} is not a name of letters, digits and _ . -")
    if "/" in content["run"] + content["fingerprint"]:
        raise ValueError("the name of the run or its fingerprint has a slash")


def _check_project(given: Path, path: Path, run: str) -> None:
    """Raise BertlineError for a record of another project: none of its results would be found from here.

    results/, results/runs and a run's folder may be links to another disk, and a record may be anywhere else.
    """
    folder = Path(paths.RUN.format(run=run))
    if path.parent.parent == folder.parent.resolve() or path.parent == folder.resolve():
        return
    for record in (given.absolute(), path):
        if record.parts[-4:-2] == folder.parent.parts:
            raise BertlineError(f"{given} is of the project in {record.parents[3].resolve()}; run this there")


def _read_dataset(entry: dict[str, Any] | None, phases: Sequence[dict[str, Any]]) -> EncodedDataset:
    """Return a dataset with its card, or with the copy of it that a phase has."""
    if entry is None:
        return EncodedDataset("", Path(), {}, Path())
    folders = [entry["path"], *(phase["path"] for phase in reversed(phases)), *entry.get("phases", [])]
    cards = [Path(folder, paths.CARD) for folder in folders]
    card = next((card for card in cards if card.exists()), None)
    content = read_object(card, "sequence_lengths") if card is not None else {}
    # The copy may be of a dataset with other sequence lengths.
    fingerprint = content.get("fingerprint", entry["fingerprint"]) if card in cards[1:] else entry["fingerprint"]
    return EncodedDataset(fingerprint, Path(entry["path"]), content, card or cards[0])


def _read_phase(entry: dict[str, Any], dataset: Path) -> Phase:
    folders = (Path(entry["path"]), dataset)
    trigram = next((file for folder in folders if (file := folder / paths.TRIGRAM).exists()), None)
    loss = None
    if trigram is not None:
        with one_line_damage(trigram):
            measured = read_object(trigram)["cross_entropy"]
            loss = None if measured is None else float(measured)  # None: no text is held out
    return Phase(**_read_training(entry, paths.PHASE_OUTPUTS), trigram_loss=loss)


def _read_finetuning(entry: dict[str, Any]) -> Finetuning:
    training = _read_training(entry, paths.FINETUNING_OUTPUTS)
    return Finetuning(
        **training,
        **{key: entry[key] for key in ("task", "seed", "start")},
        learning_rate=entry.get("learning_rate"),
        result=_read_scores(training["path"] / paths.SCORES) if training["finished"] else {},
    )


def _read_scores(path: Path) -> dict[str, Any]:
    result = read_object(path)
    with one_line_damage(path):
        numbers = {
            key: {name: float(value) for name, value in result.get(key, {}).items()} for key in ("scores", "baselines")
        }
        numbers["scores"][result["primary"]]
        digests = {name: str(value) for name, value in result.get("digests", {}).items()}
        examples = {name: int(value) for name, value in result.get("examples", {}).items()}
    return result | numbers | {"digests": digests} | ({"examples": examples} if examples else {})


def _read_kept(choices: dict[str, str], finetunings: list[Finetuning]) -> Iterator[KeptModel]:
    """Yield the kept models of the choices that are made."""
    finished = {finetuning.fingerprint: finetuning for finetuning in finetunings if finetuning.finished}
    for name, key in choices.items():
        path = Path(paths.KEPT_CHOICE.format(kept=key))
        choice = read_object(path, "best", "kept") if path.exists() else {"best": None, "kept": []}
        with one_line_damage(path):
            is_kept = choice["best"] in choice["kept"] and choice["best"] in finished
        if is_kept:
            yield KeptModel(name, Path(paths.KEPT_MODEL.format(kept=key)), finished[choice["best"]])


def _read_training(entry: dict[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
    """Return the attributes of `Training` for an entry of the record."""
    path = Path(entry["path"])
    finished = paths.is_finished(path, outputs)
    recipe = path / (paths.RECIPE if finished else paths.STARTED_RECIPE)
    if finished:
        journal = read_journal(path / paths.JOURNAL, complete=True)
    else:
        with one_line_damage(path / paths.DURABLE):
            step = paths.durable_step(path)
        journal = read_journal(path / paths.STARTED_JOURNAL, last_step=step) if step else []
    return {
        **{key: entry[key] for key in ("name", "fingerprint")},
        "path": path,
        "recipe": read_object(recipe, "settings") if recipe.exists() else {},
        "journal": journal,
        "finished": finished,
    }
