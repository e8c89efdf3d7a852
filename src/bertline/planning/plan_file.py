"""The plan of a started graph as a file, which its jobs read: its SHA-256 in a line, and JSON.

Each of them would otherwise ask the disk for every input of every corpus, and a job may not decide otherwise than the
process that started it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path

from bertline import __version__
from bertline.files import Json, write_atomically
from bertline.fingerprint import STAGE_VERSIONS, fingerprint
from bertline.planning.plan import Plan
from bertline.planning.resolve import make_plan
from bertline.results import paths


def plan_file(config: Json, schema_path: Path | str) -> Path:
    """Return the path of the plan of a configuration, given what `make_plan` is given."""
    made_of = [config, Path(schema_path).read_text(encoding="utf-8"), STAGE_VERSIONS, __version__]
    return Path(paths.PLAN_OF_GRAPH.format(fingerprint=fingerprint(made_of)))


def plan_of_job(config: Json, schema_path: Path | str, models: Path | str) -> Plan:
    """Return the plan that `write_plan_file` wrote, or if there is none make it. Raises BertlineError."""
    try:
        digest, _, text = plan_file(config, schema_path).read_text(encoding="utf-8").partition("\n")
        if digest != _digest(text):
            raise ValueError("another digest")
        return _decode(json.loads(text), models)
    except (OSError, ValueError):
        return make_plan(config, schema_path, models)


def write_plan_file(plan: Plan, config: Json, schema_path: Path | str) -> None:
    """Write a plan for the jobs of the graph; leave it out if the file would not be the plan."""
    path = plan_file(config, schema_path)
    text = json.dumps(_encode(plan), ensure_ascii=False, default=str)
    if _decode(json.loads(text), plan.models) != plan:
        path.unlink(missing_ok=True)
        return
    with write_atomically(path, durable=False) as temporary:
        temporary.write_text(f"{_digest(text)}\n{text}", encoding="utf-8")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _encode(plan: Plan) -> Json:
    content = {field.name: getattr(plan, field.name) for field in fields(plan) if field.name != "models"}
    return {**content, "checkpoints": {phase: sorted(steps) for phase, steps in plan.checkpoints.items()}}


def _decode(content: Json, models: Path | str) -> Plan:
    checkpoints = {phase: set(steps) for phase, steps in content["checkpoints"].items()}
    return Plan(**{**content, "checkpoints": checkpoints, "models": Path(models)})
