"""What of a plan is finished, cut off half-way, or still to be made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertline.plan import Plan


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
        rows += [[name, task, "", "left out: its data is not there"] for task in run["left_out"]]
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
