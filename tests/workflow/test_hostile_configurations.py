"""Configurations with the syntax of shells and templates in every value: plain text, or an error in one line."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fault_counts import TIMES, drawing
from snakemake_runs import ROOT, SMALL_CONFIG, TASK, copy_workflow, run_snakemake, write_external_weights

from bertline.console import BertlineError
from bertline.planning.resolve import make_plan

# What a shell, Snakemake, a format string or a template would do something with.
HOSTILE = [
    "a b",
    "'",
    '"',
    "$(touch X)",
    "`touch X`",
    "; touch X;",
    "& touch X &",
    "| tee X",
    "> X",
    "a\ntouch X\n",
    "{wildcards.x}",
    "{0.__class__}",
    "{{7*7}}",
    "%(x)s",
    "é 日本 \u202e",
    "../../X",
    "-x",
    "--output=X",
    "\\",
    "*",
    "~",
    "#",
    "x\0y",
    "",
]
NAME = 'it\'s a "b"; $(touch X) `touch X` & | > X é 日本'


def paths_of(value: Any, *keys: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to every text of a configuration, and to every mapping whose keys are names."""
    if isinstance(value, str):
        yield keys
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths_of(inner, *keys, key)


def with_value(config: dict[str, Any], keys: tuple[Any, ...], given: str) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    inner = changed
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = given
    return changed


def renamed(config: dict[str, Any], keys: tuple[Any, ...], given: str) -> dict[str, Any]:
    """Return a copy in which the last key of `keys` that is a text has another name."""
    changed = copy.deepcopy(config)
    last = max(number for number, key in enumerate(keys) if isinstance(key, str))
    inner = changed
    for key in keys[:last]:
        inner = inner[key]
    inner[given] = inner.pop(keys[last])
    return changed


def texts_of_schema(schema: Any, root: Any, *keys: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each text that the schema leaves open; NAME_OF_ONES_OWN represents a name."""
    if "$ref" in schema:
        yield from texts_of_schema(root["$defs"][schema["$ref"].rpartition("/")[2]], root, *keys)
    kinds = schema.get("type", [])
    if "string" in ([kinds] if isinstance(kinds, str) else kinds) and "enum" not in schema:
        yield keys
    inner = [(key, part) for key, part in schema.get("properties", {}).items()]
    inner += [(NAME_OF_ONES_OWN, schema.get("additionalProperties")), (0, schema.get("items"))]
    for key, part in ((key, part) for key, part in inner if isinstance(part, dict)):
        yield from texts_of_schema(part, root, *keys, key)
    for way in {"then", "else"} & schema.keys():
        yield from texts_of_schema(schema[way], root, *keys)


NAME_OF_ONES_OWN = "*"


def depth_of(config: Any, keys: tuple[Any, ...]) -> int:
    """How many of the keys a configuration has."""
    for number, key in enumerate(keys):
        if isinstance(config, list) and config and key == 0:
            config = config[0]
        elif isinstance(config, dict) and config and key == NAME_OF_ONES_OWN:
            return number + 1 + max(depth_of(part, keys[number + 1 :]) for part in config.values())
        elif isinstance(config, dict) and key in config:
            config = config[key]
        else:
            return number
    return len(keys)


def put(config: Any, keys: tuple[Any, ...], given: str) -> Any:
    """Return a configuration with the value at these keys, which are made where it has none."""
    if not keys:
        return given
    key, *others = keys
    if key == 0:
        return [put(config[0] if isinstance(config, list) and config else None, tuple(others), given)]
    config = dict(config) if isinstance(config, dict) else {}
    if key == NAME_OF_ONES_OWN:
        key = max(config, key=lambda name: depth_of(config[name], tuple(others)), default="mine")
    return config | {key: put(config.get(key), tuple(others), given)}


SHIPPED = {
    path.name: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / "config").glob("*.yaml"))
    if "schema" not in path.name
}
PLACES = [(name, keys) for name, config in SHIPPED.items() for keys in paths_of(config)]
SCHEMA = yaml.safe_load((ROOT / "config/config.schema.yaml").read_text())
TEXTS = sorted(set(texts_of_schema(SCHEMA, SCHEMA)), key=str)


def assert_planned_or_refused(config: dict[str, Any], what: Any) -> bool:
    """Assert that a configuration is planned or refused in one line; return whether it is planned."""
    try:
        make_plan(config, "config/config.schema.yaml", "config/models")
    except BertlineError as error:
        message = str(error)
        assert message.isprintable(), (what, message)
        assert len(message) < 1000, (what, message)
        return False
    return True


@pytest.mark.slow
@pytest.mark.fault(row="configurations")
def test_every_text_of_a_shipped_configuration_may_be_hostile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record_property: Any
) -> None:
    """In each place a value or a name drawn at random: planned as text, or refused in one line."""
    monkeypatch.chdir(copy_workflow(tmp_path / "project"))
    draw = drawing("hostile values")
    for name, keys in PLACES * TIMES:
        given = draw.choice([*HOSTILE, f"{keys[-1]}\n"])
        change = with_value if draw.random() < 0.7 else renamed
        assert_planned_or_refused(change(SHIPPED[name], keys, given), (name, keys, given))
    assert not list(tmp_path.rglob("X"))
    record_property("faults", len(PLACES) * TIMES)


@pytest.mark.fault(row="configurations")
@pytest.mark.slow
def test_every_text_that_the_schema_allows_may_be_hostile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record_property: Any
) -> None:
    """Also the keys that no shipped configuration has, in the one that has the most around them."""
    monkeypatch.chdir(copy_workflow(tmp_path / "project"))
    draw, planned = drawing("hostile texts of the schema"), 0
    for keys in TEXTS * TIMES:
        base = max(SHIPPED.values(), key=lambda config: depth_of(config, keys))
        for given in draw.sample(HOSTILE, 2):
            planned += assert_planned_or_refused(put(base, keys, given), (keys, given))
    assert len(TEXTS) > 60
    assert planned > len(TEXTS) // 8
    assert not list(tmp_path.rglob("X"))
    record_property("faults", 2 * len(TEXTS) * TIMES)


@pytest.mark.fault(row="configurations")
@pytest.mark.slow
def test_hostile_names_of_files_and_texts_go_through_the_whole_graph(tmp_path: Path, sample: Path) -> None:
    folder = copy_workflow(tmp_path / NAME)
    data = folder / NAME
    data.mkdir()
    shutil.copytree(sample / "mirror", data / "mirror")
    shutil.copy(sample / "books/book-001.txt", data / f"{NAME}.txt")
    write_external_weights(data / "weights")
    rows = [("abc abc", "x;touch X"), ("xyz xyz", "$(touch X)")] * 12
    (data / "t.jsonl").write_text("".join(json.dumps({NAME: text, "label; X": label}) + "\n" for text, label in rows))
    config = copy.deepcopy(SMALL_CONFIG)
    config |= {"mirrors": [f"{NAME}/mirror"], "contact": f"https://x.org/{NAME}"}
    config["corpora"]["book"] |= {"paths": [f"{NAME}/{NAME}.txt"], "licence": NAME}
    config["datasets"]["small"] |= {"tokenizer": {"file": f"{NAME}/weights/vocab.txt"}}
    table = {"kind": "classification", "train": f"{NAME}/t.jsonl", "dev": f"{NAME}/t.jsonl"}
    config["evaluation"] = {"tables": {"t": {**table, "texts": [NAME], "label": "label; X"}}}
    config["experiment"] = NAME
    finetune = {"tables": {"t": {**TASK, "epochs": 1, "batch_size": 4}}}
    config["runs"]["first"] |= {"description": NAME, "finetune": finetune}
    config["runs"]["theirs"] = {"pretrained": f"{NAME}/weights", "description": NAME, "finetune": finetune}
    model = "results/runs/theirs/table/t"
    config["predict"] = {"new": {"model": model, "inputs": [f"{NAME}/t.jsonl"], "columns": [NAME]}}
    config["features"] = {"new": {"model": f"{NAME}/weights", "inputs": [f"{NAME}/t.jsonl"], "columns": [NAME]}}
    config["features"]["new"]["layers"] = [-1]
    (folder / "small.yaml").write_text(yaml.safe_dump(config, allow_unicode=True))
    options = ("--profile", "profiles/local", "--configfile", "small.yaml")
    run_snakemake(folder, "all", "predict", "features", *options)
    assert not list(tmp_path.rglob("X"))
    predictions = (folder / "results/predictions/new.jsonl").read_text().splitlines()
    assert {json.loads(line)["prediction"] for line in predictions} <= {label for _, label in rows}


def test_a_checkout_with_braces_in_its_path_is_one_line(tmp_path: Path) -> None:
    """Snakemake formats the path in shell lines and in those of environments."""
    folder = copy_workflow(tmp_path / "a {y} b")
    finished = run_snakemake(folder, "--profile", "profiles/local", "--dry-run", check=False)
    assert finished.returncode == 1
    (line,) = [line for line in finished.stdout.splitlines() if "error" in line.lower()]
    assert line == f"error: {folder}: Snakemake takes braces in the path of a workflow for wildcards; rename the folder"
