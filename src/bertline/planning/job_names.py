"""Names of the graph's jobs, by those of the configuration instead of fingerprints, and the progress of trainings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.planning.plan import Plan
from bertline.planning.progress import seconds_left
from bertline.results import paths
from bertline.results.journal import RECENT_POINTS, describe_metrics, read_last_points

# Wildcards whose values are fingerprints, and the part of a run that has names for them.
IN_RUNS = {"phase": "phases", "finetuning": "finetunings", "kept": "kept"}


def job_name(plan: Plan, rule: str, wildcards: Mapping[str, str]) -> str:
    """Return the name of a job, such as `encode shard: sample 00003` or `pretrain phase: demo/phase1`."""
    words = rule.replace("_", " ")
    values = [_readable(plan, name, value) for name, value in wildcards.items() if name != "fingerprint"]
    return f"{words}: {' '.join(values)}" if values else words


def job_progress(plan: Plan, rule: str, wildcards: Mapping[str, str]) -> tuple[str, float | None] | None:
    """Describe the last point of a running job's journal; return that and the seconds left, None if unknown.

    Jobs that do not train, or have no point yet, have no progress.
    """
    if rule == "pretrain_phase":
        folder, settings = paths.PHASE.format(**wildcards), plan.phases[wildcards["phase"]]["settings"]
    elif rule == "finetune_task":
        folder, settings = paths.FINETUNING.format(**wildcards), None
    else:
        return None
    try:
        points = read_last_points(Path(folder, paths.STARTED_JOURNAL))[-RECENT_POINTS:]
    except (BertlineError, OSError):  # the next reader of the journal reports it
        points = []
    if not points:
        return None
    number = f"step {points[-1].step:,}" + (f" of {settings['steps']:,}" if settings else "")
    left = seconds_left(points, settings) if settings else None
    return f"{number}, {describe_metrics(points[-1].metrics)}", left


def _readable(plan: Plan, wildcard: str, value: str) -> str:
    """Return the name that the configuration has for a wildcard's value; the value itself if it has none."""
    if kind := IN_RUNS.get(wildcard):
        runs: Mapping[str, Mapping[str, Any]] = plan.runs
        named = ((run, name, key) for run, parts in runs.items() for name, key in parts[kind].items())
        return next((f"{run}/{name}" for run, name, key in named if key == value), value)
    entries: dict[str, Mapping[str, Mapping[str, Any]]] = {"dataset": plan.datasets, "corpus": plan.corpora}
    entry = entries.get(wildcard, {}).get(value)
    return str(entry["name"]) if entry else value
