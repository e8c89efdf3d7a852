"""Recipes: what is wrong is named in one line."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from fabricated_dataset import recipe

from bertline.console import BertlineError
from bertline.training.masking import Masking
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
        ("optimizer", "sgd", "settings.optimizer: given 'sgd', allowed are lamb, adamw, muon"),
        ("masking", {}, "settings.masking: the key 'probability' is missing"),
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
