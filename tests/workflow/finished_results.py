"""What two runs of one graph must have in common: all but times, speeds and the names that MLflow gives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bertline.files import sha256_of_file

# Corpora, datasets, phases and fine-tunings; not reports and records of what was sent to MLflow.
KEPT = ("corpora", "datasets", "phases", "finetunings")
# What a training needs for its resumption; extracted text, which Snakemake deletes unless it is killed at that moment;
# when, where and with which packages a stage ran. Hidden files are none either: beginnings of killed jobs' outputs.
NO_RESULTS = {"checkpoints", "extracted", "recipe.json"}
# A journal has times and speeds beside what was learned.
LEARNED = re.compile(r"(train/(loss|mlm_loss|gradient_norm|samples)|held_out/.*|dev/.*)")


def assert_same_results(folder: Path, other: Path) -> None:
    """Every file has the same bytes, and journals the same losses at the same steps."""
    assert _results_of(folder) == _results_of(other)


def _results_of(folder: Path) -> dict[str, Any]:
    files = [path for name in KEPT for path in sorted((folder / "results" / name).rglob("*"))]
    found: dict[str, Any] = {}
    for path in files:
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if path.is_dir() or is_hidden or not NO_RESULTS.isdisjoint(parts):
            continue
        name = str(path.relative_to(folder))
        if path.name == "metrics.jsonl":
            found[name] = [_learned(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name == "metrics.json":
            found[name] = {key: value for key, value in json.loads(path.read_text()).items() if key != "seconds"}
        else:
            found[name] = sha256_of_file(path)
    return found


def _learned(point: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in point["metrics"].items() if LEARNED.fullmatch(key)} | {"step": point["step"]}
