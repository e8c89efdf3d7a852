"""The modern network's names and keys in Hugging Face's layout (transformers' ModernBertForMaskedLM)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.modeling.modern import ModernConfig

MODEL_TYPE = "modernbert"
INPUTS: tuple[str, ...] = ("input_ids", "attention_mask")  # no token types
PADDED: tuple[str, ...] = ("encoder.embeddings.word.weight", "head.bias")

NAMES = {
    "encoder.embeddings.word.weight": "model.embeddings.tok_embeddings.weight",
    "encoder.embeddings.normalization.weight": "model.embeddings.norm.weight",
    "encoder.final_normalization.weight": "model.final_norm.weight",
    "head.dense.weight": "head.dense.weight",
    "head.normalization.weight": "head.norm.weight",
    "head.bias": "decoder.bias",
}
LAYER_NAMES = {
    "attention_normalization": "attn_norm",
    "qkv": "attn.Wqkv",
    "attention_output": "attn.Wo",
    "feed_forward_normalization": "mlp_norm",
    "gated_intermediate": "mlp.Wi",
    "output": "mlp.Wo",
}
# Every layer attends globally; by transformers' default, two of three attend to a window of 128 tokens.
ALL_GLOBAL = {"global_attn_every_n_layers": 1}
FIXED = {
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "tie_word_embeddings": True,
}


def names_of(config: ModernConfig) -> dict[str, tuple[str, ...]]:
    """Map Bertline's names to Hugging Face's; the first layer has no normalisation before its attention."""
    names: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in NAMES.items()}
    for layer in range(config.num_hidden_layers):
        for ours, theirs in LAYER_NAMES.items():
            if layer or ours != "attention_normalization":
                names[f"encoder.layers.{layer}.{ours}.weight"] = (f"model.layers.{layer}.{theirs}.weight",)
    return names


def present_name(name: str) -> str:
    """Return the name in a model with heads of a weight from an encoder saved without them."""
    return f"model.{name}" if name.startswith(("embeddings.", "layers.", "final_norm.")) else name


def config_json(config: ModernConfig, identifiers: Mapping[str, int]) -> dict[str, Any]:
    """Return the content of config.json; `identifiers` are those of the special tokens.

    The keys are those of ModernBERT's own config.json, which predate transformers 5 and are read by it.
    """
    return {
        **dataclasses.asdict(config),
        **FIXED,
        **ALL_GLOBAL,
        "classifier_activation": config.hidden_activation,
        "architectures": ["ModernBertForMaskedLM"],
        "model_type": MODEL_TYPE,
        # ModernBERT's own ids exceed a smaller vocabulary.
        "pad_token_id": identifiers["[PAD]"],
        "bos_token_id": identifiers["[CLS]"],
        "cls_token_id": identifiers["[CLS]"],
        "eos_token_id": identifiers["[SEP]"],
        "sep_token_id": identifiers["[SEP]"],
        "dtype": "float32",
    }


def config_of(path: Path, given: Mapping[str, Any]) -> ModernConfig:
    """Return the configuration in a config.json. Raises BertlineError for an unsupported setting."""
    rope = (given.get("rope_parameters") or {}).get("full_attention") or {}
    if rope.get("rope_type", "default") != "default" or given.get("rope_scaling"):
        raise BertlineError(f"{path}: only rotary positions of the type 'default' can be read; choose other weights")
    if "rope_theta" in rope:
        given = {**given, "global_rope_theta": rope["rope_theta"]}
    activation = given.get("hidden_activation", ModernConfig.hidden_activation)
    config = ModernConfig.from_config_json(path, given, fixed={**FIXED, "classifier_activation": activation})
    every, layers = given.get("global_attn_every_n_layers", 3), config.num_hidden_layers
    by_default = ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]
    local = [kind for kind in given.get("layer_types") or by_default if kind != "full_attention"]
    if local:
        raise BertlineError(
            f"{path}: {len(local)} of {layers} layers attend to a window only, which is not supported; choose "
            "weights with global_attn_every_n_layers: 1"
        )
    return config
