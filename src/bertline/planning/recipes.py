"""Recipes: the parts of a plan that jobs read, as files, which are readable and not limited in length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertline.files import Json, write_atomically
from bertline.fingerprint import fingerprint
from bertline.planning.plan import Plan, record
from bertline.planning.targets import submitted
from bertline.results import paths
from bertline.settings.configuration import definition, strip_defaults


def recipe_path(fingerprint: str) -> str:
    """Return the path of a job's recipe."""
    return paths.PLANNED_RECIPE.format(fingerprint=fingerprint)


def recipe_paths(plan: Plan) -> list[Path]:
    """List the files that `write_recipes` writes."""
    return [Path(recipe_path(key)) for key, _ in _recipes(plan)]


def write_recipes(plan: Plan) -> None:
    """Write the recipes of everything that the plan makes; unchanged files are not rewritten.

    Recipes are not inputs of the graph: results are named by fingerprints, so neither the modification time of a recipe
    nor a new default in it reruns anything.
    """
    for key, content in _recipes(plan):
        path = Path(recipe_path(key))
        text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        with suppress(FileNotFoundError, UnicodeDecodeError):
            if path.read_text(encoding="utf-8") == text:
                continue
        with write_atomically(path, durable=False) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _recipes(plan: Plan) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from plan.phases.items()
    yield from plan.finetunings.items()
    shared: dict[str, list[str]] = {}
    for key, choice in plan.kept.items():
        for finetuning in choice["finetunings"]:
            shared.setdefault(finetuning, []).append(key)
    for key, choice in plan.kept.items():
        others = {one: [other for other in shared[one] if other != key] for one in choice["finetunings"]}
        yield key, {**choice, "shared": {one: keys for one, keys in others.items() if keys}}
    yield from plan.corpora.items()
    yield from ((key, dataset_recipe(plan, key)) for key in plan.built_datasets)
    yield from plan.collections.items()
    if plan.evaluation:
        yield plan.evaluation["fingerprint"], plan.evaluation
    for prediction in plan.predictions.values():
        yield prediction["fingerprint"], prediction
    for name, run in plan.runs.items():
        yield run["fingerprint"], record(plan, name)
        if finetunings := submitted(plan, run):
            yield f"{run['fingerprint']}-submission", {"finetunings": finetunings}


def digest_of_record(plan: Plan, run: str) -> str:
    """Return a digest of what a run's fingerprint omits: description, the content of cards, folders of the stages.

    The licences of the dataset are part of it. The report follows records, but not the cards of datasets, whose times
    have no meaning.
    """
    content = {key: value for key, value in record(plan, run).items() if key != "config"}
    if (dataset := plan.runs[run]["dataset"]) in plan.built_datasets:
        content["sources"] = digest_of_sources(plan, dataset)
    return fingerprint(content)


def digest_of_sources(plan: Plan, dataset: str) -> str:
    """Return a digest of what a dataset's fingerprint omits but its card contains: licences, the evaluation overlap."""
    overlap = plan.datasets[dataset]["settings"]["evaluation_overlap"]
    sources = dataset_recipe(plan, dataset)["sources"]
    # The fingerprint is of the sets' names and content: files that moved change nothing.
    reported = plan.evaluation and plan.evaluation["fingerprint"]
    return fingerprint([sources, reported] if overlap == "report" else sources)


def dataset_recipe(plan: Plan, dataset: str) -> Json:
    """Return a dataset's settings, corpora and evaluation sets, and the sources of the corpora for its card."""
    entry, sources = plan.datasets[dataset], {}
    for key in entry["corpora"]:
        name, settings = plan.corpora[key]["name"], plan.corpora[key]["settings"]
        sources[name] = {
            "fingerprint": key.removeprefix(f"{name}-"),
            "settings": strip_defaults(settings, definition(plan.schema, settings["source"]), plan.schema),
            "licence": settings.get("licence"),
        }
    return {
        "fingerprint": dataset,
        "fingerprint_without_lengths": entry["fingerprint_without_lengths"],
        "settings": entry["settings"],
        "sequence_lengths": plan.config["sequence_lengths"],
        "corpora": entry["corpora"],
        "evaluation": plan.evaluation and plan.evaluation["fingerprint"],
        "sources": sources,
    }
