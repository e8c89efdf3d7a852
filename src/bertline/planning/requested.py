"""Requests for results by their names: the files of the graph that each asks for."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.sources import parts_of
from bertline.planning.names import RUNS, Name, is_listed, names_of
from bertline.planning.plan import Plan
from bertline.planning.targets import of_runs
from bertline.results import paths
from bertline.results.kept import missing_models

# A checkpoint, as `pretrained` names it, and its path in the phase's folder.
STEP = re.compile(r"(.+?)(?:@|/exports/|/checkpoints/)step-0*(\d+)")
NEAREST = 3


def files_of_names(plan: Plan, given: Iterable[str], rules: Collection[str], makes: Callable[[str], bool]) -> list[str]:
    """Return the files and the rules to request from Snakemake for the names that the user requested.

    Args:
        plan: the plan. The steps of requested checkpoints are added to its `checkpoints`.
        given: rules, names, paths inside what a name leads to, and paths of the graph.
        rules: the names of all rules without wildcards.
        makes: returns whether a rule makes a file.

    Raises BertlineError with the nearest names if there is nothing of a name.
    """
    names = names_of(plan)
    links = {path: name.target for path, name in names.items() if name.target}
    named = {target: path for path, target in links.items()}  # the folder behind a link has the link's name

    def files(name: str) -> list[str]:
        path = _relative(name)
        path = named.get(path, path)
        if path in names:
            if given_files := [file for file in names[path].files if Path(file).exists() and not makes(file)]:
                raise BertlineError(f"{name}: {given_files[0]} is finished, and no rule makes it; leave the name out")
            lost = [*_deleted_models(plan, names[path].files), *_lost_outputs(plan, names[path].files)]
            return [*names[path].files, *lost]
        if (step := STEP.fullmatch(path)) and (phase := Path(links.get(step[1], step[1])).name) in plan.phases:
            return [_checkpoint(plan, step[1], phase, int(step[2]))]
        inside = next((str(above) for above in Path(path).parents if str(above) in links), None)
        file = path if inside is None else links[inside] + path.removeprefix(inside)
        if makes(file):
            near = _misses(plan, file, names.get(str(Path(path).parent)))
            if near is not None:
                raise _unknown(name, [str(Path(path).with_name(other)) for other in near], inside)
            return [file]
        if inside and Path(file).exists():
            raise BertlineError(f"{name}: no rule makes this file alone; ask for {inside}")
        for (run, task), reason in plan.skipped.items():
            if f"{path}/".startswith(f"{RUNS}/{run}/{task}/"):
                raise BertlineError(f"{name}: {reason}")
        if Path(path).exists() and not path.startswith("results"):
            return [path]  # Snakemake says that there is nothing to be done
        raise _unknown(name, nearest(path, [*names, *rules], plan.runs), inside)

    return [file for name in given for file in ([name] if name in rules else files(name))]


def records_of_names(plan: Plan, given: Iterable[str]) -> list[str]:
    """Return the records of the runs in whose folders a name is.

    The report, MLflow and `make clean` find results by records, also if nothing but a phase was requested.
    """
    above = {str(folder) for name in given for folder in Path(_relative(name)).parents}
    return of_runs(paths.RECORD, {name: run for name, run in plan.runs.items() if paths.RUN.format(run=name) in above})


def _relative(name: str) -> str:
    return os.path.relpath(name) if os.path.isabs(name) else os.path.normpath(name)


def _deleted_models(plan: Plan, files: Iterable[str]) -> list[str]:
    """List the models that the choices among `files` keep and that were deleted."""
    asked = [plan.kept[Path(file).parts[-2]] for file in files if file.startswith(str(Path(paths.KEPT).parent))]
    return sorted({str(model) for choice in asked for model in missing_models(choice)})


def _lost_outputs(plan: Plan, files: list[str]) -> list[str]:
    """List the outputs that were deleted of finished trainings that the `files` are of."""
    lost = []
    for folder in sorted({Path(*Path(file).parts[:3]) for file in files}):
        outputs = paths.PHASE_OUTPUTS if folder.name in plan.phases else ()
        outputs = paths.FINETUNING_OUTPUTS if folder.name in plan.finetunings else outputs
        absent = [name for name in outputs if not (folder / name).exists()]
        lost += [str(folder / name) for name in absent if len(absent) < len(outputs)]
    return [path for path in lost if path not in files]


def _checkpoint(plan: Plan, name: str, phase: str, step: int) -> str:
    """Return the export of a checkpoint; a training that has not ended keeps this checkpoint."""
    if problem := plan.keep_checkpoint(phase, step, name):
        raise BertlineError(problem)
    return paths.CHECKPOINT_EXPORT.format(phase=phase, step=step)


def _misses(plan: Plan, file: str, folder: Name | None) -> list[str] | None:
    """Return the nearest file names if a file that a rule could make is not in the plan; None if it is.

    Args:
        folder: what the name of its folder stands for, if it has one.
    """
    if folder is not None and not folder.target:  # of a folder behind a link, the plan has further files
        known = [Path(other).name for other in folder.files]
        return None if file in folder.files else difflib.get_close_matches(Path(file).name, known)
    results, kind, key = (*Path(file).parts, "", "", "")[:3]
    above = Path(results, kind)
    if key not in plan.named_by_fingerprint.get(above, [key]):
        return []
    if above == Path(paths.CORPUS).parent and is_listed(plan.corpora[key]):
        last = Path(file).name
        parts = parts_of(plan.corpora[key])
        if last != Path(paths.PUNKT).name and not any(last == part or last.startswith(f"{part}.") for part in parts):
            return difflib.get_close_matches(last, [f"{part}{''.join(Path(last).suffixes)}" for part in parts])
    return None


def nearest(path: str, names: list[str], runs: Iterable[str]) -> list[str]:
    """Return the names nearest to a path, which may lack its beginning."""
    for begin in ("", f"{RUNS}/", *(f"{RUNS}/{run}/" for run in runs)):
        if near := difflib.get_close_matches(begin + path, names, NEAREST, 0.75):
            return near
    return difflib.get_close_matches(path, names, NEAREST, 0.5)


def _unknown(name: str, near: list[str], inside: str | None) -> BertlineError:
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    where = f"there is nothing of this name in {inside}" if inside else "there is no target of this name"
    return BertlineError(f"{name}: {where}; {meant}`make targets CONFIG=...` lists them")
