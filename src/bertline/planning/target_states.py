"""The names that can be asked for, with their state."""

from __future__ import annotations

from pathlib import Path

from bertline.console import BertlineError
from bertline.planning.names import RUNS, Name, names_of
from bertline.planning.plan import Plan
from bertline.planning.remaining import NOT_NEEDED, files_left
from bertline.planning.requested import nearest
from bertline.results import paths
from bertline.training.lock import owner_of

# The folders of what may be deleted after all that needs it.
DATA = (Path(paths.DATASET).parent, Path(paths.CORPUS).parent)
SKIPPED_TASKS = Path(paths.SKIPPED_TASK).parents[1].as_posix()
INTERCHANGE = ("nvidia", "gpauloski")  # folders of samples that are made only on request
# Entries of a run that are not results of their own, or that have another name.
SKIPPED = (paths.RUN_RECORD, "model-card.md", "report", "submission", "documents", "sentences", *INTERCHANGE)


def target_states(plan: Plan, under: str | None) -> list[tuple[str, str]]:
    """Return names with their state: finished, trains, started, planned, or how many of their files are finished.

    Phases, and files of datasets and corpora, that nothing needs any more are not planned, but not needed.

    Args:
        under: a run, or a name without results/runs/. It lists what is below it, one by one: seeds, kept checkpoints,
            shards; without it, they are counted.

    Raises BertlineError with the nearest names if `under` is not such a name.
    """
    names, left = names_of(plan), files_left(plan)
    if under is None:
        tasks = {
            f"{RUNS}/{run}/{kept.removesuffix('/random-weights')}"
            for run in plan.runs
            for kept in plan.runs[run]["kept"]
        }
        below = {
            name for name in names if not tasks.isdisjoint(map(str, Path(name).parents)) and Path(name).name != "model"
        }
        without = {name for name in names if "/random-weights/" in name or _is_skipped(Path(name).parts[3:])}
        shown = [name for name in names if name not in below | without]
        return [(name, _state(plan, name, names[name], left)) for name in shown]
    folder = f"{RUNS}/{under.strip('/').removeprefix(f'{RUNS}/')}"
    if folder not in names:
        near = nearest(folder, list(names), plan.runs)
        meant = f"; did you mean {' or '.join(name.removeprefix(f'{RUNS}/') for name in near)}?" if near else ""
        raise BertlineError(f"{under}: there is no target of this name{meant}")
    inside = [name for name in names if name == folder or name.startswith(f"{folder}/")]
    rows = [(name, _state(plan, name, names[name], left)) for name in inside]
    files = names[folder].files
    if len(files) > 1 and len(inside) == 1:  # the files of a folder, such as shards
        rows += [(f"{folder}/{Path(file).name}", _one(file, left)) for file in files]
    for name in inside:
        rows += [
            (f"{name}@step-{step}", "kept")
            for step in paths.checkpoints_in(Path(names[name].target or name, paths.CHECKPOINTS))
            if Path(names[name].target or name).name in plan.phases
        ]
    return rows


def _is_skipped(inside: tuple[str, ...]) -> bool:
    """Return whether a name, by its parts below that of its run, is not listed."""
    is_corpus = len(inside) == 2 and inside[0] == "corpora"
    return bool(inside) and inside[-1] in SKIPPED and not is_corpus


def _state(plan: Plan, path: str, name: Name, left: set[str]) -> str:
    folder, files = Path(name.target or path), name.files
    if folder.name in plan.phases or folder.name in plan.finetunings:
        outputs = paths.PHASE_OUTPUTS if folder.name in plan.phases else paths.FINETUNING_OUTPUTS
        if paths.is_finished(folder, outputs):
            return "finished"
        step, is_training = paths.durable_step(folder), bool(owner_of(folder / paths.LOCK))
        is_needed = folder.name in plan.finetunings or str(folder) in left
        of = f" of {plan.phases[folder.name]['settings']['steps']}" if folder.name in plan.phases else ""
        saved = f"step {step}{of} is saved" if step else "no step is saved"
        if is_training or (step and is_needed):
            return f"{'trains' if is_training else 'started'}: {saved}"
        return "planned" if is_needed else NOT_NEEDED
    if Path(path).name == "model" and Path(path).is_symlink() and not Path(path).exists():
        return "planned"  # it was deleted
    if len(files) == 1:
        return "its parts are not listed yet" if files[0].startswith("corpus_") else _one(files[0], left)
    states = [_one(file, left) for file in files]
    finished = states.count("finished")
    if finished in (0, len(files)):
        return "planned" if "planned" in states else states[0]
    others = ", the others are not needed" if set(states) == {"finished", NOT_NEEDED} else ""
    return f"{finished} of {len(files)} finished{others}"


def _one(file: str, left: set[str]) -> str:
    """Return the state of a file; `left` is what `files_left` returns."""
    if file.startswith(f"{SKIPPED_TASKS}/"):
        return "left out: its data is missing"
    if Path(file).exists():
        return "finished"
    parts = Path(file).parts
    is_of_data = Path(*parts[:2]) in DATA and not set(INTERCHANGE).intersection(parts)
    return NOT_NEEDED if is_of_data and left.isdisjoint([file, str(Path(*parts[:3]))]) else "planned"
