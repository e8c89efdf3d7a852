"""Files in results/ that may be deleted without loss, and their sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bertline.planning.plan import Plan
from bertline.results import paths


@dataclass(frozen=True)
class Prunable:
    """A file or folder that no finished result needs."""

    kind: str
    path: Path
    size: int  # bytes


def prunable() -> list[Prunable]:
    """Return the files of finished datasets and phases that are no longer needed, ordered by path.

    The newest checkpoint of a phase is kept: the next phase takes the optimizer's moments from it. An unfinished phase
    keeps everything.
    """
    found = []
    for dataset in paths.finished_folders(paths.DATASET, paths.DATASET_OUTPUTS):
        # If a changed tokenizer needs them, they are rewritten from the sentences in minutes.
        found += _entries("text of encoded shards", dataset.glob(paths.SHARD.format(shard="*")))
    for phase in paths.finished_folders(paths.PHASE, paths.PHASE_OUTPUTS):
        checkpoints = phase / paths.CHECKPOINTS
        newest = f"step-{paths.durable_step(phase):08d}"
        if (checkpoints / newest).exists() and not (phase / paths.LOCK).exists():
            older = (path for path in checkpoints.glob("step-*") if path.name < newest)
            found += _entries("older checkpoints of finished phases", older)
            found += _entries("traces of the profiler", phase.glob(paths.PROFILE))
    return found


def not_asked_for(plan: Plan) -> list[Prunable]:
    """Return results that the plan's configuration does not request: perhaps those of another configuration."""
    found = []
    wanted = {paths.DATASET: plan.datasets, paths.PHASE: plan.phases, paths.FINETUNING: plan.finetunings}
    for template, keys in wanted.items():
        folder = Path(template).parent
        found += _entries(folder.name, (path for path in folder.glob("*") if path.is_dir() and path.name not in keys))
    return found


def _entries(kind: str, paths: Iterable[Path]) -> list[Prunable]:
    return [Prunable(kind, path, size_of(path)) for path in sorted(paths)]


def size_of(path: Path) -> int:
    """Return the size of a file, or of all files in a folder, in bytes."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())
