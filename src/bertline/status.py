"""How far each training is: from journals, checkpoints and locks, while it runs and after."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bertline.overview import durable_step
from bertline.plan import Plan
from bertline.training.lock import STALE_SECONDS

# Points of the journal that the speed is measured over.
RECENT_POINTS = 20


@dataclass(frozen=True)
class PhaseStatus:
    """One phase of one run."""

    run: str
    phase: str
    fingerprint: str
    state: str  # finished, trains, stopped, to be trained
    step: int
    steps: int
    steps_per_second: float | None  # over the last points of the journal
    saved_step: int  # of the last complete checkpoint
    saved: float | None  # when, in seconds since 1970
    owner: str  # who trains it now: host, process, job

    def time_left(self) -> timedelta | None:
        """At the present speed; None where it does not train."""
        if self.state != "trains" or not self.steps_per_second:
            return None
        return timedelta(seconds=round((self.steps - self.step) / self.steps_per_second))


def phase_statuses(plan: Plan) -> list[PhaseStatus]:
    """The status of every phase of every run of the plan."""
    return [
        _status(name, phase, key, plan.phases[key]["settings"]["steps"])
        for name, run in plan.runs.items()
        for phase, key in run["phases"].items()
    ]


def _status(run: str, phase: str, key: str, steps: int) -> PhaseStatus:
    folder = Path("results/phases", key)
    checkpoints = folder / "checkpoints"
    points = _last_points(checkpoints / "journal.jsonl", RECENT_POINTS)
    owner = _owner(checkpoints / "lock.json")
    finished = (folder / "recipe.json").exists()
    saved_step = durable_step(folder)
    step = steps if finished else (points[-1]["step"] if points else 0)
    if finished:
        state = "finished"
    elif owner:
        state = "trains"
    else:
        state = "stopped" if saved_step else "to be trained"
    marker = checkpoints / "durable.json"
    return PhaseStatus(
        run=run,
        phase=phase,
        fingerprint=key,
        state=state,
        step=step,
        steps=steps,
        steps_per_second=_speed(points),
        saved_step=saved_step,
        saved=marker.stat().st_mtime if marker.exists() else None,
        owner=owner,
    )


def _speed(points: list[dict[str, Any]]) -> float | None:
    if len(points) < 2:
        return None
    steps = points[-1]["step"] - points[0]["step"]
    milliseconds = points[-1]["timestamp"] - points[0]["timestamp"]
    return 1000 * steps / milliseconds if steps > 0 and milliseconds > 0 else None


def _owner(lock: Path) -> str:
    try:
        owner = json.loads(lock.read_text())
        age = time.time() - lock.stat().st_mtime
    except (FileNotFoundError, json.JSONDecodeError):
        return ""
    if age > STALE_SECONDS:
        return ""
    job = f", job {owner['job']}" if owner.get("job") else ""
    return f"process {owner['pid']} on {owner['host']}{job}"


def _last_points(journal: Path, count: int) -> list[dict[str, Any]]:
    """The last points of a journal that may be growing; an unfinished line is left out."""
    try:
        with journal.open("rb") as file:
            file.seek(max(0, journal.stat().st_size - 65536))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    points = []
    for line in lines[-count - 1 :]:
        try:
            points.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return points[-count:]
