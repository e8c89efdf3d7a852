"""Recipes: what is wrong is named in one line."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from synthetic_dataset import recipe

from bertline.console import BertlineError
from bertline.encoding.masking import Masking
from bertline.training.recipe import parse_recipe
from bertline.training.started import frozen_recipe, write_started


def test_a_complete_recipe_is_accepted():
    assert parse_recipe(json.dumps(recipe())) == recipe()
    assert Masking(**recipe()["settings"]["masking"]) == Masking(0.15, None)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("steps", None, "settings: the key 'steps' is missing"),
        ("steps", "many", "settings.steps: given 'many', allowed is a whole number"),
        ("muon", {"momentun": 0.9}, "settings.muon: unknown key 'momentun'; did you mean 'momentum'?"),
        ("base_batch_size", True, "settings.base_batch_size: given true, allowed is a whole number or null"),
        ("batch_size_warmup", {"from": 17, "steps": 3}, "settings.batch_size_warmup.from: given 17, allowed is 1 to"),
    ],
)
def test_the_schema_and_the_rules_for_settings_together_are_enforced(key, value, message):
    changed = copy.deepcopy(recipe())
    if value is None:
        del changed["settings"][key]
    else:
        changed["settings"][key] = value
    with pytest.raises(BertlineError) as caught:
        parse_recipe(json.dumps(changed))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_setting_that_is_left_out_has_the_default_of_the_schema():
    given = recipe()
    del given["settings"]["betas"], given["settings"]["masking"]["probability"]
    assert parse_recipe(json.dumps(given)) == recipe()


def test_a_recipe_may_ramp_its_batch_and_scale_its_rate():
    given = recipe(batch_size_warmup={"from": 4, "steps": 0.5}, learning_rate_scaling="sqrt", base_batch_size=64)
    assert parse_recipe(json.dumps(given)) == given


def test_where_jsonschema_is_missing_a_recipe_is_taken_as_it_is(monkeypatch):
    """On a machine that only trains, with a recipe that the graph has checked."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert parse_recipe(json.dumps(recipe())) == recipe()


def test_text_that_is_not_json_is_refused():
    with pytest.raises(BertlineError, match="not JSON"):
        parse_recipe("{")


def test_the_frozen_recipe_describes_what_ran():
    frozen = frozen_recipe(recipe(), device=torch.device("cpu"), world_size=2, threads=3)
    assert frozen["settings"] == recipe()["settings"]
    assert frozen["versions"]["torch"] == torch.__version__
    assert frozen["world_size"] == 2
    assert isinstance(frozen["hardware"], str)
    assert frozen["hardware"]


def test_the_jobs_of_another_recipe_are_not_those_of_this_one(tmp_path, monkeypatch):
    """A folder that was copied to train something else keeps its earlier jobs out."""
    monkeypatch.setenv("BERTLINE_JOB", "slurm 1")
    assert write_started(tmp_path, recipe()) == ["slurm 1"]
    monkeypatch.setenv("BERTLINE_JOB", "slurm 2")
    assert write_started(tmp_path, recipe()) == ["slurm 1", "slurm 2"]
    monkeypatch.setenv("BERTLINE_JOB", "slurm 3")
    assert write_started(tmp_path, {**recipe(), "fingerprint": "f" * 16}) == ["slurm 3"]
