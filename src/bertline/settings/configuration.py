"""The configuration: validated against config/config.schema.yaml and completed with defaults."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError

from bertline.console import BertlineError
from bertline.files import SCHEMA, Json

MAX_YAML_LEVELS = 64  # a configuration has eight
MANY_VALUES = 20  # of which a message names the nearest
MAX_YAML_NODES = 100_000  # values, keys, lists and mappings
# JSON Schema accepts 8.0 as an integer, but it would have another fingerprint than 8.
_WHOLE_NUMBERS = Draft202012Validator.TYPE_CHECKER.redefine(
    "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
)


def _pattern(validator: Any, pattern: str, instance: Any, _: Json) -> Iterator[ValidationError]:
    # In JSON Schema, $ is the end. In Python it is also the place before a last line break.
    if validator.is_type(instance, "string") and not re.search(pattern.replace("$", r"\Z"), instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _address(validator: Any, _: bool, instance: Any, __: Json) -> Iterator[ValidationError]:
    """The schema's `address: true`: of http and https, without a user name and a password."""
    if not validator.is_type(instance, "string") or not instance.lower().startswith(("http://", "https://")):
        return
    if not _ADDRESS.match(instance):
        secret = "has a user name, a password or no host" if "@" in instance else "has no host that can be asked"
        yield ValidationError(f"this address {secret}; {ADDRESS_ADVICE}")


ADDRESS_ADVICE = "write https://host/..., and names and passwords into ~/.netrc"
# A name before an @, or a name and a password, which may contain anything; a port is no password.
_CREDENTIALS = re.compile(r"(?i)https?:/{1,2}([^\s/?#@]*@|[^\s/?#@:]+:(?![0-9]{1,5}([/?#]|\Z))\S*@)")
# A host and a port; an @ before the first slash is behind a user name.
_ADDRESS = re.compile(r"(?i)https?://(\[[0-9a-f:.]+\]|[^\s/?#@:\\\[\]]+)(:[0-9]{1,5})?(?=[/?#]|\Z)[^\s\\]*\Z")
_Validator: Any = validators.extend(
    Draft202012Validator, {"pattern": _pattern, "address": _address}, type_checker=_WHOLE_NUMBERS
)


class _Loader(yaml.SafeLoader):
    """Loader that rejects what YAML silently accepts: duplicate keys, keeping the last, and 24:00 as 1,440.

    Also what a hostile file may have: aliases that expand to millions of values, or for a value around themselves, and
    scalars that their tag cannot be.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._sizes: dict[int, int] = {}  # of nodes, by identity, with the nodes of their aliases

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark, is_alias = self.peek_event().start_mark, self.check_event(yaml.AliasEvent)
        if self._depth == MAX_YAML_LEVELS:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_YAML_LEVELS} levels", problem_mark=mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if is_alias and id(node) not in self._sizes:
            raise yaml.MarkedYAMLError(problem="an alias is within its own anchor", problem_mark=mark)
        if node is None or is_alias:
            return node
        if isinstance(node, yaml.ScalarNode):
            self._sizes[id(node)] = 1
            return node
        parts = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        size = self._sizes[id(node)] = 1 + sum(self._sizes[id(part)] for part in parts)
        if size > MAX_YAML_NODES:
            problem = f"more than {MAX_YAML_NODES:,} values, its aliases written out; write fewer"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"duplicate key '{key.value}'", problem_mark=key.start_mark)
            seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError) as error:  # of a date, a tag, too many digits
            kind = node.tag.rpartition(":")[2]
            problem = f"this is no {kind} ({error}); correct it, or put it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if ":" in node.value:
            problem = f"YAML reads {node.value} as a number in base 60; write a plain number, or put it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        if _OCTAL.fullmatch(node.value):
            problem = f"YAML reads {node.value} as an octal number; leave out the first 0, or put it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return int(super().construct_yaml_int(node))


_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


class _JsonLoader(_Loader):
    """Loader of JSON, whose numbers need no point and no sign of the exponent. Snakemake reads them as numbers, too."""


_JSON_NUMBER = re.compile(r"-?\d+(\.\d+)?[eE][-+]?\d+\Z")
_JsonLoader.add_implicit_resolver("tag:yaml.org,2002:float", _JSON_NUMBER, list("-0123456789"))


def read_yaml(path: Path | str) -> Any:
    """Read a YAML file, or JSON in a file named so. Raises BertlineError with file, line and column."""
    try:
        loader = _JsonLoader if Path(path).suffix == ".json" else _Loader
        return yaml.load(Path(path).read_text(encoding="utf-8"), loader)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        raise BertlineError(f"{path} does not exist; give the path of a YAML file") from None
    except IsADirectoryError:
        raise BertlineError(f"{path} is a folder; give the path of a YAML file") from None
    except UnicodeDecodeError as error:
        raise BertlineError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = str(error.problem or error.context)
        hint = "; indent with spaces, not tabs" if "'\\t'" in problem else ""
        if "another document" in problem:
            problem = "a second document begins here; remove this line, or make two files"
        raise BertlineError(f"{path}{where}: {problem}{hint}") from None
    except yaml.YAMLError as error:
        raise BertlineError(f"{path}: not YAML ({' '.join(str(error).split())})") from None


def parse_yaml(text: str) -> Any:
    """Parse YAML as `read_yaml` does. Raises yaml.YAMLError."""
    return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader


def load_schema(path: Path | str) -> Json:
    """Read the schema (YAML)."""
    # The parser in C is ten times faster; PyYAML may have been built without it.
    return yaml.load(Path(path).read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506


def validate(config: Json, schema: Json, *, what: str = "configuration") -> None:
    """Raise BertlineError with one line for the first problem in `what`: the key, the given and the allowed values."""
    if errors := list(_Validator(schema).iter_errors(config)):
        errors.sort(key=lambda error: [str(key) for key in error.absolute_path])
        others = len({_key(error) for error in errors}) - 1
        more = f" (and {others} more)" if others else ""
        raise BertlineError(f"{what}: {_explain(errors[0])}{more}")
    if key := _first(config, _is_infinite):
        raise BertlineError(f"{what}: {key}: given infinity or nan, allowed is a finite number")
    if key := _first(config, _has_credentials):
        raise BertlineError(f"{what}: {key}: this address has a user name or a password; {ADDRESS_ADVICE}")


def _first(value: Any, is_wrong: Callable[[Any], bool], *keys: str) -> str:
    """Return the dotted key of the first value that is wrong; else ''."""
    if is_wrong(value):
        return ".".join(keys)
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next((found for key, part in inner if (found := _first(part, is_wrong, *keys, str(key)))), "")


def _is_infinite(value: Any) -> bool:
    # JSON, and so a fingerprint, cannot represent infinity and NaN.
    return isinstance(value, float) and not math.isfinite(value)


def _has_credentials(value: Any) -> bool:
    # Every text is copied: into records, command lines, reports or MLflow.
    return isinstance(value, str) and _CREDENTIALS.search(value) is not None


def _key(error: ValidationError) -> str:
    return ".".join(str(part) for part in error.absolute_path) or "the top level"


def _explain(error: ValidationError) -> str:
    given: Any = error.instance
    allowed: Any = error.validator_value
    schema: Any = error.schema
    kind = str(error.validator)
    if kind == "anyOf":
        forms = list(_of_forms(error))
        of_type = [one for one in forms if one.validator != "type" or one.absolute_path != error.absolute_path]
        if of_type:
            return _explain(of_type[0])
        kind, allowed = "type", [one.validator_value for one in forms]
    if kind == "additionalProperties" and isinstance(given, dict):
        known = list(schema["properties"])
        unknown = next(name for name in given if name not in known)
        close = difflib.get_close_matches(str(unknown), known, n=1)
        hint = f"did you mean '{close[0]}'? Allowed" if close else "allowed"
        return f"{_key(error)}: unknown key {unknown!r}; {hint} are: {', '.join(known)}"
    if kind == "required":
        missing = next(name for name in allowed if name not in given)
        return f"{_key(error)}: the key '{missing}' is missing; required are: {', '.join(allowed)}"
    if kind == "address":  # not what is given: it may be a password
        return f"{_key(error)}: {error.message}"
    wanted = {
        "enum": "one of {}",
        "const": "{}",
        "pattern": "text matching {}",
        "minimum": "at least {}",
        "maximum": "at most {}",
        "exclusiveMinimum": "greater than {}",
        "exclusiveMaximum": "less than {}",
        "minProperties": "a mapping with at least {} key",
        "minItems": "a list with {} or more entries",
        "maxItems": "a list with at most {} entries",
        "minLength": "text of at least {} characters",
        "maxLength": "text of at most {} characters",
        "uniqueItems": "a list without repetitions",
        "not": "any other",
    }.get(kind, error.message.replace("{", "{{").replace("}", "}}"))
    values = ", ".join(map(str, allowed)) if isinstance(allowed, list) else str(allowed)
    described = ""
    if kind == "enum":
        if len(allowed) > MANY_VALUES:
            near = difflib.get_close_matches(str(given), map(str, allowed), n=3, cutoff=0)
            values = f"{len(allowed)} values, the nearest {', '.join(near)}"
        if all(isinstance(value, str) for value in allowed):
            described = _how_to_write(given, ["string"], schema)
    elif kind == "type":
        types = allowed if isinstance(allowed, list) else [allowed]
        wanted = " or ".join(TYPES[name] for name in types)
        described = _how_to_write(given, types, schema)
    elif kind == "pattern" and "description" in schema:
        described = f" ({schema['description'].rstrip('.')})"
    return f"{_key(error)}: given {_shown(given)}, allowed is {wanted.format(values)}{described}"


def _of_forms(error: ValidationError) -> Iterator[ValidationError]:
    """Yield what is wrong with a value for each of the forms of which it has none."""
    for inner in error.context or ():
        is_form = inner.validator == "anyOf" and inner.absolute_path == error.absolute_path
        yield from _of_forms(inner) if is_form else [inner]


def check_allowed(where: str, given: str | int, allowed: Iterable[str | int], what: str) -> None:
    """Raise BertlineError if the value of the key `where` is not one of the `allowed` ones, which are `what`."""
    if given not in (known := list(allowed)):
        names = ", ".join(map(str, known)) or "there are none"
        raise BertlineError(f"{where}: given {_shown(given)}, allowed are {what}: {names}")


TYPES = {
    "object": "a mapping of keys to values",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def _how_to_write(given: Any, types: list[str], schema: Json) -> str:
    """Return advice on a value that YAML reads as another type than intended; empty if there is none."""
    if given is None and "object" in types and not {"required", "minProperties"} & schema.keys():
        return "; {} uses all defaults"
    if given is not None and not isinstance(given, dict | list | str) and "string" in types:
        return "; put it in quotes"
    if "array" in types and not isinstance(given, dict | None):
        return "; put it in [brackets]"
    try:
        number = float(given)
    except (TypeError, ValueError):
        return ""
    if not math.isfinite(number):
        return ""
    if number.is_integer() and {"integer", "number"} & set(types):
        return f"; write {int(number)}"
    # For YAML 1.1 a number with an exponent has a point: 2.0e-05.
    written = re.sub(r"^([^.]*)e", r"\1.0e", str(number))
    return f"; write {written}" if "number" in types else ""


def _shown(given: Any) -> str:
    """Return a value roughly as written in the file."""
    if given is None:
        return "nothing"
    if isinstance(given, bool):
        return str(given).lower()
    return repr(given) if isinstance(given, str | dict | list) else str(given)


def fill_defaults(value: Any, schema: Json, root: Json) -> Any:
    """Return a copy of a valid `value` in which absent keys have their defaults."""
    schema = schema_of(schema, value, root)
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    filled = {
        key: fill_defaults(given, properties.get(key, others if isinstance(others, dict) else {}), root)
        for key, given in value.items()
    }
    for key, inner in properties.items():
        default = schema_of(inner, None, root).get("default", _ABSENT)
        if key not in value and default is not _ABSENT:
            filled[key] = fill_defaults(default, inner, root)
    return filled


def strip_defaults(value: Any, schema: Json, root: Json) -> Any:
    """Return a copy of a valid `value` without the keys that equal their defaults, for fingerprints.

    A setting that is added later, with a default that describes the present behaviour, then changes no fingerprint.
    """
    schema = schema_of(schema, value, root)
    if not isinstance(value, dict):
        return value
    stripped = {}
    for key, given in value.items():
        inner = schema.get("properties", {}).get(key, {})
        short = strip_defaults(given, inner, root)
        default = schema_of(inner, given, root).get("default", _ABSENT)
        if default is _ABSENT or short != strip_defaults(default, inner, root):
            stripped[key] = short
    return stripped


_ABSENT = object()


def schema_of(schema: Json, value: Any, root: Json) -> Json:
    """Follow `$ref` and `if`/`then`/`else` to the part of the schema that describes `value`."""
    while "$ref" in schema or "if" in schema:
        if "$ref" in schema:
            own = {key: schema[key] for key in ("default",) if key in schema}
            schema = definition(root, schema["$ref"].rsplit("/", 1)[1]) | own
        else:
            holds = _Validator(schema["if"]).is_valid(value)
            chosen = schema["then"] if holds else schema["else"]
            schema = {**{key: part for key, part in schema.items() if key not in ("if", "then", "else")}, **chosen}
    return schema


def definition(root: Json, name: str) -> Json:
    """Return the schema's definition called `name`."""
    return root["$defs"][name]


def defaults_of(name: str) -> Json:
    """Return the defaults of the settings that config/config.schema.yaml defines under `name`."""
    schema = load_schema(SCHEMA)
    return dict(fill_defaults({}, definition(schema, name), schema))


def load(config: Json, schema_path: Path | str, *, what: str = "configuration") -> tuple[Json, Json]:
    """Validate `config`; return it with defaults filled in, and the schema. Raises BertlineError naming `what`."""
    schema = load_schema(schema_path)
    validate(config, schema, what=what)
    return fill_defaults(config, schema, schema), schema
