"""BERT's names and keys in Hugging Face's layout (transformers' BertForPreTraining)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.modeling.bert import BertConfig

MODEL_TYPE = "bert"
INPUTS: tuple[str, ...] = ("input_ids", "token_type_ids", "attention_mask")
PADDED: tuple[str, ...] = ("encoder.embeddings.word.weight", "masked_language_head.bias")

NAMES = {
    "encoder.embeddings.word.weight": "bert.embeddings.word_embeddings.weight",
    "encoder.embeddings.position.weight": "bert.embeddings.position_embeddings.weight",
    "encoder.embeddings.token_type.weight": "bert.embeddings.token_type_embeddings.weight",
    "encoder.embeddings.normalization.weight": "bert.embeddings.LayerNorm.weight",
    "encoder.embeddings.normalization.bias": "bert.embeddings.LayerNorm.bias",
    "encoder.pooler.weight": "bert.pooler.dense.weight",
    "encoder.pooler.bias": "bert.pooler.dense.bias",
    "masked_language_head.dense.weight": "cls.predictions.transform.dense.weight",
    "masked_language_head.dense.bias": "cls.predictions.transform.dense.bias",
    "masked_language_head.normalization.weight": "cls.predictions.transform.LayerNorm.weight",
    "masked_language_head.normalization.bias": "cls.predictions.transform.LayerNorm.bias",
    "masked_language_head.bias": "cls.predictions.bias",
    "pair_head.weight": "cls.seq_relationship.weight",
    "pair_head.bias": "cls.seq_relationship.bias",
}
LAYER_NAMES = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    "attention_normalization": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_normalization": ("output.LayerNorm",),
}


def names_of(config: BertConfig) -> dict[str, tuple[str, ...]]:
    """Map Bertline's names to Hugging Face's names of the equal parts along the first dimension."""
    names: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in NAMES.items()}
    for layer in range(config.num_hidden_layers):
        for ours, parts in LAYER_NAMES.items():
            for kind in ("weight", "bias"):
                theirs = tuple(f"bert.encoder.layer.{layer}.{part}.{kind}" for part in parts)
                names[f"encoder.layers.{layer}.{ours}.{kind}"] = theirs
    return names


def present_name(name: str) -> str:
    """Return the current name of a weight from an old version's file or from an encoder saved without heads."""
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
    return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


def config_json(config: BertConfig, identifiers: Mapping[str, int]) -> dict[str, Any]:
    """Return the content of config.json; `identifiers` are those of the special tokens."""
    return {
        **dataclasses.asdict(config),
        "architectures": ["BertForPreTraining"],
        "model_type": MODEL_TYPE,
        "pad_token_id": identifiers["[PAD]"],
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def config_of(path: Path, given: Mapping[str, Any]) -> BertConfig:
    """Return the configuration in a config.json. Raises BertlineError for an unsupported setting."""
    return BertConfig.from_config_json(path, given, fixed={"position_embedding_type": "absolute", "is_decoder": False})
