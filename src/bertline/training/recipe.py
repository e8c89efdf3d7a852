"""The recipe of a phase: everything that determines its result, as JSON with every default filled in."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import Json
from bertline.training.settings import check_packing, check_together

logger = logging.getLogger(__name__)

# Keys of every recipe; `settings` are checked against a definition in the configuration's schema.
KEYS: Json = {
    "fingerprint": {"type": "string"},
    "model": {"type": "object"},
    "seed": {"type": "integer"},
    "settings": {"type": "object"},
}
SCHEMA = Path(__file__).parents[3] / "config/config.schema.yaml"


def parse_recipe(text: str) -> Json:
    """Parse the recipe of a phase from JSON. Raises BertlineError naming the key that is missing or wrong."""
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise BertlineError(f"recipe: not JSON ({error}); give that of a planned phase or a recipe.json") from None
    recipe = complete_recipe(given, "phase")
    check_together(recipe["settings"], "recipe.settings")
    check_packing(recipe["settings"], recipe["model"], "recipe.settings")
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
