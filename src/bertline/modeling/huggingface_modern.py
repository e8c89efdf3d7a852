"""The modern network's names and keys in Hugging Face's layout (transformers' ModernBertForMaskedLM)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.modeling.network_config import ModernConfig
from bertline.tasks.task import Head

MODEL_TYPE = "modernbert"
ENCODER = "model"
INPUTS: tuple[str, ...] = ("input_ids", "attention_mask")  # no token types
PADDED: tuple[str, str] = ("encoder.embeddings.word.weight", "head.bias")

NAMES = {
    "encoder.embeddings.word.weight": "model.embeddings.tok_embeddings.weight",
    "encoder.embeddings.normalization.weight": "model.embeddings.norm.weight",
    "encoder.final_normalization.weight": "model.final_norm.weight",
    "head.dense.weight": "head.dense.weight",
    "head.normalization.weight": "head.norm.weight",
    "head.bias": "decoder.bias",
}
OUTPUT = "decoder"
LAYERS = "model.layers"
# The first layer has no normalisation before its attention.
LAYER_NAMES: dict[str, tuple[str, ...]] = {
    "attention_normalization": ("attn_norm",),
    "qkv": ("attn.Wqkv",),
    "attention_output": ("attn.Wo",),
    "feed_forward_normalization": ("mlp_norm",),
    "gated_intermediate": ("mlp.Wi",),
    "output": ("mlp.Wo",),
}
# The class of a fine-tuned network and the name of its linear layer.
TASKS: dict[Head, tuple[str, str]] = {
    "sequence": ("ModernBertForSequenceClassification", "classifier"),
    "tokens": ("ModernBertForTokenClassification", "classifier"),
    "answer": ("ModernBertForQuestionAnswering", "classifier"),
}
# The only values of these keys that can be read.
FIXED = {
    "attention_bias": False,
    "mlp_bias": False,
    "norm_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "tie_word_embeddings": True,
}
DEFAULTS: dict[str, Any] = {}
ROPE_KINDS = ("full_attention", "sliding_attention")


def unused_positions(given: Mapping[str, Any]) -> int:
    """Return 0: there is no table of positions."""
    return 0


def config_json(config: ModernConfig, identifiers: Mapping[str, int]) -> dict[str, Any]:
    """Return ModernBERT's own keys of config.json, which predate transformers 5 and are read by it."""
    return {
        **FIXED,
        # Every layer attends globally; by transformers' default, two of three attend to a window of 128 tokens.
        "global_attn_every_n_layers": 1,
        "classifier_activation": config.hidden_activation,
        "classifier_pooling": "cls",
        "architectures": ["ModernBertForMaskedLM"],
        # ModernBERT's own ids exceed a smaller vocabulary.
        "bos_token_id": identifiers["[CLS]"],
        "cls_token_id": identifiers["[CLS]"],
        "eos_token_id": identifiers["[SEP]"],
        "sep_token_id": identifiers["[SEP]"],
    }


def renamed_settings(path: Path, given: Mapping[str, Any], config: ModernConfig) -> dict[str, Any]:
    """Return the settings that config.json has under other keys. Raises BertlineError for unsupported ones."""
    activation, layers = config.hidden_activation, config.num_hidden_layers
    of_head = given.get("classifier_activation", "gelu")  # transformers' default
    if of_head != activation:
        raise BertlineError(
            f"{path}: classifier_activation is {of_head!r}, only {activation!r} can be read; choose other weights"
        )
    every = given.get("global_attn_every_n_layers", 3)
    if not isinstance(every, int) or every < 1:
        raise BertlineError(f"{path}: global_attn_every_n_layers: given {every!r}, allowed is a positive integer")
    by_default = ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]
    kinds = given.get("layer_types") or by_default
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise BertlineError(
            f"{path}: layer_types is not a list of {layers} kinds, one of each layer; choose other weights"
        )
    local = [kind for kind in kinds if kind != "full_attention"]
    if local:
        raise BertlineError(
            f"{path}: {len(local)} of {layers} layers attend to a window only, which is not supported; choose "
            "weights with global_attn_every_n_layers: 1"
        )
    rope = given.get("rope_parameters") or {}
    unknown = [key for key in rope if key not in ROPE_KINDS] if isinstance(rope, dict) else []
    if unknown:
        raise BertlineError(
            f"{path}: rope_parameters has {', '.join(map(repr, unknown))}, allowed are {' and '.join(ROPE_KINDS)}, "
            "with the parameters of these layers; move them there"
        )
    rope = (rope.get("full_attention") or {}) if isinstance(rope, dict) else rope
    if not isinstance(rope, dict) or rope.get("rope_type", "default") != "default" or given.get("rope_scaling"):
        raise BertlineError(f"{path}: only rotary positions of the type 'default' can be read; choose other weights")
    return {"global_rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
