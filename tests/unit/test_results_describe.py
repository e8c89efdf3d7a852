"""Recipes in words."""

from __future__ import annotations

import re

from synthetic_dataset import recipe

from bertline.files import SCHEMA
from bertline.results.describe import describe_phase
from bertline.settings.configuration import definition, load_schema


def test_the_description_of_a_phase_has_the_changes_of_its_batch_and_its_rate():
    given = recipe(
        optimizer="muon", schedule="wsd", warmup=3, decay=0.2, batch_size_warmup={"from": 4, "steps": 0.5}, steps=2000
    )
    text = describe_phase(given, {})
    assert "2,000 steps of 16 sequences of at most 32 tokens, at first of 4, growing over 50% of the steps." in text
    assert "Muon with AdamW, learning rate 0.02, warm-up over 3 steps, then constant, linear decay over" in text
    assert "over the last 20% of the steps" in text


def test_every_optimizer_is_named_in_full_and_kfac_as_well():
    for optimizer in definition(load_schema(SCHEMA), "phase")["properties"]["optimizer"]["enum"]:
        text = describe_phase(recipe(optimizer=optimizer), {})
        assert re.search(rf"\b{optimizer}\b[^,]*, learning rate", text, re.IGNORECASE)
        assert f" {optimizer}" not in text
    given = recipe(optimizer="sgd")
    given["settings"]["kfac"] = {}
    assert "SGD on gradients preconditioned by K-FAC, learning rate" in describe_phase(given, {})


def test_a_phase_from_before_the_ramp_is_described():
    given = recipe()
    del given["settings"]["batch_size_warmup"]
    assert "30 steps of 16 sequences of at most 32 tokens." in describe_phase(given, {})
