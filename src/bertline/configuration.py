"""The configuration a person writes: checked against config/config.schema.yaml, with every default filled in."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from bertline.console import BertlineError

Json = dict[str, Any]


def load_schema(path: Path | str) -> Json:
    """Read the schema (YAML)."""
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def validate(config: Json, schema: Json, *, what: str = "configuration") -> None:
    """Raise BertlineError with one line for the first thing wrong in `what`: the key, what was given and is allowed."""
    errors = [_deepest(error) for error in Draft202012Validator(schema).iter_errors(config)]
    if not errors:
        return
    errors.sort(key=lambda error: [str(key) for key in error.absolute_path])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    raise BertlineError(f"{what}: {_explain(errors[0])}{more}")


def _deepest(error: ValidationError) -> ValidationError:
    """The error that names the wrong key, where several forms are allowed and none matched."""
    while error.context:
        deepest = max(error.context, key=lambda inner: len(inner.absolute_path))
        if len(deepest.absolute_path) <= len(error.absolute_path):
            return error
        error = deepest
    return error


def _explain(error: ValidationError) -> str:
    key = ".".join(str(part) for part in error.absolute_path) or "the top level"
    given: Any = error.instance
    allowed: Any = error.validator_value
    schema: Any = error.schema
    if error.validator == "additionalProperties" and isinstance(given, dict):
        known = list(schema["properties"])
        unknown = next(name for name in given if name not in known)
        close = difflib.get_close_matches(str(unknown), known, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        return f"{key}: unknown key '{unknown}'{hint} Allowed are: {', '.join(known)}"
    if error.validator == "required":
        missing = next(name for name in allowed if name not in given)
        return f"{key}: the key '{missing}' is missing; required are: {', '.join(allowed)}"
    wanted = {
        "type": "of type {}",
        "enum": "one of {}",
        "const": "{}",
        "pattern": "text matching {}",
        "minimum": "at least {}",
        "maximum": "at most {}",
        "exclusiveMinimum": "greater than {}",
        "exclusiveMaximum": "less than {}",
        "minProperties": "a mapping with at least {} entry",
        "minItems": "a list with at least {} entry",
        "maxItems": "a list with at most {} entries",
        "minLength": "text of at least {} characters",
        "uniqueItems": "a list without repetitions",
        "oneOf": "one of the forms in config/config.schema.yaml",
    }.get(str(error.validator), error.message)
    values = ", ".join(map(str, allowed)) if isinstance(allowed, list) else str(allowed)
    return f"{key}: given {given!r}, allowed is {wanted.format(values)}"


def fill_defaults(value: Any, schema: Json, root: Json) -> Any:
    """A copy of a valid `value` in which every absent key that has a default has it."""
    schema = _resolve(schema, value, root)
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    filled = {
        key: fill_defaults(given, properties.get(key, others if isinstance(others, dict) else {}), root)
        for key, given in value.items()
    }
    for key, inner in properties.items():
        default = _resolve(inner, None, root).get("default", _ABSENT)
        if key not in value and default is not _ABSENT:
            filled[key] = fill_defaults(default, inner, root)
    return filled


def strip_defaults(value: Any, schema: Json, root: Json) -> Any:
    """A copy of a valid `value` without the keys that equal their defaults: what enters a fingerprint.

    A setting that is added later, with the default that describes today's behaviour, then changes no fingerprint.
    """
    schema = _resolve(schema, value, root)
    if not isinstance(value, dict):
        return value
    stripped = {}
    for key, given in value.items():
        inner = schema.get("properties", {}).get(key, {})
        short = strip_defaults(given, inner, root)
        default = _resolve(inner, given, root).get("default", _ABSENT)
        if default is _ABSENT or short != strip_defaults(default, inner, root):
            stripped[key] = short
    return stripped


_ABSENT = object()


def _resolve(schema: Json, value: Any, root: Json) -> Json:
    """Follow `$ref` and `if`/`then`/`else` to the part of the schema that describes `value`."""
    while "$ref" in schema or "if" in schema:
        if "$ref" in schema:
            schema = definition(root, schema["$ref"].rsplit("/", 1)[1])
        else:
            holds = Draft202012Validator(schema["if"]).is_valid(value)
            chosen = schema["then"] if holds else schema["else"]
            schema = {**{key: part for key, part in schema.items() if key not in ("if", "then", "else")}, **chosen}
    return schema


def definition(root: Json, name: str) -> Json:
    """The schema's part called `name`."""
    return root["$defs"][name]


def load(config: Json, schema_path: Path | str) -> tuple[Json, Json]:
    """Validate `config`; return it with defaults filled in, and the schema. Raises BertlineError."""
    schema = load_schema(schema_path)
    validate(config, schema)
    return fill_defaults(config, schema, schema), schema
