"""What in results/ may be deleted without loss, and what it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bertline.planning.plan import Plan
from bertline.planning.progress import durable_step


@dataclass(frozen=True)
class Prunable:
    """A file or folder that nothing finished needs."""

    kind: str
    path: Path
    size: int  # bytes


def prunable() -> list[Prunable]:
    """What of finished datasets and phases is not needed any more, in the order of its path.

    The newest checkpoint of a phase stays: the next phase takes the optimizer's moments from it. A phase that is not
    finished keeps everything.
    """
    found = []
    for card in sorted(Path("results/datasets").glob("*/dataset.json")):
        # Written again from the sentences in minutes, should a changed tokenizer want them.
        found += _entries("text of encoded shards", card.parent.glob("shards/*.txt.zst"))
    for recipe in sorted(Path("results/phases").glob("*/recipe.json")):
        newest = f"step-{durable_step(recipe.parent):08d}"
        checkpoints = recipe.parent / "checkpoints"
        if (checkpoints / newest).exists() and not (checkpoints / "lock.json").exists():
            older = (path for path in checkpoints.glob("step-*") if path.name < newest)
            found += _entries("older checkpoints of finished phases", older)
            found += _entries("traces of the profiler", checkpoints.glob("profile"))
    return found


def not_asked_for(plan: Plan) -> list[Prunable]:
    """Results that no entry of the plan's configuration names: perhaps those of another one."""
    found = []
    for kind, keys in (("datasets", plan.datasets), ("phases", plan.phases), ("finetunings", plan.finetunings)):
        folders = (path for path in Path("results", kind).glob("*") if path.is_dir() and path.name not in keys)
        found += _entries(kind, folders)
    return found


def _entries(kind: str, paths: Iterable[Path]) -> list[Prunable]:
    return [Prunable(kind, path, size_of(path)) for path in sorted(paths)]


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())
