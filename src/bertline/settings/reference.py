"""The keys of a configuration as a page in Markdown, from its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bertline.files import Json
from bertline.settings.configuration import definition

HEAD = "| key | value | default | |\n|---|---|---|---|\n"
OR = "| or | | | |\n"
NUMBERS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}
TYPES = {
    "string": "text",
    "integer": "whole number",
    "boolean": "`true` or `false`",
    "object": "mapping",
    "array": "list",
    "null": "`null`",
}


def describe_schema(schema: Json) -> str:
    """Return tables of all keys: of the top level, then of every definition that has keys of its own."""
    sections = [f"## The top level\n\n{_table(schema, schema)}"]
    for name, entry in schema["$defs"].items():
        tables = [_table(form, schema) for form in _forms(entry) if "properties" in form]
        others = [_value(form, schema) for form in _forms(entry) if "$ref" in form]
        if not tables and not others:
            continue
        parts = [f"## {name}", *([entry["description"]] if "description" in entry else [])]
        if others and tables:
            parts.append(f"{', '.join(others)}, or these keys:")
        elif others:
            parts.append(f"One of: {', '.join(others)}." if others[1:] else f"See {others[0]}.")
        sections.append("\n\n".join([*parts, *tables]))
    return "\n\n".join(section.rstrip() for section in sections) + "\n"


def _forms(entry: Json) -> Iterator[Json]:
    """Yield the definition itself, or the forms between which it chooses by a condition."""
    forms = [entry["then"], entry["else"]] if "if" in entry else []
    if any(form.keys() & {"properties", "$ref", "if"} for form in forms):
        for form in forms:
            yield from _forms(form)
    elif entry:
        yield entry


def _table(entry: Json, root: Json) -> str:
    return HEAD + "".join(_rows(entry, root, ""))


def _rows(entry: Json, root: Json, above: str) -> Iterator[str]:
    """Yield a row for every key of a mapping, and for the keys of mappings in it that have no name of their own."""
    in_both = set(entry.get("then", {}).get("required", ())) & set(entry.get("else", {}).get("required", ()))
    for key, inner in entry.get("properties", {}).items():
        whole = _whole(inner, root)
        text = (inner if _has_keys(inner, root) else whole).get("description", "")
        default = _code(whole["default"]) if "default" in whole else ""
        required = key in {*entry.get("required", ()), *in_both}
        cells = (f"`{above}{key}`", _value(inner, root), "required" if required else default, text)
        yield f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |\n"
        if not _has_keys(inner, root):
            yield from _rows(whole, root, f"{above}{key}.")
            for part, place in (("items", "[]"), ("additionalProperties", ".NAME")):
                if isinstance(whole.get(part), dict):
                    yield from _rows(whole[part], root, f"{above}{key}{place}.")
    then = {"required": [*entry.get("if", {}).get("required", ()), *entry.get("then", {}).get("required", ())]}
    forms = [*entry.get("anyOf", ()), *entry.get("oneOf", ())]
    forms += [entry[part] | (then if part == "then" else {}) for part in ("then", "else") if part in entry]
    tables = (list(_rows(form, root, above)) for form in forms)
    for number, rows in enumerate(filter(None, tables)):
        yield from [OR, *rows] if number else rows


def _whole(inner: Json, root: Json) -> Json:
    """Return a key's schema with what it refers to."""
    return definition(root, _name(inner["$ref"])) | inner if "$ref" in inner else inner


def _has_keys(inner: Json, root: Json) -> bool:
    return "$ref" in inner and any(
        "properties" in form or "$ref" in form for form in _forms(definition(root, _name(inner["$ref"])))
    )


def _value(inner: Json, root: Json) -> str:
    if _has_keys(inner, root):
        return _link(inner["$ref"])
    whole = _whole(inner, root)
    if "const" in whole:
        return _code(whole["const"])
    if "enum" in whole:
        return ", ".join(map(_code, whole["enum"]))
    if "anyOf" in whole or "oneOf" in whole:
        return " or ".join(_value(form, root) for form in [*whole.get("anyOf", ()), *whole.get("oneOf", ())])
    others = whole.get("additionalProperties")
    if isinstance(others, dict) and "$ref" in others:
        names = _whole(whole.get("propertyNames", {}), root).get("enum")
        keys = f"any of {', '.join(map(_code, names))}" if names else "names of your own"
        return f"{keys}, each {_link(others['$ref'])}"
    if "prefixItems" in whole:
        return f"[{', '.join(_value(part, root) for part in whole['prefixItems'])}]"
    if "items" in whole:
        entries = f"list {'from' if 'enum' in whole['items'] else 'of:'} {_value(whole['items'], root)}"
        single = [name for name in whole["type"] if name != "array"] if isinstance(whole.get("type"), list) else []
        without = {key: value for key, value in whole.items() if key != "items"}
        return f"{_value({**without, 'type': single}, root)}, or {entries}" if single else entries
    types = whole.get("type", [])
    named = " or ".join(TYPES.get(name, name) for name in ([types] if isinstance(types, str) else types))
    ranges = [text.format(whole[key]) for key, text in NUMBERS.items() if key in whole]
    return f"{named} {' and '.join(ranges)}".strip()


def _name(reference: str) -> str:
    return reference.rsplit("/", 1)[1]


def _link(reference: str) -> str:
    return f"[{_name(reference)}](#{_name(reference)})"


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
