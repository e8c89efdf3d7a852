"""Recipes: what is wrong is named in one line."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from synthetic_dataset import recipe

from bertline.console import BertlineError
from bertline.encoding.masking import Masking
from bertline.training.recipe import frozen_recipe, masking_of, parse_recipe


def test_a_complete_recipe_is_accepted():
    assert parse_recipe(json.dumps(recipe())) == recipe()
    assert masking_of(recipe()["settings"]) == Masking(0.15, None)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("steps", None, "the key 'steps' is missing"),
        ("steps", "many", "settings.steps: given 'many', allowed is of type int"),
        ("steps", 0, "settings.steps: given 0, allowed is at least 1"),
        ("optimizer", "sgd", "settings.optimizer: given 'sgd', allowed are lamb, adamw, muon, lion"),
        ("masking", {}, "settings.masking: the key 'probability' is missing"),
        ("lamb_variant", "adam", "settings.lamb_variant: given 'adam', allowed are nvidia, paper"),
        ("muon", {"momentum": 0.9}, "settings.muon: the key 'nesterov' is missing"),
        ("base_batch_size", True, "settings.base_batch_size: given True, allowed is of type int or NoneType"),
        ("batch_ramp", {"from": 4}, "settings.batch_ramp: the key 'steps' is missing"),
        ("batch_ramp", {"from": 4.5, "steps": 3}, "settings.batch_ramp.from: given 4.5, allowed is of type int"),
        ("batch_ramp", {"from": 17, "steps": 3}, "settings.batch_ramp.from: given 17, allowed is 1 to global_batch"),
        ("batch_ramp", {"from": 4, "steps": 31}, "settings.batch_ramp.steps: given 31, allowed is"),
        ("end_learning_rate", 0.03, "end_learning_rate: given 0.03, allowed is at most learning_rate, 0.02"),
        ("learning_rate_scaling", "sqrt", "settings.base_batch_size: missing, but learning_rate_scaling 'sqrt' wants"),
    ],
)
def test_a_wrong_setting_is_named(key, value, message):
    changed = copy.deepcopy(recipe())
    if value is None:
        del changed["settings"][key]
    else:
        changed["settings"][key] = value
    with pytest.raises(BertlineError, match=message):
        parse_recipe(json.dumps(changed))


def test_a_recipe_may_ramp_its_batch_and_scale_its_rate():
    given = recipe(batch_ramp={"from": 4, "steps": 0.5}, learning_rate_scaling="sqrt", base_batch_size=64)
    assert parse_recipe(json.dumps(given)) == given


def test_text_that_is_not_json_is_refused():
    with pytest.raises(BertlineError, match="not JSON"):
        parse_recipe("{")


def test_the_frozen_recipe_says_what_ran():
    frozen = frozen_recipe(recipe(), device=torch.device("cpu"), world_size=2, threads=3)
    assert frozen["settings"] == recipe()["settings"]
    assert frozen["versions"]["torch"] == torch.__version__
    assert frozen["world_size"] == 2
    assert isinstance(frozen["hardware"], str)
    assert frozen["hardware"]
