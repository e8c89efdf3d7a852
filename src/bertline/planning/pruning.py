"""Files in results/ that no finished result needs any more, and their sizes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertline.files import read_object
from bertline.planning.plan import Plan, report_fingerprint
from bertline.planning.recipes import recipe_paths
from bertline.results import paths
from bertline.results.kept import decided_by_any, kept_by_any, model_of, read_choice
from bertline.unfinished import is_in_use

# A job changes its unfinished output more often.
SECONDS_OF_A_JOB = 24 * 3600
FINGERPRINT = re.compile(rb"\b[0-9a-f]{16}\b")
RECORDS = Path(paths.RECORD).name.format(fingerprint="*")
# As the plan wrote it, and as a training did.
RECIPES = (paths.PLANNED_RECIPE, paths.PHASE_RECIPE, paths.FINETUNING_RECIPE)


@dataclass(frozen=True)
class Prunable:
    """A file or folder that no finished result needs."""

    kind: str
    path: Path
    size: int  # bytes


def prunable(plan: Plan) -> list[Prunable]:
    """Return the files of finished datasets, phases and fine-tunings that are no longer needed, ordered by path.

    The newest checkpoint of a phase is kept, and that of the step that it published: the next phase takes the
    optimizer's moments from it. So are those that were asked for by name, with any configuration: they are exported.
    An unfinished phase keeps everything, and so do the fine-tunings among which the plan still has to choose. What only
    another configuration has may start from any checkpoint, and may still have to choose: all of that is kept, too.
    """
    found = []
    datasets = paths.finished_folders(paths.DATASET, paths.DATASET_OUTPUTS)
    for dataset in (folder for folder in datasets if folder.name in plan.datasets):
        # If a changed tokenizer needs them, they are rewritten from the sentences in minutes.
        found += _entries("text of encoded shards", dataset.glob(paths.SHARD.format(shard="*")))
    phases = paths.finished_folders(paths.PHASE, paths.PHASE_OUTPUTS)
    for phase in (folder for folder in phases if folder.name in plan.phases):
        checkpoints, newest = paths.checkpoints_in(phase / paths.CHECKPOINTS), paths.durable_step(phase)
        if newest in checkpoints and not (phase / paths.LOCK).exists():
            wanted = {*plan.checkpoints.get(phase.name, ()), read_object(phase / paths.RECIPE).get("published_step")}
            exports = {step: paths.CHECKPOINT_EXPORT.format(phase=phase.name, step=step) for step in checkpoints}
            wanted |= {step for step, export in exports.items() if Path(export).exists()}
            older = (path for step, path in checkpoints.items() if step < newest and step not in wanted)
            found += _entries("older checkpoints of finished phases", older)
            found += _entries("traces of the profiler", phase.glob(paths.PROFILE))
    kept = kept_by_any()
    for key, choice in plan.kept.items():
        if read_choice(key) is None:
            kept |= set(choice["finetunings"])
    for output, prediction in plan.predictions.items():
        if not Path(output).exists():
            kept |= {key for part, key in prediction["model"].items() if part == "finetuning"}
    unneeded = {*plan.finetunings, *decided_by_any()} - kept
    finetunings = paths.finished_folders(paths.FINETUNING, paths.FINETUNING_OUTPUTS)
    models = (model_of(folder.name) for folder in finetunings if folder.name in unneeded)
    found += _entries("models of other seeds and settings", (model for model in models if model.exists()))
    return found + _entries("remains of killed jobs", _remains())


def _remains() -> Iterator[Path]:
    """Yield incomplete outputs, and extracted text that is cleaned already, that no running job uses."""
    before = time.time() - SECONDS_OF_A_JOB
    extracted = Path(paths.EXTRACTED.format(corpus="*", part="*"))
    cleaned = (
        folder
        for folder in Path().glob(str(extracted))
        if Path(paths.DOCUMENTS.format(corpus=folder.parts[-3], part=folder.name)).exists()
    )
    old = [path for path in [*Path("results").rglob(".*.part"), *cleaned] if path.lstat().st_mtime < before]
    found = {path for path in old if not any(is_in_use(one) for one in (path, *path.parents) if one.suffix == ".part")}
    yield from (path for path in found if found.isdisjoint(path.parents))  # the others are deleted with their folder


def only_of(plan: Plan) -> list[Path]:
    """Return the folders of a plan's results, and the recipes, except those that a run outside the plan uses."""
    shared = [
        *(paths.CORPUS.format(corpus=key) for key in plan.corpora),
        *(paths.DATASET.format(dataset=key) for key in plan.built_datasets),
        *(paths.PHASE.format(phase=key) for key in plan.phases),
        *(paths.FINETUNING.format(finetuning=key) for key in plan.finetunings),
        *(paths.KEPT.format(kept=key) for key in plan.kept),
        *([paths.EVALUATION.format(evaluation=plan.evaluation["fingerprint"])] if plan.evaluation else []),
        *map(str, recipe_paths(plan)),
    ]
    own = [
        *(paths.RUN.format(run=name) for name in plan.runs),
        paths.REPORT.format(fingerprint=report_fingerprint(plan)),
    ]
    used = _used_outside(plan)
    unshared = [path for path in map(Path, shared) if path.name.removesuffix(".json").encode() not in used]
    return [*unshared, *map(Path, own)]


def _used_outside(plan: Plan) -> bytes:
    """Return the text of all that names what runs outside the plan use.

    That is their records, their links, which are there before any result, and the recipes of what these name, and so
    on: of the phase that a phase starts from, of its dataset.
    """
    folders = [folder for folder in Path(paths.RUN).parent.glob("*") if folder.name not in plan.runs]
    links = [os.fsencode(path.readlink()) for folder in folders for path in folder.rglob("*") if path.is_symlink()]
    records = [path.read_bytes() for folder in folders for path in folder.glob(RECORDS)]
    texts, seen = [b"\n".join([*links, *records])], set[bytes]()
    while keys := set(FINGERPRINT.findall(texts[-1])) - seen:
        seen |= keys
        names = [dict.fromkeys(("fingerprint", "phase", "finetuning"), key.decode()) for key in keys]
        recipes = [Path(template.format(**name)) for template in RECIPES for name in names]
        texts.append(b"\n".join(recipe.read_bytes() for recipe in recipes if recipe.exists()))
    return b"\n".join(texts)


def not_asked_for(plan: Plan) -> list[Prunable]:
    """Return results that the plan's configuration does not request: perhaps those of another configuration."""
    found = []
    for folder, keys in plan.named_by_fingerprint.items():
        found += _entries(folder.name, (path for path in folder.glob("*") if path.is_dir() and path.name not in keys))
    return found


def _entries(kind: str, paths: Iterable[Path]) -> list[Prunable]:
    return [Prunable(kind, path, size_of(path)) for path in sorted(paths)]


def size_of(path: Path) -> int:
    """Return the size of a file, or of all files in a folder, in bytes; 0 for a link."""
    files = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())
