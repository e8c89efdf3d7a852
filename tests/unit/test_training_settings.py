"""Settings that contradict each other, or that another one leaves without effect, are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_dataset import recipe

from bertline.console import BertlineError
from bertline.settings.configuration import definition, fill_defaults, load_schema, strip_defaults
from bertline.training.recipe import check_together, check_used

SCHEMA = load_schema(Path(__file__).parents[2] / "config/config.schema.yaml")
NEEDED = {"sequence_length": 32, "global_batch_size": 16, "steps": 30, "learning_rate": 0.02}


def check(model=None, **changes):
    """What the plan does with a phase as a person wrote it."""
    part = definition(SCHEMA, "phase")
    settings = fill_defaults({**NEEDED, **changes}, part, SCHEMA)
    check_used(strip_defaults(settings, part, SCHEMA), settings, part, "phase1")
    check_together(settings, model or {}, "phase1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lamb_variant": "paper", "optimizer": "adamw"}, "phase1.lamb_variant: given 'paper', but optimizer 'adamw' "),
        ({"muon": {"momentum": 0.9}}, "phase1.muon: given {'momentum': 0.9}, but optimizer 'lamb' does not use it"),
        (
            {"betas": [0.9, 0.99], "optimizer": "lion"},
            "phase1.betas: given [0.9, 0.99], but optimizer 'lion'",
        ),
        ({"power": 1.0, "schedule": "linear"}, "phase1.power: given 1.0, but schedule 'linear'"),
        ({"decay": 0.2}, "phase1.decay: given 0.2, but schedule 'polynomial' does not use it; leave it out, or"),
        ({"end_learning_rate": 0.01, "schedule": "constant"}, "phase1.end_learning_rate: given 0.01, but schedule"),
        ({"base_batch_size": 8}, "phase1.base_batch_size: given 8, but learning_rate_scaling 'none' does not use"),
        ({"learning_rate_scaling": "linear"}, "phase1.base_batch_size: missing, but learning_rate_scaling 'linear'"),
        ({"end_learning_rate": 0.03}, "phase1.end_learning_rate: given 0.03, allowed is at most learning_rate, 0.02"),
        ({"warmup": 31}, "phase1.warmup: given 31, allowed are at most 30; otherwise"),
        (
            {"warmup": 0.4, "schedule_steps": 100},
            "phase1.warmup: given 0.4 of schedule_steps, 40 steps, allowed are at most 30; otherwise",
        ),
        ({"schedule": "wsd", "warmup": 10, "decay": 21}, "phase1.decay: warm-up (10 steps) and decay (21 steps) are"),
        (
            {"schedule": "wsd", "schedule_steps": 40, "decay": 41},
            "phase1.decay: warm-up (0 steps) and decay (41 steps) are longer than schedule_steps (40)",
        ),
        ({"schedule": "constant", "schedule_steps": 40}, "phase1.schedule_steps: given 40, but schedule 'constant'"),
        ({"schedule": "linear", "polynomial_from": "warmup"}, "phase1.polynomial_from: given 'warmup', but schedule"),
        ({"optimizer": "muon", "kfac": {}}, "phase1.kfac: given {}, but optimizer 'muon' does not use it"),
        (
            {"kfac": {"damping": [[1, 0.1], [20, 0.01], [20, 0.001]]}},
            "phase1.kfac.damping: given [[1, 0.1], [20, 0.01], [20, 0.001]], allowed are pairs of a step and a value",
        ),
        ({"kfac": {"decay": [[2, 0.9]]}}, "phase1.kfac.decay: given [[2, 0.9]], allowed are pairs of a step and"),
        ({"optimizer": "soap", "betas": [0.9, 0.99]}, "phase1.betas: given [0.9, 0.99], but optimizer 'soap'"),
        ({"publish_best_every": 31}, "phase1.publish_best_every: given 31, allowed is 1 to steps, 30"),
        (
            {"batch_size_warmup": {"from": 32, "steps": 5}},
            "phase1.batch_size_warmup.from: given 32, allowed is 1 to global_batch_",
        ),
        (
            {"batch_size_warmup": {"from": 4, "steps": 40}},
            "phase1.batch_size_warmup.steps: given 40, allowed is a share",
        ),
    ],
)
def test_a_bad_combination_is_one_line_naming_the_key(changes, message):
    with pytest.raises(BertlineError) as caught:
        check(**changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "adamw", "schedule": "constant"},
        {"optimizer": "adamw", "lamb_variant": "nvidia", "power": 0.5},  # defaults spelled out
        {"lamb_variant": "paper"},
        {"optimizer": "muon", "muon": {"momentum": 0.9}, "schedule": "wsd"},
        {"schedule": "wsd", "warmup": 10, "decay": 20, "end_learning_rate": 0.02},
        {"learning_rate_scaling": "sqrt", "base_batch_size": 256},
        {"schedule": "wsd", "schedule_steps": 40, "decay": 35},  # which the phase does not see the end of
        {"schedule_steps": 20},
        {"warmup": 30},  # the rate is reached in the last step
        {"optimizer": "sgd", "kfac": {"method": "inverse"}},
        {"batch_size_warmup": {"from": 16, "steps": 30}},
        {"batch_size_warmup": {"from": 1, "steps": 0.5}},
    ],
)
def test_good_combinations_pass(changes):
    check(**changes)


def test_the_defaults_of_the_schema_are_the_settings_that_a_recipe_wants():
    filled = fill_defaults(NEEDED, definition(SCHEMA, "phase"), SCHEMA)
    given = recipe()["settings"]
    assert filled.keys() == given.keys()
    unlike = {"learning_rate", "global_batch_size", "steps", "sequence_length", "precision", "warmup"}
    assert {key for key in filled if filled[key] != given[key]} <= unlike
    assert strip_defaults(filled, definition(SCHEMA, "phase"), SCHEMA) == NEEDED


def test_kfac_with_its_defaults_is_another_recipe_than_none():
    part = definition(SCHEMA, "phase")
    for kfac in ({}, {"damping": 0.003}):
        filled = fill_defaults({**NEEDED, "kfac": kfac}, part, SCHEMA)
        assert filled["kfac"]["inverse_interval"] == 10
        assert strip_defaults(filled, part, SCHEMA) == {**NEEDED, "kfac": {}}


def test_packing_goes_with_and_without_attention_dropout():
    check(packing=True)
    check({"attention_probs_dropout_prob": 0.0}, packing=True)
    check({"architecture": "modern"}, packing=True)
