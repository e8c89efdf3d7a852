"""Names of results: the readable paths under results/runs/, and the files that the graph makes for each."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.sources import files_of, parts_of
from bertline.files import Json
from bertline.planning import inputs, targets
from bertline.planning.links import links_of
from bertline.planning.plan import Plan
from bertline.results import paths
from bertline.results.kept import missing_models

RUNS = str(Path(paths.RUN).parent)
# A checkpoint, as `pretrained` names it, and its path in the phase's folder.
STEP = re.compile(r"(.+?)(?:@|/exports/|/checkpoints/)step-0*(\d+)")
# The folders of results whose names are fingerprints in the plan.
FINGERPRINTED = ("corpora", "datasets", "phases", "finetunings", "kept")
NEAREST = 3


def names_of(plan: Plan) -> dict[str, list[str]]:
    """Return the files, or the rules without wildcards, that make each name.

    A folder represents the files that the graph makes in it. Files in the folder of a dataset, a phase or a corpus have
    names, too: see `files_of_names`.
    """
    page = [targets.report_page(plan)]
    latest = paths.REPORT.format(fingerprint="latest")
    found = {latest: page, f"{latest}/index.html": page}
    for name, run in plan.runs.items():
        folder = paths.RUN.format(run=name)
        found[folder] = _files_of_run(plan, run)
        found[f"{folder}/report"] = page
        for part, files in [*_names_of_pretraining(plan, run, page), *sorted(_names_of_finetuning(plan, run).items())]:
            found[f"{folder}/{part}"] = files
    return found


def _files_of_run(plan: Plan, run: Json) -> list[str]:
    made = [*inputs.models_of_run(plan, run["name"]), *inputs.scores_of_run(plan, run["name"])]
    return [*made, *(paths.SKIPPED_TASK.format(run=run["name"], task=task) for task in run["skipped"]), _record(run)]


def _record(run: Json) -> str:
    return paths.RECORD.format(run=run["name"], fingerprint=run["fingerprint"])


def _names_of_pretraining(plan: Plan, run: Json, page: list[str]) -> Iterator[tuple[str, list[str]]]:
    yield paths.RUN_RECORD, [_record(run)]
    if not run["phases"]:
        return
    yield "model-card.md", page
    key = run["dataset"]
    yield "dataset", [plan.dataset_file(key, paths.CARD)]
    if key in plan.built_datasets:
        yield "dataset/shards", [paths.DATASET_SHARD.format(dataset=key, shard=s) for s in plan.datasets[key]["shards"]]
        for length in plan.config["sequence_lengths"]:
            ends = f"/seq{length}/"
            yield f"dataset/seq{length}", [file for file in targets.samples(plan, [key]) if ends in file]
        yield "dataset/nvidia", targets.samples(plan, [key], paths.NVIDIA_SAMPLES)
        yield "dataset/gpauloski", targets.samples(plan, [key], paths.GPAULOSKI_SAMPLES)
        for corpus in plan.datasets[key]["corpora"]:
            yield from _names_of_corpus(plan.corpora[corpus])
    for phase, fingerprint in run["phases"].items():
        yield phase, [paths.PHASE_WEIGHTS.format(phase=fingerprint)]
    yield paths.RUN_EXPORT, [paths.PHASE_EXPORT.format(phase=run["last_phase"])]


def _names_of_corpus(corpus: Json) -> Iterator[tuple[str, list[str]]]:
    folder = f"corpora/{corpus['name']}"
    if is_listed(corpus):
        yield folder, files_of(corpus, paths.SENTENCES)
        yield f"{folder}/sentences", files_of(corpus, paths.SENTENCES)
        yield f"{folder}/documents", files_of(corpus, paths.DOCUMENTS)
    else:
        yield folder, [corpus_rule(corpus["key"])]


def is_listed(corpus: Json) -> bool:
    """Return whether the parts of a corpus are known; those of a dump to download are only after it was listed."""
    return "wiki" not in corpus or Path(_listing(corpus)).exists()


def _listing(corpus: Json) -> str:
    return paths.DUMP_LISTING.format(wiki=corpus["wiki"], dump=corpus["settings"]["dump"])


def corpus_rule(key: str) -> str:
    """Return the name of the rule that requests the sentences of all parts of a corpus, which may still be unknown."""
    return f"corpus_{key}"


def _names_of_finetuning(plan: Plan, run: Json) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}

    def add(name: str, file: str) -> None:
        """Add a file to its name and to the folders above it."""
        for above in [name, *map(str, Path(name).parents)][:-1]:
            found.setdefault(above, []).append(file)

    for name, key in run["finetunings"].items():
        add(name, paths.FINETUNING_SCORES.format(finetuning=key))
    for name, key in run["kept"].items():
        choice = paths.KEPT_CHOICE.format(kept=key)
        add(name, choice)
        if plan.kept[key]["keep"] != "none":
            found[f"{name}/model"] = [choice]
    for name in run["skipped"]:
        add(name, paths.SKIPPED_TASK.format(run=run["name"], task=name))
    if targets.scores_for_submission(plan, run["name"]):
        found["submission"] = [paths.SUBMISSION.format(run=run["name"], fingerprint=run["fingerprint"])]
    return found


def files_of_names(plan: Plan, given: Iterable[str], rules: Collection[str], makes: Callable[[str], bool]) -> list[str]:
    """Return the files and the rules to request from Snakemake for the names that the user requested.

    Args:
        plan: the plan. The steps of requested checkpoints are added to its `checkpoints`.
        given: rules, names, paths inside what a name leads to, and paths of the graph.
        rules: the names of all rules without wildcards.
        makes: returns whether a rule makes a file.

    Raises BertlineError with the nearest names if there is nothing of a name.
    """
    names, links = names_of(plan), links_of(plan)
    # The folder behind a link has the link's name.
    named = {target: link for link, target in links.items() if link in names}

    def files(name: str) -> list[str]:
        path = os.path.relpath(name) if os.path.isabs(name) else os.path.normpath(name)
        path = named.get(path, path)
        if path in names:
            return [*names[path], *_deleted_models(plan, names[path])]
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


def _deleted_models(plan: Plan, files: Iterable[str]) -> list[str]:
    """List the models that the choices among `files` keep and that were deleted."""
    asked = [plan.kept[Path(file).parts[-2]] for file in files if file.startswith(str(Path(paths.KEPT).parent))]
    return sorted({str(model) for choice in asked for model in missing_models(choice)})


def _checkpoint(plan: Plan, name: str, phase: str, step: int) -> str:
    """Return the export of a checkpoint; a training that has not ended keeps this checkpoint."""
    if problem := plan.keep_checkpoint(phase, step, name):
        raise BertlineError(problem)
    return paths.CHECKPOINT_EXPORT.format(phase=phase, step=step)


def _misses(plan: Plan, file: str, known: list[str] | None) -> list[str] | None:
    """Return the nearest file names if a file that a rule could make is not in the plan; None if it is.

    Args:
        known: the files of its folder, if the folder has a name.
    """
    if known is not None:
        return None if file in known else difflib.get_close_matches(Path(file).name, [Path(f).name for f in known])
    kind, key = (*Path(file).parts, "", "", "")[1:3]
    if file.startswith("results/") and kind in FINGERPRINTED:
        entries: dict[str, Json] = getattr(plan, kind)
        if key not in entries:
            return []
        last = Path(file).name
        if kind == "corpora" and is_listed(entries[key]) and last != Path(paths.PUNKT).name:
            parts = parts_of(entries[key])
            if not any(last == part or last.startswith(f"{part}.") for part in parts):
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
    return BertlineError(f"{name}: {where}; {meant}`make targets` lists them")
