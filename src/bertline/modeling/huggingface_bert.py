"""BERT's names and keys in Hugging Face's layout (transformers' BertForPreTraining)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.modeling.network_config import BertConfig
from bertline.tasks.task import Head

MODEL_TYPE = "bert"
ENCODER = "bert"
INPUTS: tuple[str, ...] = ("input_ids", "token_type_ids", "attention_mask")
PADDED: tuple[str, str] = ("encoder.embeddings.word.weight", "masked_language_head.bias")

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
OUTPUT = "cls.predictions.decoder"
LAYERS = "bert.encoder.layer"
LAYER_NAMES: dict[str, tuple[str, ...]] = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    "attention_normalization": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_normalization": ("output.LayerNorm",),
}
# The class of a fine-tuned network and the name of its linear layer.
TASKS: dict[Head, tuple[str, str]] = {
    "sequence": ("BertForSequenceClassification", "classifier"),
    "tokens": ("BertForTokenClassification", "classifier"),
    "answer": ("BertForQuestionAnswering", "qa_outputs"),
}
# The only values of these keys that can be read.
FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "tie_word_embeddings": True}
DEFAULTS: dict[str, Any] = {}


def unused_positions(given: Mapping[str, Any]) -> int:
    """Return 0: inputs use every row of the position table."""
    return 0


def config_json(config: BertConfig, identifiers: Mapping[str, int]) -> dict[str, Any]:
    """Return BERT's own keys of config.json."""
    return {
        "architectures": ["BertForPreTraining"],
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }


def renamed_settings(path: Path, given: Mapping[str, Any], config: BertConfig) -> dict[str, Any]:
    """Return no setting: the keys of config.json are Bertline's."""
    return {}
