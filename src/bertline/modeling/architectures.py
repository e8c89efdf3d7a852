"""Registry of the networks, by the `architecture` of a model's description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bertline.console import BertlineError
from bertline.modeling import bert, huggingface_bert, huggingface_modern, huggingface_roberta, modern
from bertline.modeling.bert import BertConfig, BertForPreTraining
from bertline.modeling.heads import TaskNetwork
from bertline.modeling.modern import ModernConfig, ModernForPreTraining
from bertline.modeling.network_config import NetworkConfig
from bertline.modeling.roberta import RobertaConfig, RobertaForPreTraining
from bertline.tasks.task import Head

PreTrainingNetwork = BertForPreTraining | ModernForPreTraining | RobertaForPreTraining
DEFAULT = "bert"


class HuggingFaceNames(Protocol):
    """Module with an architecture's names and keys in Hugging Face's layout."""

    MODEL_TYPE: str
    INPUTS: tuple[str, ...]  # the tokenizer's outputs that the network takes
    PADDED: tuple[str, ...]  # Bertline's names of the weights whose first dimension is the padded vocabulary
    NAMES: dict[str, str]  # Hugging Face's names by Bertline's
    LAYERS: str  # Hugging Face's name of the list of layers
    LAYER_NAMES: dict[str, tuple[str, ...]]  # of a layer's modules: equal parts along the first dimension
    TASKS: dict[Head, tuple[str, str]]  # class of a fine-tuned network, and Hugging Face's name of its linear layer
    ENCODER: str  # prefix of the encoder's names, which a file of an encoder without heads lacks
    FIXED: dict[str, Any]  # keys of config.json with a single supported value

    def unused_positions(self, given: Mapping[str, Any]) -> int: ...
    def config_json(self, config: Any, identifiers: Mapping[str, int]) -> dict[str, Any]: ...
    def renamed_settings(self, path: Path, given: Mapping[str, Any], config: Any) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Architecture:
    """The classes of a network, and its names in Hugging Face's layout.

    Networks for the same purpose share a calling convention.
    """

    config: type[NetworkConfig]
    pretraining: Callable[[Any], PreTrainingNetwork]
    task_network: Callable[[Any, Head, int], TaskNetwork]
    huggingface: HuggingFaceNames


ARCHITECTURES = {
    "bert": Architecture(BertConfig, BertForPreTraining, bert.make_task_network, huggingface_bert),
    "modern": Architecture(ModernConfig, ModernForPreTraining, modern.make_task_network, huggingface_modern),
    "roberta": Architecture(RobertaConfig, RobertaForPreTraining, bert.make_task_network, huggingface_roberta),
}


def architecture_of(config: NetworkConfig) -> Architecture:
    """Return the architecture of a configuration."""
    return ARCHITECTURES[config.architecture]


def config_from_dict(settings: Mapping[str, Any]) -> NetworkConfig:
    """Make the configuration of a model's description; without `architecture` it is BERT's.

    Raises BertlineError for an unknown architecture or key, and for a value of a wrong type.
    """
    name = settings.get("architecture", DEFAULT)
    if name not in ARCHITECTURES:
        raise BertlineError(f"model: architecture: given {name!r}, allowed are {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name].config.from_dict(settings)
