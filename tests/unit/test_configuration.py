"""The configuration: one line for what is wrong, defaults from one place."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from bertline.configuration import fill_defaults, load, load_schema, strip_defaults
from bertline.console import BertlineError

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "config/config.schema.yaml"


@pytest.fixture
def config() -> dict:
    return yaml.safe_load((ROOT / "config/config.yaml").read_text())


@pytest.mark.parametrize("name", ["config.yaml", "demo.yaml"])
def test_the_shipped_configurations_are_valid(name: str) -> None:
    load(yaml.safe_load((ROOT / "config" / name).read_text()), SCHEMA)


def set_key(config: dict, key: str, value: object) -> dict:
    changed = copy.deepcopy(config)
    *parents, last = key.split("/")
    part = changed
    for parent in parents:
        part = part[parent]
    part[last] = value
    return changed


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("runs/bert-base/phases/phase1/steps", "many", "runs.bert-base.phases.phase1.steps: given 'many', allowed is"),
        ("runs/bert-base/phases/phase1/lerning_rate", 1, "unknown key 'lerning_rate'; did you mean 'learning_rate'?"),
        ("runs/bert-base/phases/phase1/optimizer", "sgd", "given 'sgd', allowed is one of lamb, adamw, muon"),
        ("runs/bert-base/phases/phase1/learning_rate", -1, "allowed is greater than 0"),
        ("datasets/wiki-books/held_out", 1.5, "datasets.wiki-books.held_out: given 1.5, allowed is less than 1"),
        ("datasets/wiki-books/tokenizer", {"train": "wordpiece"}, "the key 'vocab_size' is missing"),
        ("corpora/wikipedia/dump", 20261101, "corpora.wikipedia.dump: given 20261101, allowed is of type string"),
        ("corpora/wikipedia/source", "gopher", "given 'gopher', allowed is one of wikimedia, huggingface, files"),
        ("corpora", {}, "corpora: given {}, allowed is a mapping with at least 1 entry"),
        ("nodes", 4, "the top level: unknown key 'nodes'"),
    ],
)
def test_a_wrong_setting_is_one_line_naming_key_given_and_allowed(
    config: dict, key: str, value: object, expected: str
) -> None:
    with pytest.raises(BertlineError) as caught:
        load(set_key(config, key, value), SCHEMA)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_are_filled_in_at_every_depth(config: dict) -> None:
    filled, _ = load(config, SCHEMA)
    phase = filled["runs"]["bert-base"]["phases"]["phase2"]
    assert phase["betas"] == [0.9, 0.999]
    assert phase["masking"] == {
        "probability": 0.15,
        "max_predictions": 80,
        "whole_word": False,
        "mask_only": False,
    }
    assert filled["datasets"]["wiki-books"]["short_sequence_probability"] == 0.1
    assert filled["sequence_lengths"] == [128, 512]
    assert filled["runs"]["bert-base"]["finetune"]["glue"]["rte"]["epochs"] == 3


def test_stripping_defaults_undoes_filling_them(config: dict) -> None:
    schema = load_schema(SCHEMA)
    part = schema["$defs"]["phase"]
    given = {"sequence_length": 128, "global_batch_size": 8, "steps": 5, "learning_rate": 0.1, "warmup": 0.5}
    assert strip_defaults(fill_defaults(given, part, schema), part, schema) == given


def test_a_default_spelled_out_strips_to_nothing() -> None:
    schema = load_schema(SCHEMA)
    assert strip_defaults({"masking": {"probability": 0.15}}, schema["$defs"]["phase"], schema) == {}
