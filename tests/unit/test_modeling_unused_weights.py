"""Weights that a configuration's network does not have: those of its layers are refused, other heads are not read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_modeling_conversion import CONFIG, MODERN, VOCABULARY, WRITTEN, expected, write_pickle

from bertline.console import BertlineError
from bertline.modeling.conversion import convert_weights
from bertline.modeling.huggingface import load_huggingface
from bertline.modeling.tensorflow_checkpoint import write_checkpoint

KINDS = {"bert": "bert.encoder.layer", "roberta": "roberta.encoder.layer", "modern": "model.layers"}


def make_network(kind: str) -> Any:
    if kind == "modern":
        return transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**MODERN))
    name = kind.capitalize()
    return getattr(transformers, f"{name}ForMaskedLM")(getattr(transformers, f"{name}Config")(**CONFIG))


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_the_configuration_does_not_have_is_refused(tmp_path: Path, kind: str) -> None:
    make_network(kind).save_pretrained(tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())
    load_huggingface(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**described, "num_hidden_layers": 1, "layer_types": None}))
    with pytest.raises(BertlineError) as refused:
        load_huggingface(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} has weights of 2 layers, but num_hidden_layers of its configuration is 1; correct it, or remove "
        "the weights of the others"
    )


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("bert", "0.attention.self.query.lora_A.weight"),
        ("bert", "1.crossattention.self.query.weight"),
        ("bert", "1.attention.self.distance_embedding.weight"),
        ("bert", "first.output.dense.weight"),
        ("roberta", "0.output.adapters.one.adapter_down.0.weight"),
        ("modern", "1.attn.Wqkv.bias"),
    ],
)
@pytest.mark.parametrize("prefix", [True, False])
def test_a_weight_that_no_layer_has_is_refused(tmp_path: Path, kind: str, name: str, prefix: bool) -> None:
    make_network(kind).save_pretrained(tmp_path)
    path, whole = tmp_path / "model.safetensors", f"{KINDS[kind]}.{name}"
    given = whole if prefix else whole.partition(".")[2]
    save_file({**load_file(path), given: torch.zeros(8)}, path)
    with pytest.raises(BertlineError) as refused:
        load_huggingface(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: {whole} is a weight that no layer of its configuration has, and a network with it cannot be "
        "read; choose other weights"
    )


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "bert",
            (
                *("bert.embeddings.position_ids", "bert.encoder.layer.0.attention.self.position_ids"),
                *("classifier.weight", "qa_outputs.bias", "cls.layer.7.weight", "other.encoder.layer.0.weight"),
            ),
        ),
        ("roberta", ("roberta.embeddings.position_ids", "roberta.pooler.dense.weight")),
        ("modern", ("model.layers.0.attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")),
    ],
)
def test_buffers_and_heads_that_are_not_used_are_left_out(tmp_path: Path, kind: str, names: tuple[str, ...]) -> None:
    make_network(kind).save_pretrained(tmp_path)
    path, before = tmp_path / "model.safetensors", load_huggingface(tmp_path)[1]
    save_file({**load_file(path), **{name: torch.zeros(8) for name in names}}, path)
    after = load_huggingface(tmp_path)[1]
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_pickle_of_more_layers_than_its_configuration_is_refused(tmp_path: Path) -> None:
    model = transformers.BertForPreTraining(transformers.BertConfig(**CONFIG))
    write_pickle(tmp_path / "theirs", model, num_hidden_layers=1)
    with pytest.raises(BertlineError, match=r"theirs has weights of 2 layers, but num_hidden_layers .* is 1; correct"):
        convert_weights(tmp_path / "theirs", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def make_google(folder: Path, tensors: dict[str, np.ndarray] | None = None, **config: Any) -> Path:
    """Write a folder as Google released them, with other tensors if they are given."""
    shutil.copytree(WRITTEN, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    if tensors is not None:
        write_checkpoint(folder / "bert_model.ckpt", tensors)
    (folder / "bert_config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    return folder


def test_a_checkpoint_of_more_layers_than_its_configuration_is_refused(tmp_path: Path) -> None:
    google = make_google(tmp_path / "google", num_hidden_layers=1)
    with pytest.raises(BertlineError, match=r"google has weights of 2 layers, but num_hidden_layers .* is 1; correct"):
        convert_weights(google, tmp_path / "out", lowercase=True)


@pytest.mark.parametrize("slots", [("Adam", "Adam_1"), ("AdamWeightDecayOptimizer",), ("lamb_m",), ()])
def test_the_variables_of_any_optimizer_are_left_out(tmp_path: Path, slots: tuple[str, ...]) -> None:
    """They have the name of a weight, and one of their own after it."""
    tensors = expected() | {f"{name}/{slot}": values for name, values in expected().items() for slot in slots}
    tensors |= {"global_step": np.array(7, np.int64), "beta1_power": np.array(0.9, np.float32)}
    convert_weights(make_google(tmp_path / "google", tensors), tmp_path / "out", lowercase=True)
    convert_weights(make_google(tmp_path / "released"), tmp_path / "expected", lowercase=True)
    written = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("out", "expected")]
    assert written[0] == written[1]
