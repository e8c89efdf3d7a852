"""Reading of configuration files, several in order, and of settings given on a command line by their paths."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from bertline.console import BertlineError
from bertline.files import Json
from bertline.settings.configuration import load_schema, parse_yaml, read_yaml, schema_of

# The key of Snakemake's --config that contains a path and its value: Snakemake's own keys have no dots.
KEY = "set"
# The key for a checkpoint to keep that was requested by its name: see workflow/inputs/names.smk.
KEEP = "keep_step"
OWN = {KEY, KEEP}  # on a command line; a file has no such keys
STEP = re.compile(r"([0-9a-f]{16})-(\d+)")

WITHOUT_POINT = re.compile(r"[-+]?\d+e[-+]?\d{1,3}", re.IGNORECASE)


def read_configuration(files: Sequence[Path | str], schema_path: Path | str, settings: Iterable[str] = ()) -> Json:
    """Read a configuration, neither validated nor filled in. Raises BertlineError.

    Args:
        files: YAML files. A later one is merged over the earlier ones, as by Snakemake: mappings by their keys,
            anything else is replaced.
        schema_path: config/config.schema.yaml.
        settings: texts with PATH=VALUE, see `apply_settings`.
    """
    config: Any = {}
    for file in files:
        read = read_yaml(file)
        if len(files) > 1 and not isinstance(read, dict):
            raise BertlineError(f"{file}: no mapping of keys to values, which a configuration is")
        config = merge(config, read) if len(files) > 1 else read
    return apply_settings(config, settings, schema_path)


def merge(config: Any, over: Any) -> Any:
    """Return `config` with `over` merged over it: mappings by their keys, anything else is replaced."""
    if not isinstance(config, dict) or not isinstance(over, dict):
        return over
    return config | {key: merge(config.get(key), value) for key, value in over.items()}


def apply_arguments(config: Json, arguments: Iterable[str], schema_path: Path | str) -> Json:
    """Return a configuration with Snakemake's --config arguments applied.

    Args:
        config: as Snakemake made it: with the arguments merged in, but their inner values as text.
        arguments: KEY=VALUE, merged over the files; or set=PATH=VALUE, see `apply_settings`.
        schema_path: config/config.schema.yaml.
    """
    settings, given = [], set[str]()
    for argument in arguments:
        key, _, value = argument.partition("=")
        given.add(key)
        if key in config and key == KEY:
            settings.append(value)
        elif key in config:
            config = merge(config, {key: _parse(value, key, load_schema(schema_path)["properties"].get(key, {}))})
    config = {key: value for key, value in config.items() if key not in OWN & given}
    return apply_settings(config, settings, schema_path)


def steps_to_keep(arguments: Iterable[str]) -> list[tuple[str, int]]:
    """Return the checkpoints that Snakemake's --config arguments keep, as phases and steps. Raises BertlineError."""
    steps = []
    for key, _, value in (argument.partition("=") for argument in arguments):
        if key != KEEP:
            continue
        if not (match := STEP.fullmatch(value)):
            raise BertlineError(
                f"{KEEP}={value}: only jobs are given this; ask for a checkpoint by its name, as phase1@step-5"
            )
        steps.append((match[1], int(match[2])))
    return steps


def apply_settings(config: Any, settings: Iterable[str], schema_path: Path | str) -> Any:
    """Return a configuration with some settings replaced.

    Args:
        config: as read from its files.
        settings: texts of one or several PATH=VALUE, separated by spaces and quoted as in a shell. A path is the keys,
            joined by dots; a value is YAML, or plain text where the schema allows only text.
        schema_path: config/config.schema.yaml.

    Raises BertlineError for a path that leads nowhere, with the nearest keys. The values are validated with the rest.
    """
    schema = None
    for text in settings:
        for setting in _split(text):
            schema = schema or load_schema(schema_path)
            path, equals, value = setting.partition("=")
            if not equals or not path:
                raise BertlineError(f"{setting}: a setting is PATH=VALUE, as runs.demo.seed=2")
            if not isinstance(config, dict):
                raise BertlineError(f"{path}: the configuration is not a mapping of keys to values")
            config = _replace(config, path, value, schema, schema, ())
    return config


def _split(text: str) -> list[str]:
    """Split at spaces outside of brackets and of quotation marks; those around a whole PATH=VALUE are taken away."""
    words, quote, depth, before = [""], "", 0, " "
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and before in " =[{,:":  # and not an apostrophe
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character.isspace() and not quote and depth <= 0:
            words.append("")
        else:
            words[-1] += character
        before = character
    if quote:
        raise BertlineError(f"{text}: a quotation mark {quote} is missing")
    words = [word for word in words if word]
    return [word[1:-1] if word[0] in "\"'" and word[-1] == word[0] else word for word in words]


def _replace(config: Json, path: str, value: str, schema: Json, root: Json, above: tuple[str, ...]) -> Json:
    """Return a mapping in which the key at the `path` below it has another value.

    Names may contain dots: the longest key that the path begins with counts.
    """
    described = schema_of(schema, config, root)
    properties = described.get("properties", {})
    named = described.get("additionalProperties")  # the schema of entries with names of one's own
    known = [key for key in map(str, {**config, **properties}) if path == key or path.startswith(f"{key}.")]
    where = ".".join((*above, path))
    is_closed = "properties" in described or isinstance(named, dict)  # else validation alone finds what is wrong
    if not known and is_closed and ("." in path or not isinstance(named, dict)):
        near = difflib.get_close_matches(path.split(".")[0], allowed := sorted(map(str, {**config, **properties})), 1)
        meant = f"did you mean '{'.'.join((*above, near[0]))}'? " if near else ""
        new = ".".join((*above, path.split(".")[0]))
        whole = f"; set a new one as a whole: {new}={{KEY: VALUE}}" if isinstance(named, dict) and not near else ""
        raise BertlineError(
            f"{where}: there is no such key; {meant}the keys here are: {', '.join(allowed) or 'none'}{whole}"
        )
    key = max(known, key=len) if known else path if isinstance(named, dict) else path.split(".")[0]
    inner = properties.get(key, named if isinstance(named, dict) else {})
    if key == path:
        return config | {key: _parse(value, where, schema_of(inner, config.get(key), root))}
    below = {} if config.get(key) is None else config[key]
    if not isinstance(below, dict):
        raise BertlineError(f"{where}: {'.'.join((*above, key))} is {below!r}, which has no keys; set it as a whole")
    return config | {key: _replace(below, path.removeprefix(f"{key}."), value, inner, root, (*above, key))}


def _parse(value: str, where: str, schema: Json) -> Any:
    given = schema.get("type", [])
    types = {given} if isinstance(given, str) else set(given)
    try:
        read = parse_yaml(value)
    except yaml.YAMLError as error:
        if types == {"string"}:
            return value
        raise BertlineError(f"{where}: {value!r} is not YAML ({' '.join(str(error).split())})") from None
    # For YAML 1.1 it has a point: 1.0e-3.
    is_number = not types.isdisjoint(("number", "integer")) and "string" not in types
    if is_number and isinstance(read, str) and WITHOUT_POINT.fullmatch(read):
        number = float(read)
        return int(number) if "number" not in types and number.is_integer() else number
    # A date of a dump, 20261101, is text; on a command line the quotation marks are lost.
    return value if types == {"string"} and not isinstance(read, str) else read
