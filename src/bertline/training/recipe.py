"""The recipe of a phase: everything that determines its result, as JSON with every default filled in.

Imports no PyTorch, since the workflow uses the checks when planning.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import SCHEMA, Json, parse_json, read_text
from bertline.training.optimizers.schedules import SCHEDULED, schedule_steps, share_or_steps

logger = logging.getLogger(__name__)

# Keys of every recipe; `settings` are checked against a definition in the configuration's schema.
KEYS: Json = {
    "fingerprint": {"type": "string"},
    "model": {"type": "object"},
    "seed": {"type": "integer"},
    "settings": {"type": "object"},
}


def read_recipe(path: Path) -> Json:
    """Read the recipe of a phase. Raises BertlineError naming the file, and the key that is missing or wrong."""
    text = read_text(path)
    try:
        return parse_recipe(text)
    except BertlineError as error:
        raise BertlineError(f"{path}: {error}") from None


def parse_recipe(text: str) -> Json:
    """Parse the recipe of a phase from JSON. Raises BertlineError naming the key that is missing or wrong."""
    try:
        given = parse_json(text)
    except ValueError as error:
        raise BertlineError(f"recipe: not JSON ({error}); give that of a planned phase or a recipe.json") from None
    recipe = complete_recipe(given, "phase")
    check_together(recipe["settings"], recipe["model"], "recipe.settings")
    return recipe


def complete_recipe(recipe: Any, kind: str, *, others: Sequence[str] = ()) -> Json:
    """Check a recipe against the configuration's schema; return it with the defaults of its settings filled in.

    Args:
        kind: the schema's definition of `settings`: phase, squad or classification.
        others: required keys in addition to `KEYS`.

    Raises BertlineError naming the key that is missing or wrong.
    """
    # jsonschema is optional on a machine that only trains; the workflow has checked its recipes when planning.
    if importlib.util.find_spec("jsonschema") is None:
        logger.info("jsonschema is not installed: the recipe is not checked")
        return dict(recipe)
    from bertline.settings.configuration import definition, fill_defaults, load_schema, validate

    schema = load_schema(SCHEMA)
    keys = KEYS | {"settings": {"$ref": f"#/$defs/{kind}"}}
    form = {"type": "object", "required": [*keys, *others], "properties": keys, "$defs": schema["$defs"]}
    validate(recipe, form, what="recipe")
    return {**recipe, "settings": fill_defaults(recipe["settings"], definition(schema, kind), schema)}


def check_used(chosen: Mapping[str, Any], settings: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> None:
    """Raise BertlineError, naming the key after `where`, for a setting that has no effect given another one.

    Args:
        chosen: the settings that differ from their defaults.
        settings: all of them.
        schema: of the settings. Its `used_with` lists, for one, the values of another one with which it has an effect.
    """
    for key, part in schema["properties"].items():
        for other, values in part.get("used_with", {}).items():
            if key in chosen and settings[other] not in values:
                raise BertlineError(
                    f"{where}.{key}: given {chosen[key]!r}, but {other} '{_in_yaml(settings[other])}' does not use it; "
                    f"leave it out, or choose {other} {' or '.join(map(_in_yaml, values))}"
                )


def _in_yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_together(settings: Mapping[str, Any], model: Mapping[str, Any], where: str) -> None:
    """Raise BertlineError, naming the key after `where`, for settings that contradict each other or the model.

    Args:
        settings: of a phase, with every default filled in.
        model: its keys; absent ones have their defaults.
    """
    problem = next(_contradictions(settings, model), None)
    if problem is not None:
        raise BertlineError(f"{where}.{problem}")


def too_long_warmup(warmup: float, *, steps: int, schedule_steps: int | None = None) -> str | None:
    """Return what is wrong if a warm-up is longer than the training.

    Args:
        warmup: a share of the schedule's steps, or a number of steps.
        steps: of the training.
        schedule_steps: None for those of the training.
    """
    rise = share_or_steps(warmup, schedule_steps or steps)
    if rise <= steps:
        return None
    of_schedule = f" of schedule_steps, {rise:g} steps" if warmup < 1 else ""
    return (
        f"warmup: given {warmup}{of_schedule}, allowed are at most {steps}; otherwise the learning rate is never "
        "reached"
    )


def missing_base_batch_size(settings: Mapping[str, Any]) -> str | None:
    """Return what is wrong if the learning rate is to be scaled and `base_batch_size` is missing."""
    scaling = settings["learning_rate_scaling"]
    if scaling == "none" or settings["base_batch_size"] is not None:
        return None
    return (
        f"base_batch_size: missing, but learning_rate_scaling '{scaling}' needs it; give the batch size that the "
        "learning rate was found for"
    )


def _contradictions(settings: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[str]:
    total, peak, end = settings["steps"], settings["learning_rate"], settings["end_learning_rate"]
    if problem := missing_base_batch_size(settings):
        yield problem
    if end > peak:
        yield f"end_learning_rate: given {end}, allowed is at most learning_rate, {peak}"
    horizon = schedule_steps(settings)
    rise, decay = (share_or_steps(settings[key], horizon) for key in ("warmup", "decay"))
    if problem := too_long_warmup(settings["warmup"], steps=total, schedule_steps=horizon):
        yield problem
    if settings["schedule"] == "wsd" and rise + decay > horizon:
        whole = f"the phase ({total} steps)" if horizon == total else f"schedule_steps ({horizon})"
        yield (
            f"decay: warm-up ({rise:g} steps) and decay ({decay:g} steps) are longer than {whole}; shorten one of them"
        )
    for name in SCHEDULED if settings["kfac"] else ():
        given = settings["kfac"][name]
        steps = [first for first, _ in given] if isinstance(given, list) else [1]
        if steps[0] != 1 or steps != sorted(set(steps)):
            yield f"kfac.{name}: given {given}, allowed are pairs of a step and a value, with ascending steps from 1"
    every, warmup, batch = (settings[key] for key in ("publish_best_every", "batch_size_warmup", "global_batch_size"))
    if every is not None and not 1 <= every <= total:
        yield f"publish_best_every: given {every}, allowed is 1 to steps, {total}"
    if warmup is not None and not 1 <= warmup["from"] <= batch:
        yield f"batch_size_warmup.from: given {warmup['from']}, allowed is 1 to global_batch_size, {batch}"
    if warmup is not None and not 0 < share_or_steps(warmup["steps"], total) <= total:
        allowed = f"a share of the steps above 0, or at most steps, {total}"
        yield f"batch_size_warmup.steps: given {warmup['steps']}, allowed is {allowed}"
