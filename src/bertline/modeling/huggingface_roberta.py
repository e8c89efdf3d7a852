"""RoBERTa's names and keys in Hugging Face's layout (transformers' RobertaForMaskedLM)."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.modeling import huggingface_bert
from bertline.modeling.network_config import LIMITS, RobertaConfig
from bertline.tasks.task import Head

MODEL_TYPE = "roberta"
ENCODER = "roberta"
INPUTS: tuple[str, ...] = ("input_ids", "attention_mask")  # no token types
PADDED: tuple[str, str] = huggingface_bert.PADDED

NAMES = {
    **{
        ours: theirs.replace("bert.", "roberta.")
        for ours, theirs in huggingface_bert.NAMES.items()
        if ours.startswith("encoder.embeddings.")
    },
    # The pooler of a classifier of sequences; the masked language network has no pooler.
    "encoder.pooler.weight": "classifier.dense.weight",
    "encoder.pooler.bias": "classifier.dense.bias",
    "masked_language_head.dense.weight": "lm_head.dense.weight",
    "masked_language_head.dense.bias": "lm_head.dense.bias",
    "masked_language_head.normalization.weight": "lm_head.layer_norm.weight",
    "masked_language_head.normalization.bias": "lm_head.layer_norm.bias",
    "masked_language_head.bias": "lm_head.bias",
}
OUTPUT = "lm_head.decoder"
LAYERS = "roberta.encoder.layer"
LAYER_NAMES: dict[str, tuple[str, ...]] = huggingface_bert.LAYER_NAMES
# The class of a fine-tuned network and the name of its linear layer.
TASKS: dict[Head, tuple[str, str]] = {
    "sequence": ("RobertaForSequenceClassification", "classifier.out_proj"),
    "tokens": ("RobertaForTokenClassification", "classifier"),
    "answer": ("RobertaForQuestionAnswering", "qa_outputs"),
}
# The only values of these keys that can be read.
FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "tie_word_embeddings": True}
DEFAULTS: dict[str, Any] = {"type_vocab_size": 2, "layer_norm_eps": 1e-12}


def unused_positions(given: Mapping[str, Any]) -> int:
    """Return how many rows of the position table are unused: transformers counts from the padding token's id + 1."""
    padding = given.get("pad_token_id")
    if padding is None:
        padding = 1
    if not isinstance(padding, int) or not 0 <= padding < LIMITS["vocab_size"][1]:
        raise BertlineError(
            f"pad_token_id: given {reprlib.repr(padding)}, allowed is a token's id; choose other weights"
        )
    return padding + 1


def config_json(config: RobertaConfig, identifiers: Mapping[str, int]) -> dict[str, Any]:
    """Return RoBERTa's own keys of config.json."""
    unused = unused_positions({"pad_token_id": identifiers["[PAD]"]})
    return {
        **FIXED,
        "architectures": ["RobertaForMaskedLM"],
        "max_position_embeddings": config.max_position_embeddings + unused,
        "bos_token_id": identifiers["[CLS]"],
        "eos_token_id": identifiers["[SEP]"],
    }


def renamed_settings(path: Path, given: Mapping[str, Any], config: RobertaConfig) -> dict[str, Any]:
    """Return the number of positions that inputs use."""
    positions, unused = config.max_position_embeddings, unused_positions(given)
    if positions <= unused:
        raise BertlineError(
            f"{path}: max_position_embeddings is {positions}, of which {unused} are unused; choose other weights"
        )
    return {"max_position_embeddings": positions - unused}
