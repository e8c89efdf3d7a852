"""Networks of a configuration: their fingerprints, and what is refused."""

from __future__ import annotations

import dataclasses
import re

import pytest
from plan_helpers import ROOT, changed, inputs, plan_of

from bertline.console import BertlineError
from bertline.files import read_json
from bertline.modeling import activations
from bertline.modeling.network_config import ACTIVATIONS, CONFIGURATIONS, config_from_dict
from bertline.settings.configuration import load_schema

assert inputs  # the fixture


@pytest.mark.parametrize("model", ["bert-tiny", "bert-mini", "bert-small", "bert-medium", "bert-base", "bert-large"])
def test_the_default_architecture_does_not_change_fingerprints(model: str) -> None:
    described = read_json(ROOT / f"config/models/{model}.json")
    plans = [
        plan_of(changed(runs__first__model=given))
        for given in (model, described, {"architecture": "bert", **described})
    ]
    assert all(phase["model"] == described for plan in plans for phase in plan.phases.values())
    assert plans[0].phases.keys() == plans[1].phases.keys() == plans[2].phases.keys()


@pytest.mark.parametrize("model", ["modern-mini", "modern-base", "modern-large"])
def test_another_architecture_is_another_model(model: str) -> None:
    described = read_json(ROOT / f"config/models/{model}.json")
    shape = {key: described[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    plans = [plan_of(changed(runs__first__model=given)) for given in (model, shape)]
    assert not plans[0].phases.keys() & plans[1].phases.keys()
    config = config_from_dict({**next(iter(plans[0].phases.values()))["model"], "vocab_size": 500})
    assert config.to_dict() == {**described, "vocab_size": 500}


def test_an_architecture_that_does_not_exist_is_named() -> None:
    with pytest.raises(BertlineError, match=r"runs\.first\.model\.architecture: given 'new', allowed .* bert, modern"):
        plan_of(changed(runs__first__model={"architecture": "new"}))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"hidden_sise": 128}, "runs.first.model: unknown key 'hidden_sise'; did you mean 'hidden_size'?"),
        ({"hidden_size": 128.0}, "runs.first.model.hidden_size: given 128.0, allowed is a whole number; write 128"),
        ({"hidden_size": 100}, "runs.first.model: hidden_size 100 is not a multiple of num_attention_heads 12"),
        ({"hidden_act": "swish"}, "runs.first.model.hidden_act: given 'swish', allowed is one of gelu, gelu_new, relu"),
        (
            {"architecture": "modern", "hidden_act": "gelu"},
            "unknown key 'hidden_act'; did you mean 'hidden_act",
        ),
        ({"num_hidden_layers": 1001}, "runs.first.model: num_hidden_layers: given 1001, allowed are 1 to 1000"),
        (
            {"architecture": "modern", "hidden_size": 36},
            "runs.first.model: hidden_size 36 divided by num_attention_heads 12 is odd, and rotary positions",
        ),
        ({"max_position_embeddings": 256}, "phase2.sequence_length: given 512, allowed is at most the model's max_pos"),
    ],
)
def test_a_network_that_cannot_be_is_refused_before_anything_runs(model: dict, message: str) -> None:
    with pytest.raises(BertlineError, match=re.escape(message)):
        plan_of(changed(runs__first__model=model))


def test_the_schema_of_a_network_has_the_arguments_of_its_class() -> None:
    schema = load_schema(ROOT / "config/config.schema.yaml")
    for name, network in CONFIGURATIONS.items():
        fields = {field.name: field for field in dataclasses.fields(network)}
        assert set(schema["$defs"][f"{name}_network"]["properties"]) == {"architecture", *fields}
    assert schema["$defs"]["activation"]["enum"] == list(ACTIVATIONS) == list(activations.ACTIVATIONS)


def test_fine_tuning_on_longer_text_than_the_network_reads_is_refused() -> None:
    with pytest.raises(BertlineError, match=r"finetune\.squad_v1\.max_sequence_length: given 1024, allowed is at most"):
        plan_of(changed(runs__first__finetune={"squad_v1": {"max_sequence_length": 1024}}))
    with pytest.raises(BertlineError, match=r"finetune\.squad_v1\.max_query_length: given 64, which leaves no room"):
        plan_of(changed(runs__first__finetune={"squad_v1": {"max_sequence_length": 64}}))
