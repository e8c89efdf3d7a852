"""Recipes in words."""

from __future__ import annotations

import re

import pytest
from synthetic_dataset import recipe

from bertline.files import SCHEMA
from bertline.results.describe import describe_finetuning, describe_phase, number_of_examples, score_title
from bertline.settings.configuration import definition, load_schema


def test_the_description_of_a_phase_has_the_changes_of_its_batch_and_its_rate():
    given = recipe(
        optimizer="muon", schedule="wsd", warmup=3, decay=0.2, batch_size_warmup={"from": 4, "steps": 0.5}, steps=2000
    )
    text = describe_phase(given, {})
    assert "2,000 steps of 16 sequences of at most 32 tokens, at first of 4, growing over 50% of the steps." in text
    assert "Muon with AdamW, learning rate 0.02, warm-up over 3 steps, then constant, linear decay over" in text
    assert "over the last 20% of the steps" in text


@pytest.mark.parametrize(("entry", "key"), [("network", "architecture"), ("phase", "optimizer"), ("phase", "schedule")])
def test_every_choice_has_a_title(entry: str, key: str):
    setting = definition(load_schema(SCHEMA), entry)["properties"][key]
    assert list(setting["titles"]) == setting["enum"]


def test_every_optimizer_is_named_in_full_and_kfac_as_well():
    for optimizer in definition(load_schema(SCHEMA), "phase")["properties"]["optimizer"]["enum"]:
        text = describe_phase(recipe(optimizer=optimizer), {})
        assert re.search(rf"\b{optimizer}\b[^,]*, learning rate", text, re.IGNORECASE)
        assert f" {optimizer}" not in text
    given = recipe(optimizer="sgd")
    given["settings"]["kfac"] = {}
    assert "SGD on gradients preconditioned by K-FAC, learning rate" in describe_phase(given, {})


def test_a_record_with_a_choice_that_this_version_does_not_know_is_described():
    text = describe_phase(recipe(optimizer="other", schedule="another"), {})
    assert "other, learning rate" in text
    assert re.search(r"warm-up over [^,]*, another, weight decay", text)


def test_a_share_of_masked_tokens_is_not_rounded():
    for probability, words in ((0.15, "15%"), (0.125, "12.5%"), (0.004, "0.4%")):
        given = recipe()
        given["settings"]["masking"] = {"probability": probability}
        assert f" {words} of the tokens masked." in describe_phase(given, {})


def test_a_phase_from_before_the_ramp_is_described():
    given = recipe()
    del given["settings"]["batch_size_warmup"]
    assert "30 steps of 16 sequences of at most 32 tokens." in describe_phase(given, {})


def test_a_fine_tuning_has_its_warm_up_and_the_scaling_of_its_rate():
    settings = {"epochs": 3, "batch_size": 256, "learning_rate": 2e-5, "max_sequence_length": 128, "precision": "fp32"}

    def described(**more):
        return describe_finetuning({"seed": 1, "settings": {**settings, "warmup": 0.1, **more}}, {})

    assert "learning rate 2e-5, warm-up over 10% of the steps" in described()
    assert "warm-up over 500 steps" in described(warmup=500)
    scaled = described(learning_rate_scaling="linear", base_batch_size=32)
    assert "learning rate 2e-5, scaled linearly from batches of 32, warm-up" in scaled


def test_a_score_has_the_size_of_its_own_set():
    metrics = {"examples": {"dev": 1000, "test": 37, "dev_mismatched": 900}}
    sizes = {"f1": 1000, "f1_test": 37, "accuracy_mismatched": 900}
    assert {score: number_of_examples(metrics, score) for score in sizes} == sizes
    assert score_title("accuracy_test") == f"{score_title('accuracy')}, test set"
    ranking = {"examples": {"dev_queries": 200, "dev_judged_queries": 43}}
    assert number_of_examples(ranking, "mrr_10") == 43
