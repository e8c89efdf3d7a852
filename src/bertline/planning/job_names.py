"""Names of the graph's jobs as a person says them, by the names of the configuration instead of fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bertline.planning.plan import Plan
from bertline.results import paths

# Wildcards whose values are fingerprints, and the part of a run that has names for them.
IN_RUNS = {"phase": "phases", "finetuning": "finetunings", "kept": "kept"}


def job_name(plan: Plan, rule: str, wildcards: Mapping[str, str]) -> str:
    """Return the name of a job, such as `encode shard: sample 00003` or `pretrain phase: demo/phase1`."""
    words = rule.replace("_", " ")
    values = [_readable(plan, name, value) for name, value in wildcards.items() if name != "fingerprint"]
    return f"{words}: {' '.join(values)}" if values else words


def training_of_job(plan: Plan, rule: str, wildcards: Mapping[str, str]) -> tuple[Path, int | None] | None:
    """Return the folder of the training that a job runs, and its number of steps if planned; None for other jobs."""
    if rule == "pretrain_phase":
        steps = plan.phases[wildcards["phase"]]["settings"]["steps"]
        return Path(paths.PHASE.format(**wildcards)), steps
    return (Path(paths.FINETUNING.format(**wildcards)), None) if rule == "finetune_task" else None


def _readable(plan: Plan, wildcard: str, value: str) -> str:
    """Return the name that the configuration has for a wildcard's value; the value itself if it has none."""
    if wildcard in IN_RUNS:
        return _in_runs(plan, IN_RUNS[wildcard], value) or value
    if wildcard == "dataset" and value in plan.datasets:
        return str(plan.datasets[value]["name"])
    if wildcard == "corpus" and value in plan.corpora:
        return str(plan.corpora[value]["name"])
    return value


def _in_runs(plan: Plan, kind: str, fingerprint: str) -> str | None:
    """Return `run/name` of the first run whose part of this kind has the fingerprint."""
    for run, parts in plan.runs.items():
        for name, key in parts[kind].items():
            if key == fingerprint:
                return f"{run}/{name}"
    return None
