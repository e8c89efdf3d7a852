"""The configuration: one line for what is wrong, defaults from one place."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from bertline.console import BertlineError
from bertline.settings.configuration import fill_defaults, load, load_schema, read_yaml, strip_defaults
from bertline.settings.overrides import read_configuration

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "config/config.schema.yaml"


@pytest.fixture
def config() -> dict:
    return yaml.safe_load((ROOT / "config/config.yaml").read_text())


@pytest.mark.parametrize(("name", "task"), [("mrpc-cpu", "mrpc"), ("squad-cpu", "squad_v1")])
def test_the_recipes_for_cpus_do_not_train_in_a_precision_that_most_cpus_emulate(name: str, task: str) -> None:
    config, _ = load(yaml.safe_load((ROOT / f"config/{name}.yaml").read_text()), SCHEMA)
    tasks = config["runs"][name]["finetune"]
    assert (tasks[task] if task in tasks else tasks["glue"][task])["precision"] == "fp32"


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
        ("runs/bert-base/phases/phase1/optimizer", "adagrad", "given 'adagrad', allowed is one of lamb, adamw, muon"),
        ("runs/bert-base/phases/phase1/learning_rate", -1, "allowed is greater than 0"),
        ("datasets/wiki-books/held_out", 1.5, "datasets.wiki-books.held_out: given 1.5, allowed is less than 1"),
        ("datasets/wiki-books/tokenizer", {"train": "wordpiece"}, "the key 'vocab_size' is missing"),
        (
            "corpora/wikipedia/dump",
            20261101,
            "wikipedia.dump: given 20261101, allowed is text; put it in quotes",
        ),
        ("corpora", {}, "corpora: given {}, allowed is a mapping with at least 1 key"),
        ("nodes", 4, "the top level: unknown key 'nodes'; allowed are: contact"),
        ("runs/bert-base/phases/phase1/learning_rate", "6e-3", "given '6e-3', allowed is a number; write 0.006"),
        ("runs/bert-base/phases/phase1/learning_rate", "2e-5", "given '2e-5', allowed is a number; write 2.0e-05"),
        ("runs/bert-base/phases/phase1/learning_rate", "2.5E-5", "allowed is a number; write 2.5e-05"),
        ("runs/bert-base/phases/phase1/learning_rate", float("nan"), "phase1.learning_rate: given infinity or nan"),
        ("runs/bert-base/phases/phase1/steps", 7038.0, "given 7038.0, allowed is a whole number; write 7038"),
        ("runs/bert-base/phases/phase1/steps", 10**24, f"given {10**24}, allowed is at most 1000000000"),
        ("runs/bert-base/phases/phase1/corpus_weights", {"books": -1}, "books: given -1, allowed is at least 0"),
        ("runs/bert-base/finetune/squad_v1", None, "given nothing, allowed is a mapping of keys to values; {} uses"),
        ("runs/bert-base/seed", 1 << 64, f"seed: given {1 << 64}, allowed is at most {(1 << 64) - 1}"),
        ("datasets/wiki-books/seed", 1 << 64, f"seed: given {1 << 64}, allowed is at most {(1 << 64) - 1}"),
        ("corpora/wikipedia/language", False, "given false, allowed is text; put it in quotes"),
        ("mirrors", "mirror", "given 'mirror', allowed is a list; put it in [brackets]"),
        (
            "corpora/my books",
            {"source": "files", "paths": ["x"]},
            "corpora: given 'my books', allowed is text matching",
        ),
        ("contact", "university", "contact: given 'university', allowed is text matching"),
        (
            "evaluation/glue",
            {"sst": {"url": "https://x/y.zip"}},
            "evaluation.glue: given 'sst', allowed is one of",
        ),
        ("evaluation/glue/cola/url", "https://x/y/", "(A URL that ends in the file's name)"),
        ("corpora/wikipedia/templates", {"A": []}, "templates.A: given [], allowed is a list with 1 or more entries"),
        ("corpora/wikipedia/templates", {"A": 0}, "templates.A: given 0, allowed is any other"),
        ("corpora/wikipedia/templates", {"A": None}, "given nothing, allowed is a whole number or text or a list"),
        ("corpora/wikipedia/templates", {"A": ["x", -2]}, "templates.A.1: given -2, allowed is at least -1"),
        ("corpora/wikipedia/templates", {"A" * 51: 1}, f"given '{'A' * 51}', allowed is text of at most 50 characters"),
        ("runs/" + "a" * 201, {}, f"runs: given '{'a' * 201}', allowed is text of at most 200 characters"),
        ("corpora/wikipedia/punkt", "pk{x}", "corpora.wikipedia.punkt: given 'pk{x}', allowed is text matching"),
        ("corpora/wikipedia/punkt", "p<k_2>", "corpora.wikipedia.punkt: given 'p<k_2>', allowed is text matching"),
        ("evaluation/glue/cola/url", "https://x/<y>.zip", "given 'https://x/<y>.zip', allowed is text matching"),
    ],
)
def test_a_wrong_setting_is_one_line_naming_key_given_and_allowed(
    config: dict, key: str, value: object, expected: str
) -> None:
    with pytest.raises(BertlineError) as caught:
        load(set_key(config, key, value), SCHEMA)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["evaluation/glue/cola/url", "mirrors", "gutenberg_mirrors"])
@pytest.mark.parametrize(
    "address",
    [
        "u:hidden@host",
        "hidden@host",
        "u:hid/den@host",
        "u:hid den@host",
        "u:hid#den@host",
        "u:hid\\den@host",
        "u:p@hid",
    ],
)
def test_an_address_with_a_password_is_refused_without_showing_it(config: dict, key: str, address: str) -> None:
    given = f"https://{address}/x.zip"
    with pytest.raises(BertlineError, match=r"names and passwords into ~/\.netrc") as caught:
        load(set_key(config, key, [given] if key.endswith("mirrors") else given), SCHEMA)
    assert "hid" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["https://host/@me/x.zip", "http://[::1]:80/x.zip", "https://host:8080/a@b.zip"])
def test_an_at_sign_in_a_path_is_no_password(config: dict, address: str) -> None:
    load(set_key(config, "evaluation/glue/cola/url", address), SCHEMA)
    load(set_key(config, "mirrors", [address, "a folder/u:p@host"]), SCHEMA)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"runs:\n  a: 1\n  b: 2\n  a: 3\n", ", line 4, column 3: duplicate key 'a'"),
        (b"runs:\n\ta: 1\n", "line 2, column 1: found character '\\t' that cannot start any token; indent with spaces"),
        (b"runs: {a: 1\n", ", line 2, column 1: expected ',' or '}'"),
        (b"walltime: 24:00:00\n", ", line 1, column 11: YAML reads 24:00:00 as a number in base 60"),
        (b"a: 1\n---\nb: 2\n", ", line 2, column 1: a second document begins here; remove this line"),
        (b"steps: 017\n", ", line 1, column 8: YAML reads 017 as an octal number; leave out the first 0"),
        (b"# B\xfccher\n", ": byte 3 is not UTF-8; save the file as UTF-8"),
        (b"a: 2026-99-99\n", ", line 1, column 4: this is no timestamp (month must be"),
        (b"a: !!timestamp foo\n", ", line 1, column 4: this is no timestamp"),
        (b"a: !!int abc\n", ", line 1, column 4: this is no int"),
        (b"a: !!int\n", ", line 1, column 4: this is no int"),
        (b"a: !!float x\n", ", line 1, column 4: this is no float"),
        (b"a: !!bool maybe\n", ", line 1, column 4: this is no bool"),
        (b"a: " + b"9" * 5000 + b"\n", ", line 1, column 4: this is no int"),
        (b"a: 1\n? [a, b]\n: c\n", ", line 2, column 3: found unhashable key"),
        (b"a: " + b"[" * 3000, ", line 1, column 67: more than 64 levels"),
        (b"".join(b" " * n + b"a:\n" for n in range(2000)), ", line 64, column 64: more than 64 levels"),
        (b"runs: &a {x: *a}\n", ", line 1, column 14: an alias is within its own anchor"),
        (b"a: &a\n  <<: *a\n", ", line 2, column 7: an alias is within its own anchor"),
        (
            b"a0: &a0 [x, x, x, x, x, x, x, x]\n"
            + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 8)) for n in range(1, 12)),
            ", line 6, column 5: more than 100,000 values, its aliases written out; write fewer",
        ),
        (None, " does not exist; give the path of a YAML file"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_naming_it_and_the_place(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    path = tmp_path / "my.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BertlineError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_alias_is_what_its_anchor_is(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("a: &a {x: [1, 2]}\nb: [*a, *a]\nc: {<<: *a, y: 3}\n")
    assert read_yaml(path) == {"a": {"x": [1, 2]}, "b": [{"x": [1, 2]}] * 2, "c": {"x": [1, 2], "y": 3}}


@pytest.mark.parametrize("value", ["2026-99-99", "9" * 5000, "[" * 3000, "{? [a] : b}"])
def test_a_value_of_a_command_line_that_yaml_cannot_have_is_one_line(value: str) -> None:
    with pytest.raises(BertlineError, match=r"^runs\.demo\.seed: .* is not YAML \(") as caught:
        read_configuration([ROOT / "config/demo.yaml"], SCHEMA, [f"runs.demo.seed={value}"])
    assert str(caught.value).isprintable()


RECIPES = sorted(path for path in (ROOT / "config").glob("*.yaml") if not path.name.endswith(".schema.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_merged_keys_do_not_count_as_duplicates(path: Path) -> None:
    assert read_yaml(path) == yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_fits_the_schema(path: Path) -> None:
    filled, _ = load(read_yaml(path), SCHEMA)
    assert filled["runs"]


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
