"""How far a plan is: what is finished, cut off or still to be made, and the speed of trainings, while they run too."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bertline.planning.plan import Plan

# A trainer touches its lock every ten seconds; a network file system may show that late.
HEARTBEAT_IS_FRESH_SECONDS = 120.0
# Points of the journal that the speed is measured over.
RECENT_POINTS = 20


def overview(plan: Plan) -> list[list[str]]:
    """One row for every dataset, phase and group of fine-tunings of every run: [run, what, folder, state].

    A finished training appears as `finished`, so that a reader sees before anything runs which models a changed
    setting leaves alone and which new ones it asks for.
    """
    rows = []
    for name, run in plan.runs.items():
        if run["dataset"] is not None:
            dataset = Path(plan.dataset_folder(run["dataset"]))
            rows.append([name, "dataset", str(dataset), _dataset_state(plan, run["dataset"], dataset)])
        for phase, key in run["phases"].items():
            folder = Path("results/phases", key)
            rows.append([name, phase, str(folder), _phase_state(folder, plan.phases[key]["settings"]["steps"])])
        finished = [key for key in run["finetunings"].values() if _is_finished(key)]
        if run["finetunings"]:
            state = f"{len(finished)} of {len(run['finetunings'])} finished"
            rows.append([name, "fine-tunings", "results/finetunings/", state])
        rows += [[name, task, "", "left out: its data is not there"] for task in run["skipped"]]
    return rows


def _is_finished(finetuning: str) -> bool:
    return Path("results/finetunings", finetuning, "metrics.json").exists()


def _dataset_state(plan: Plan, key: str, folder: Path) -> str:
    if (folder / "dataset.json").exists():
        return "finished"
    shards = plan.datasets[key].get("shards", [])
    lengths = plan.config["sequence_lengths"]
    encoded = sum((folder / f"seq{length}/{shard}.h5").exists() for shard in shards for length in lengths)
    return f"{encoded} of {len(shards) * len(lengths)} files encoded" if encoded else "to be made"


def _phase_state(folder: Path, steps: int) -> str:
    if (folder / "model.safetensors").exists():
        return "finished"
    step = durable_step(folder)
    return f"goes on from step {step} of {steps}" if step else "to be trained"


def durable_step(phase_folder: Path) -> int:
    """The step of a phase's last complete checkpoint; 0 without one."""
    try:
        state: dict[str, Any] = json.loads((phase_folder / "checkpoints/durable.json").read_text())
    except FileNotFoundError:
        return 0
    return int(state["step"])


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
    if age > HEARTBEAT_IS_FRESH_SECONDS:
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
