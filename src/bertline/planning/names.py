"""Names of results: the readable paths under results/runs/ and results/report/latest, most of them links."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.sources import files_of
from bertline.files import write_link
from bertline.planning import inputs, targets
from bertline.planning.entries import CorpusEntry, RunEntry, last_phase
from bertline.planning.plan import Plan
from bertline.results import paths
from bertline.results.kept import link_best_model

RUNS = str(Path(paths.RUN).parent)
# Where links in a run's folder lead.
TARGETS = [
    re.sub(r"{\w+}", "*", template)
    for template in (
        *(paths.CORPUS, paths.DATASET, paths.PHASE, paths.PHASE_EXPORT, paths.FINETUNING, paths.KEPT_MODEL),
        f"{paths.REPORT}/model-cards/*.md",
    )
]


@dataclass(frozen=True)
class Name:
    """What a readable path stands for.

    Attributes:
        files: the files, or the rules without wildcards, that make it. A folder represents those that the graph makes
            in it.
        target: the folder or file to which its link leads, whether it exists or not; None if the path is no link.
    """

    files: list[str]
    target: str | None = None


def names_of(plan: Plan) -> dict[str, Name]:
    """Return all names.

    Files in the folder of a dataset, a phase or a corpus have names, too: see `requested.files_of_names`.
    """
    page = [targets.report_page(plan)]
    report = str(Path(page[0]).parent)
    latest = paths.REPORT.format(fingerprint="latest")
    found = {latest: Name(page, report), f"{latest}/index.html": Name(page)}
    for run_name, run in plan.runs.items():
        folder = paths.RUN.format(run=run_name)
        found[folder] = Name(_files_of_run(plan, run))
        found[f"{folder}/report"] = Name(page)
        record = _record(run)
        found[f"{folder}/{paths.RUN_RECORD}"] = Name([record], record)
        if run["phases"]:
            found[f"{folder}/model-card.md"] = Name(page, f"{report}/model-cards/{run_name}.md")
            found |= {f"{folder}/{part}": name for part, name in _names_of_pretraining(plan, run)}
        found |= {f"{folder}/{part}": name for part, name in _names_of_finetuning(plan, run)}
    return found


def write_links(plan: Plan, *, existing_only: bool) -> None:
    """Link names to the fingerprinted folders, and kept models that exist to the best of their task.

    What leads into a report stays as it is until the new report exists: often only a part of the plan is asked for.
    Raises BertlineError as `check_links` does.
    """
    links = check_links(plan)
    reports = paths.REPORT.format(fingerprint="")
    for link, target in links.items():
        if Path(target).exists() or not (existing_only or target.startswith(reports)):
            write_link(Path(link), Path(target))
    for key in plan.kept:
        link_best_model(key)


def remove_old_links(plan: Plan) -> None:
    """Remove links that the plan's runs have of an earlier configuration, and the folders that are empty then.

    The results to which they lead stay, and so do the links of a task that is left out because its data is absent.
    """
    links = _links(plan)
    for name, run in plan.runs.items():
        run_folder = Path(paths.RUN.format(run=name))
        skipped = {str(run_folder / task) for task in run["skipped"]}
        for folder, folders, files in os.walk(run_folder):
            for link in (Path(folder, entry) for entry in [*folders, *files]):
                if str(link) in links or not link.is_symlink() or not skipped.isdisjoint(map(str, link.parents)):
                    continue
                if _leads_to_result(link):
                    link.unlink(missing_ok=True)  # another process may have done it
                    _remove_empty_folders(link.parent, run_folder)


def _leads_to_result(link: Path) -> bool:
    """Return whether a link leads to a result as those of `write_links` do: relative, and by a fingerprint."""
    target = link.readlink()
    path = Path(os.path.normpath(link.parent / target))
    is_part = link.name.startswith(".")  # another process is just writing it
    return not (is_part or target.is_absolute()) and any(path.match(pattern) for pattern in TARGETS)


def _remove_empty_folders(folder: Path, run_folder: Path) -> None:
    with suppress(OSError):  # the first that is not empty
        while folder != run_folder:
            folder.rmdir()
            folder = folder.parent


def check_links(plan: Plan) -> dict[str, str]:
    """Return what `_links` does.

    Raises BertlineError for files and folders in the place of links, which would lead to old results for ever.
    """
    links = _links(plan)
    all_links = [*links, *(paths.KEPT_MODEL.format(kept=key) for key in plan.kept)]
    copies = [link for link in all_links if Path(link).exists() and not Path(link).is_symlink()]
    if copies:
        raise BertlineError(
            f"{copies[0]} is a copy in the place of a link, as `cp -rL` and `scp -r` make it, and leads to old results "
            "when a setting changes; copy the folder again with `rsync -a`, or, if results/ has what was copied, "
            f"delete the copies: rm -r {shlex.join(copies)}"
        )
    return links


def _links(plan: Plan) -> dict[str, str]:
    """Return the links of all names, and where they lead."""
    return {link: name.target for link, name in names_of(plan).items() if name.target}


def is_listed(corpus: CorpusEntry) -> bool:
    """Return whether the parts of a corpus are known; those of a dump to download are only after it was listed."""
    if "wiki" not in corpus:
        return True
    return Path(paths.DUMP_LISTING.format(wiki=corpus["wiki"], dump=corpus["settings"]["dump"])).exists()


def corpus_rule(key: str) -> str:
    """Return the name of the rule that requests the sentences of all parts of a corpus, which may still be unknown."""
    return f"corpus_{key}"


def _files_of_run(plan: Plan, run: RunEntry) -> list[str]:
    made = [*inputs.models_of_run(plan, run["name"]), *inputs.scores_of_run(plan, run["name"])]
    return [*made, *(paths.SKIPPED_TASK.format(run=run["name"], task=task) for task in run["skipped"]), _record(run)]


def _record(run: RunEntry) -> str:
    return paths.RECORD.format(run=run["name"], fingerprint=run["fingerprint"])


def _names_of_pretraining(plan: Plan, run: RunEntry) -> Iterator[tuple[str, Name]]:
    key = plan.phases[last_phase(run)]["dataset"]
    encoded = targets.samples(plan, [key]) if key in plan.built_datasets else []
    yield "dataset", Name([*encoded, plan.dataset_file(key, paths.CARD)], plan.dataset_folder(key))
    if key in plan.built_datasets:
        shards = plan.datasets[key]["shards"]
        yield "dataset/shards", Name([paths.DATASET_SHARD.format(dataset=key, shard=shard) for shard in shards])
        for length in plan.config["sequence_lengths"]:
            ends = f"/seq{length}/"
            yield f"dataset/seq{length}", Name([file for file in encoded if ends in file])
        yield "dataset/nvidia", Name(targets.samples(plan, [key], paths.NVIDIA_SAMPLES))
        yield "dataset/gpauloski", Name(targets.samples(plan, [key], paths.GPAULOSKI_SAMPLES))
        for corpus in plan.datasets[key]["corpora"]:
            yield from _names_of_corpus(plan.corpora[corpus])
    for phase, fingerprint in run["phases"].items():
        folder = paths.PHASE.format(phase=fingerprint)
        yield phase, Name([paths.PHASE_WEIGHTS.format(phase=fingerprint)], folder)
    export = paths.PHASE_EXPORT.format(phase=last_phase(run))
    yield paths.RUN_EXPORT, Name([export], export)


def _names_of_corpus(corpus: CorpusEntry) -> Iterator[tuple[str, Name]]:
    name, folder = f"corpora/{corpus['name']}", paths.CORPUS.format(corpus=corpus["key"])
    if is_listed(corpus):
        yield name, Name(files_of(corpus, paths.SENTENCES), folder)
        yield f"{name}/sentences", Name(files_of(corpus, paths.SENTENCES))
        yield f"{name}/documents", Name(files_of(corpus, paths.DOCUMENTS))
    else:
        yield name, Name([corpus_rule(corpus["key"])], folder)


def _names_of_finetuning(plan: Plan, run: RunEntry) -> Iterator[tuple[str, Name]]:
    files: dict[str, list[str]] = {}
    links: dict[str, str] = {}

    def add(name: str, file: str) -> None:
        """Add a file to its name and to the folders above it."""
        for above in [name, *map(str, Path(name).parents)][:-1]:
            files.setdefault(above, []).append(file)

    for name, key in run["finetunings"].items():
        add(name, paths.FINETUNING_SCORES.format(finetuning=key))
        links[name] = paths.FINETUNING.format(finetuning=key)
    for name, key in run["kept"].items():
        choice = paths.KEPT_CHOICE.format(kept=key)
        add(name, choice)
        if plan.kept[key]["keep"] != "none":
            files[f"{name}/model"] = [choice]
            links[f"{name}/model"] = paths.KEPT_MODEL.format(kept=key)
    for name in run["skipped"]:
        add(name, paths.SKIPPED_TASK.format(run=run["name"], task=name))
    if targets.scores_for_submission(plan, run["name"]):
        files["submission"] = [paths.SUBMISSION.format(run=run["name"], fingerprint=run["fingerprint"])]
    for name in sorted(files):
        yield name, Name(files[name], links.get(name))
