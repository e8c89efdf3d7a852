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


SHIPPED = sorted((ROOT / "config").glob("*.yaml"))
RUNS = 300 * TIMES


@pytest.mark.fault(row="configurations")
def test_every_text_of_a_shipped_configuration_may_be_hostile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record_property: Any
) -> None:
    """Some hundreds, drawn at random: planned as text, or refused in one line."""
    monkeypatch.chdir(copy_workflow(tmp_path / "project"))
    configs = {path.name: yaml.safe_load(path.read_text()) for path in SHIPPED if "schema" not in path.name}
    places = [(name, keys) for name, config in configs.items() for keys in paths_of(config)]
    draw = drawing("hostile values")
    for name, keys in draw.choices(places, k=RUNS):
        given = draw.choice([*HOSTILE, f"{keys[-1]}\n"])
        changed = with_value(configs[name], keys, given) if draw.random() < 0.7 else renamed(configs[name], keys, given)
        try:
            make_plan(changed, "config/config.schema.yaml", "config/models")
        except BertlineError as error:
            message = str(error)
            assert message.isprintable(), (name, keys, given, message)
            assert len(message) < 1000, (name, keys, given, message)
    assert not list(tmp_path.rglob("X"))
    record_property("faults", RUNS)


@pytest.mark.fault(row="configurations")
@pytest.mark.slow
def test_hostile_names_of_files_and_texts_go_through_the_whole_graph(tmp_path: Path, sample: Path) -> None:
    folder = copy_workflow(tmp_path / NAME)
    shutil.copytree(sample, folder / "resources/sample")
    data = folder / NAME
    data.mkdir()
    for number in range(4):
        shutil.copy(sample / "books/book-001.txt", data / f"{NAME}{number}.txt")
    write_external_weights(data / "weights")
    rows = [("abc abc", "x;touch X"), ("xyz xyz", "$(touch X)")] * 12
    (data / "t.jsonl").write_text("".join(json.dumps({NAME: text, "label; X": label}) + "\n" for text, label in rows))
    config = copy.deepcopy(SMALL_CONFIG)
    del config["corpora"]["wikipedia"]
    config["corpora"]["book"] |= {"paths": [f"{NAME}/{NAME}*.txt", f"{NAME}/{NAME}0.txt"][1:], "licence": NAME}
    config["datasets"]["small"] |= {"corpora": ["book"], "tokenizer": {"file": f"{NAME}/weights/vocab.txt"}}
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
