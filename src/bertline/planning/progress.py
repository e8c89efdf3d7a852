"""Progress of a plan: the state of its results, and the speed of trainings, even while they run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from bertline.planning.plan import Plan
from bertline.planning.remaining import NOT_NEEDED, DatasetLeft, datasets_left, finetunings_left, phases_left
from bertline.planning.targets import samples
from bertline.results import paths
from bertline.results.journal import RECENT_POINTS, JournalPoint, read_last_points
from bertline.training.data.batch_size_warmup import batch_size_warmup_of
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
    files = samples(plan, [key]) if key in plan.built_datasets else []
    encoded = sum(Path(file).exists() for file in files)
    some = f"{encoded} of {len(files)} files encoded" if encoded else ""
    if left and (left.card or left.encode):
        return some or "to be made"
    if encoded == len(files) and paths.is_finished(plan.dataset_folder(key), paths.DATASET_OUTPUTS):
        return "finished"
    if left and left.write:
        return "only its tokenizer is needed"
    return f"{some}, the others are {NOT_NEEDED}" if some else NOT_NEEDED


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
    state: str  # finished, trains, not needed, stopped, to be trained
    step: int
    steps: int
    steps_per_second: float | None  # over the last points of the journal
    saved_step: int  # of the last complete checkpoint
    saved_ago: timedelta | None
    owner: str  # the process that trains it: host, process, job
    time_left: timedelta | None  # at that speed; None if it is not being trained


def phase_statuses(plan: Plan) -> list[PhaseStatus]:
    """Return the status of every phase of every run of the plan."""
    needed = phases_left(plan)
    return [
        _status(name, phase, key, plan.phases[key]["settings"], is_needed=key in needed)
        for name, run in plan.runs.items()
        for phase, key in run["phases"].items()
    ]


def _status(run: str, phase: str, key: str, settings: Mapping[str, Any], *, is_needed: bool) -> PhaseStatus:
    folder, steps = Path(paths.PHASE.format(phase=key)), settings["steps"]
    points = read_last_points(folder / paths.STARTED_JOURNAL)[-RECENT_POINTS:]
    owner = owner_of(folder / paths.LOCK)
    finished = paths.is_finished(folder, paths.PHASE_OUTPUTS)
    saved_step = paths.durable_step(folder)
    waiting = NOT_NEEDED if not is_needed else "stopped" if saved_step else "to be trained"
    state = "finished" if finished else "trains" if owner else waiting
    left = seconds_left(points, settings) if state == "trains" else None
    marker = folder / paths.DURABLE
    return PhaseStatus(
        run=run,
        phase=phase,
        state=state,
        step=steps if finished else points[-1].step if points else 0,
        steps=steps,
        steps_per_second=steps_per_second(points),
        saved_step=saved_step,
        saved_ago=_seconds(_age(marker)),
        owner=owner,
        time_left=_seconds(left),
    )


def _age(path: Path) -> float | None:
    """Return the age of a file; 0 if the clock of a file server is ahead, None if there is no file."""
    return max(0.0, time.time() - path.stat().st_mtime) if path.exists() else None


def _seconds(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=round(seconds))


def steps_per_second(points: list[JournalPoint]) -> float | None:
    """Return the speed of a training between the first and the last of `points`; None if that is too short.

    The time between a stop and the continuation does not count, nor does the first step, which compiles.
    """
    return _speed(points, lambda step: step)


def seconds_left(points: list[JournalPoint], settings: Mapping[str, Any]) -> float | None:
    """Return how long a training with such `settings` still takes at its speed between the first and the last of
    `points`; None if that is too short.

    It follows from the samples per second: with batch-size warm-up, steps become longer.
    """
    position = batch_size_warmup_of(settings).position_at
    speed = _speed(points, position)
    return max(0, position(settings["steps"]) - position(points[-1].step)) / speed if speed else None


def _speed(points: list[JournalPoint], work_before: Callable[[int], int]) -> float | None:
    """Return the work per second, which `work_before` counts up to a step."""
    points = [point for point in points if point.step > 0]
    done = work_before(points[-1].step) - work_before(points[0].step) if points else 0
    seconds = sum(_seconds_between(before, after) for before, after in pairwise(points))
    return done / seconds if done > 0 and seconds > 0 else None


def _seconds_between(before: JournalPoint, after: JournalPoint) -> float:
    """Return the time between two points: by the training's own speed, if that is on record, at most by the clock."""
    seconds = (after.timestamp - before.timestamp) / 1000
    samples = after.metrics.get("train/samples", 0.0) - before.metrics.get("train/samples", math.inf)
    speed = after.metrics.get("train/overall_samples_per_second", 0.0)
    return min(seconds, samples / speed) if samples > 0 and speed > 0 else seconds
