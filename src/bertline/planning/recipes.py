"""What jobs get of a plan, as files: no limit on their length, and a person can read them and hand them over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertline.files import write_atomically
from bertline.fingerprint import fingerprint
from bertline.planning.plan import Plan, record
from bertline.results import paths
from bertline.settings.configuration import definition, strip_defaults

Json = dict[str, Any]


def recipe_path(fingerprint: str) -> str:
    """Return the path of what a job gets of the plan."""
    return paths.PLANNED_RECIPE.format(fingerprint=fingerprint)


def recipe_paths(plan: Plan) -> list[Path]:
    """List the files that `write_recipes` writes."""
    return [Path(recipe_path(key)) for key, _ in _recipes(plan)]


def write_recipes(plan: Plan) -> None:
    """Write what every phase, fine-tuning, dataset and run of the plan is made by; a file that is equal stays as it is.

    They are no inputs of the graph: results are named by fingerprints, so that neither the time of such a file nor a
    default in it that is new makes anything again.
    """
    for key, content in _recipes(plan):
        path = Path(recipe_path(key))
        text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        try:
            if path.read_text(encoding="utf-8") == text:
                continue
        except (FileNotFoundError, UnicodeDecodeError):
            pass
        with write_atomically(path, durable=False) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _recipes(plan: Plan) -> Iterator[tuple[str, Json]]:
    yield from plan.phases.items()
    yield from plan.finetunings.items()
    yield from ((key, dataset_recipe(plan, key)) for key in plan.built_datasets)
    for name, run in plan.runs.items():
        yield run["fingerprint"], record(plan, name)


def digest_of_record(plan: Plan, run: str) -> str:
    """Return a digest of what a run's fingerprint leaves out: its description, and the places of what it is made of."""
    return fingerprint({key: value for key, value in record(plan, run).items() if key != "config"})


def digest_of_sources(plan: Plan, dataset: str) -> str:
    """Return a digest of what a dataset's card says beyond its fingerprint, such as licences."""
    return fingerprint(dataset_recipe(plan, dataset)["sources"])


def dataset_recipe(plan: Plan, dataset: str) -> Json:
    """Return the settings of a dataset, and where the text of each of its corpora is from."""
    sources = {}
    for key in plan.datasets[dataset]["corpora"]:
        name, settings = plan.corpora[key]["name"], plan.corpora[key]["settings"]
        sources[name] = {
            "fingerprint": key.removeprefix(f"{name}-"),
            "settings": strip_defaults(settings, definition(plan.schema, settings["source"]), plan.schema),
            "licence": settings.get("licence"),
        }
    return {"settings": plan.datasets[dataset]["settings"], "sources": sources}
