"""Progress of a plan: the state of its results, and the speed of trainings, even while they run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from bertline.planning.plan import Plan
from bertline.planning.remaining import NOT_NEEDED, DatasetLeft, datasets_left, finetunings_left, phases_left
from bertline.planning.targets import samples
from bertline.results import paths
from bertline.results.journal import RECENT_POINTS, JournalPoint, read_last_points
from bertline.training.lock import owner_of


def overview(plan: Plan) -> list[list[str]]:
    """Return one row for every dataset, phase and group of fine-tunings of every run: [run, what, folder, state].

    Finished trainings are included, so that the overview shows before a run which models a changed setting keeps and
    which new ones it requires.
    """
    rows, left, phases, finetunings = [], datasets_left(plan), phases_left(plan), finetunings_left(plan)
    for name, run in plan.runs.items():
        if run["dataset"] is not None:
            dataset = run["dataset"]
            rows.append(
                [name, "dataset", plan.dataset_folder(dataset), _dataset_state(plan, dataset, left.get(dataset))]
            )
        for phase, key in run["phases"].items():
            folder = Path(paths.PHASE.format(phase=key))
            steps = plan.phases[key]["settings"]["steps"]
            rows.append([name, phase, str(folder), _phase_state(folder, steps, is_needed=key in phases)])
        if run["finetunings"]:
            folders = [paths.FINETUNING.format(finetuning=key) for key in run["finetunings"].values()]
            finished = sum(key not in finetunings for key in run["finetunings"].values())
            state = f"{finished} of {len(folders)} finished"
            rows.append([name, "fine-tunings", f"{Path(folders[0]).parent}/", state])
        rows += [[name, task, "", "left out: its data is missing"] for task in run["skipped"]]
    return rows


def _dataset_state(plan: Plan, key: str, left: DatasetLeft | None) -> str:
    if left is None or not (left.card or left.encode):
        if paths.is_finished(plan.dataset_folder(key), paths.DATASET_OUTPUTS):
            return "finished"
        return "only its tokenizer is needed" if left and left.write else NOT_NEEDED
    files = samples(plan, [key])
    encoded = sum(Path(file).exists() for file in files)
    return f"{encoded} of {len(files)} files encoded" if encoded else "to be made"


def _phase_state(folder: Path, steps: int, *, is_needed: bool) -> str:
    if not is_needed:
        return "finished" if paths.is_finished(folder, paths.PHASE_OUTPUTS) else NOT_NEEDED
    step = paths.durable_step(folder)
    return f"continues from step {step} of {steps}" if step else "to be trained"


@dataclass(frozen=True)
class PhaseStatus:
    """The status of a phase of a run."""

    run: str
    phase: str
    state: str  # finished, trains, stopped, to be trained
    step: int
    steps: int
    steps_per_second: float | None  # over the last points of the journal
    saved_step: int  # of the last complete checkpoint
    saved: float | None  # when, in seconds since 1970
    owner: str  # the process that trains it: host, process, job

    def time_left(self) -> timedelta | None:
        """Return the remaining time at the current speed; None if the phase is not being trained."""
        if self.state != "trains" or not self.steps_per_second:
            return None
        return timedelta(seconds=round((self.steps - self.step) / self.steps_per_second))


def phase_statuses(plan: Plan) -> list[PhaseStatus]:
    """Return the status of every phase of every run of the plan."""
    return [
        _status(name, phase, key, plan.phases[key]["settings"]["steps"])
        for name, run in plan.runs.items()
        for phase, key in run["phases"].items()
    ]


def _status(run: str, phase: str, key: str, steps: int) -> PhaseStatus:
    folder = Path(paths.PHASE.format(phase=key))
    points = read_last_points(folder / paths.STARTED_JOURNAL)[-RECENT_POINTS:]
    owner = owner_of(folder / paths.LOCK)
    finished = paths.is_finished(folder, paths.PHASE_OUTPUTS)
    saved_step = paths.durable_step(folder)
    waiting = "stopped" if saved_step else "to be trained"
    marker = folder / paths.DURABLE
    return PhaseStatus(
        run=run,
        phase=phase,
        state="finished" if finished else "trains" if owner else waiting,
        step=steps if finished else points[-1].step if points else 0,
        steps=steps,
        steps_per_second=steps_per_second(points),
        saved_step=saved_step,
        saved=marker.stat().st_mtime if marker.exists() else None,
        owner=owner,
    )


def steps_per_second(points: list[JournalPoint]) -> float | None:
    """Return the speed of a training between the first and the last of `points`; None if that is too short.

    The time between a stop and the continuation does not count, nor does the first step, which compiles.
    """
    points = [point for point in points if point.step > 0]
    steps = points[-1].step - points[0].step if points else 0
    seconds = sum(_seconds_between(before, after) for before, after in pairwise(points))
    return steps / seconds if steps > 0 and seconds > 0 else None


def _seconds_between(before: JournalPoint, after: JournalPoint) -> float:
    """Return the time between two points: by the training's own speed, if that is on record, at most by the clock."""
    seconds = (after.timestamp - before.timestamp) / 1000
    samples = after.metrics.get("train/samples", 0.0) - before.metrics.get("train/samples", math.inf)
    speed = after.metrics.get("train/overall_samples_per_second", 0.0)
    return min(seconds, samples / speed) if samples > 0 and speed > 0 else seconds
