"""Settings given by their paths on a command line, and several configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertline.console import BertlineError
from bertline.settings.configuration import SCHEMA, load
from bertline.settings.overrides import apply_arguments, apply_settings, read_configuration, steps_to_keep

CONFIG: dict[str, Any] = {
    "corpora": {
        "wikipedia": {"source": "wikimedia", "language": "en", "dump": "20261101"},
        "v1.5": {"source": "files", "paths": ["a"]},
    },
    "datasets": {
        "small": {
            "corpora": ["wikipedia", "v1.5"],
            "shards": 2,
            "tokenizer": {"train": "wordpiece", "vocab_size": 400},
        }
    },
    "runs": {
        "demo": {
            "dataset": "small",
            "model": "bert-tiny",
            "phases": {
                "phase1": {
                    "sequence_length": 128,
                    "global_batch_size": 8,
                    "steps": 4,
                    "learning_rate": 1e-3,
                    "optimizer": "adamw",
                }
            },
        }
    },
}  # fmt: skip
PHASE = ("runs", "demo", "phases", "phase1")


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("runs.demo.phases.phase1.steps=17", (*PHASE, "steps"), 17),
        ("runs.demo.phases.phase1.learning_rate=6.0e-3", (*PHASE, "learning_rate"), 6e-3),
        ("runs.demo.phases.phase1.learning_rate=6e-3", (*PHASE, "learning_rate"), 6e-3),
        ("runs.demo.phases.phase1.steps=1e3", (*PHASE, "steps"), 1000),
        ("datasets.small.shards=1e2", ("datasets", "small", "shards"), 100),
        ("runs.demo.description=1e-3", ("runs", "demo", "description"), "1e-3"),
        ("runs.demo.phases.phase1.masking.probability=0.2", (*PHASE, "masking"), {"probability": 0.2}),
        ("runs.demo.phases.phase1.betas=[0.9, 0.95]", (*PHASE, "betas"), [0.9, 0.95]),
        ("datasets.small.tokenizer={file: a.txt}", ("datasets", "small", "tokenizer"), {"file": "a.txt"}),
        ("corpora.wikipedia.dump=20261201", ("corpora", "wikipedia", "dump"), "20261201"),
        ('corpora.wikipedia.dump="20261201"', ("corpora", "wikipedia", "dump"), "20261201"),
        ("contact=https://us.org/?a=b", ("contact",), "https://us.org/?a=b"),
        ("experiment=007", ("experiment",), "007"),
        ("experiment=12:30", ("experiment",), "12:30"),
        ("corpora.v1.5.paths=[b/*.txt]", ("corpora", "v1.5", "paths"), ["b/*.txt"]),
        ('runs.demo.description="Anna\'s; $(touch it)"', ("runs", "demo", "description"), "Anna's; $(touch it)"),
        ("runs.demo.description=Anna's", ("runs", "demo", "description"), "Anna's"),
        ("'runs.demo.description=two words'", ("runs", "demo", "description"), "two words"),
        ("corpora.mine={source: files, paths: [c]}", ("corpora", "mine"), {"source": "files", "paths": ["c"]}),
        ("features={}", ("features",), {}),
    ],
)  # fmt: skip
def test_a_setting_replaces_one_value_typed_by_the_schema(setting: str, path: tuple[str, ...], value: Any) -> None:
    changed = apply_settings(CONFIG, [setting], SCHEMA)
    load(changed, SCHEMA)
    for key in path[:-1]:
        changed = changed[key]
    assert changed[path[-1]] == value
    assert type(changed[path[-1]]) is type(value)


def test_of_two_names_that_begin_alike_the_longer_counts() -> None:
    config = CONFIG | {"corpora": {"v1": {"source": "files", "paths": ["a"]}, **CONFIG["corpora"]}}
    corpora = apply_settings(config, ["corpora.v1.5.paths=[b] corpora.v1.paths=[c]"], SCHEMA)["corpora"]
    assert (corpora["v1.5"]["paths"], corpora["v1"]["paths"]) == (["b"], ["c"])


def test_one_text_has_several_settings_and_the_last_counts() -> None:
    text = 'datasets.small.shards=3 runs.demo.description="a b" datasets.small.shards=4'
    betas = "runs.demo.phases.phase1.betas=[0.9, 0.95]"
    changed = apply_settings(CONFIG, [f"{text} {betas}", "runs.demo.seed=7"], SCHEMA)
    assert changed["datasets"]["small"]["shards"] == 4
    assert changed["runs"]["demo"]["description"] == "a b"
    assert changed["runs"]["demo"]["phases"]["phase1"]["betas"] == [0.9, 0.95]
    assert changed["runs"]["demo"]["seed"] == 7
    assert CONFIG["datasets"]["small"]["shards"] == 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("runs.demo.phases.phase1.stepz=1", "no such key; did you mean 'runs.demo.phases.phase1.steps'"),
        ("runs.dmeo.seed=1", "runs.dmeo.seed: there is no such key; did you mean 'runs.demo'"),
        ("run.demo.seed=1", "did you mean 'runs'"),
        ("runs.demo.seed", "a setting is PATH=VALUE"),
        ("=3", "a setting is PATH=VALUE"),
        ("runs.demo.phases.phase1.betas=[0.9", "is not YAML"),
        ('contact="a', "a quotation mark \" is missing"),
        (
            "runs.demo.phases.phase1.corpus_weights.wiki.tokens=2",
            "none; set a new one as a whole: runs.demo.phases.phase1.corpus_weights.wiki={KEY: VALUE}",
        ),
        ("runs.demo.dataset.x=1", "runs.demo.dataset is 'small', which has no keys"),
    ],
)  # fmt: skip
def test_a_wrong_path_is_one_line_with_the_nearest(setting: str, message: str) -> None:
    with pytest.raises(BertlineError, match=message.replace("(", r"\(")):
        apply_settings(CONFIG, [setting], SCHEMA)


def test_a_value_of_the_wrong_type_is_refused_as_in_a_file() -> None:
    with pytest.raises(BertlineError, match=r"phase1\.steps: given 'many', allowed is a whole number"):
        load(apply_settings(CONFIG, ["runs.demo.phases.phase1.steps=many"], SCHEMA), SCHEMA)


def test_a_second_file_is_merged_over_the_first(tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(yaml.safe_dump(CONFIG))
    second.write_text("runs: {demo: {phases: {phase1: {steps: 9}}}}\ndatasets: {small: {corpora: [wikipedia]}}\n")
    config = read_configuration([first, second], SCHEMA, ["runs.demo.seed=3"])
    phase = config["runs"]["demo"]["phases"]["phase1"]
    assert phase == CONFIG["runs"]["demo"]["phases"]["phase1"] | {"steps": 9}
    assert config["datasets"]["small"]["corpora"] == ["wikipedia"]
    assert config["runs"]["demo"]["seed"] == 3


def test_the_mapping_of_a_config_argument_is_merged_with_its_types() -> None:
    argument = "runs={demo: {phases: {phase1: {steps: 9}}}}"
    as_snakemake_has_it = CONFIG | {"set": "runs.demo.seed=2"}
    config = apply_arguments(as_snakemake_has_it, [argument, "set=runs.demo.seed=3"], SCHEMA)
    assert config["runs"]["demo"]["phases"]["phase1"]["steps"] == 9
    assert config["runs"]["demo"]["seed"] == 3
    assert "set" not in config


@pytest.mark.parametrize("key", ["set", "keep_step"])
def test_a_key_of_the_command_line_is_unknown_in_a_file(key: str) -> None:
    config = CONFIG | {key: "runs.demo.seed=2"}
    with pytest.raises(BertlineError, match=f"unknown key '{key}'"):
        load(apply_arguments(config, ["experiment=other"], SCHEMA), SCHEMA)


def test_the_checkpoints_that_jobs_are_to_keep_are_arguments() -> None:
    assert steps_to_keep(["experiment=a", f"keep_step={'a' * 16}-50"]) == [("a" * 16, 50)]
    with pytest.raises(
        BertlineError, match=r"keep_step=zz: only jobs are given this; ask for a checkpoint by its name"
    ):
        steps_to_keep(["keep_step=zz"])


def test_a_number_of_json_needs_no_point(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    values = {"a": 2e-05, "b": 1.5, "c": "2e-05", "d": -3, "e": [1e22]}
    path.write_text(json.dumps(values))
    assert "2e-05" in path.read_text()
    assert read_configuration([path], SCHEMA) == values
