"""The recipe of a training while it goes on, beside its checkpoints, and the jobs that worked on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.files import read_json, write_json

# Where schedulers tell a job its id.
JOB_IDS = {"slurm": "SLURM_JOB_ID", "pbs": "PBS_JOBID", "lsf": "LSB_JOBID", "cobalt": "COBALT_JOBID", "sge": "JOB_ID"}


def scheduler_job() -> tuple[str, str] | None:
    """The scheduler and the id of the job that this process is a part of; None outside of a scheduler's jobs."""
    return next(((name, os.environ[key]) for name, key in JOB_IDS.items() if os.environ.get(key)), None)


def write_started(checkpoints: Path, recipe: Mapping[str, Any]) -> list[str]:
    """Write `checkpoints`/recipe.json when a trainer begins or goes on.

    Returns the jobs so far, this one's the last, as in `slurm 4711`.

    Parameters
    ----------
    recipe: frozen, with the circumstances of this trainer.
    """
    path = checkpoints / "recipe.json"
    before = read_json(path) if path.exists() else {}
    earlier = before.get("jobs", []) if before.get("fingerprint") == recipe["fingerprint"] else []
    job = scheduler_job()
    jobs = list(dict.fromkeys([*earlier, *([" ".join(job)] if job else [])]))
    write_json(path, {**recipe, "jobs": jobs})
    return jobs
