"""Networks and heads as a config.json describes them in Hugging Face's layout, without PyTorch.

The modules huggingface_bert, huggingface_modern and huggingface_roberta define the names and keys of each architecture.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from bertline.console import BertlineError
from bertline.files import read_json, read_object
from bertline.modeling import huggingface_bert, huggingface_modern, huggingface_roberta
from bertline.modeling.network_config import CONFIGURATIONS, NetworkConfig
from bertline.results import paths
from bertline.tasks.task import Head

# Ends of the names of transformers' classes without the head of a task, such as BertForPreTraining and BertModel.
PRETRAINED = ("ForPreTraining", "ForMaskedLM", "Model")

# Of large models: the file that lists the others.
WEIGHTS_INDEX = f"{paths.WEIGHTS}.index.json"
SEVERAL_FILES = f"has its weights in several files; choose a model with one {paths.WEIGHTS}"


class HuggingFaceNames(Protocol):
    """Module with an architecture's names and keys in Hugging Face's layout."""

    MODEL_TYPE: str
    INPUTS: tuple[str, ...]  # the tokenizer's outputs that the network takes
    PADDED: tuple[str, str]  # Bertline's names of the weights of the padded vocabulary: word embeddings, output bias
    NAMES: dict[str, str]  # Hugging Face's names by Bertline's
    LAYERS: str  # Hugging Face's name of the list of layers
    LAYER_NAMES: dict[str, tuple[str, ...]]  # of a layer's modules: equal parts along the first dimension
    TASKS: dict[Head, tuple[str, str]]  # class of a fine-tuned network, and Hugging Face's name of its linear layer
    OUTPUT: str  # Hugging Face's name of the output layer, whose matrix is the word embeddings
    ENCODER: str  # prefix of the encoder's names, which a file of an encoder without heads lacks
    FIXED: dict[str, Any]  # keys of config.json with a single supported value
    DEFAULTS: dict[str, Any]  # transformers' values of absent keys, where Bertline's differ

    def unused_positions(self, given: Mapping[str, Any]) -> int: ...
    def config_json(self, config: Any, identifiers: Mapping[str, int]) -> dict[str, Any]: ...
    def renamed_settings(self, path: Path, given: Mapping[str, Any], config: Any) -> dict[str, Any]: ...


HUGGINGFACE: dict[str, HuggingFaceNames] = {
    "bert": huggingface_bert,
    "modern": huggingface_modern,
    "roberta": huggingface_roberta,
}


def names_of(config: NetworkConfig) -> HuggingFaceNames:
    """Return the names of a configuration's architecture."""
    return HUGGINGFACE[config.architecture]


def read_configuration(path: Path) -> NetworkConfig:
    """Return the network that a config.json describes. Raises BertlineError if it is not supported."""
    given = read_config_json(path)
    architectures = {names.MODEL_TYPE: architecture for architecture, names in HUGGINGFACE.items()}
    kind = given.get("model_type", "bert")
    architecture = architectures.get(kind) if isinstance(kind, str) else None
    if architecture is None:
        *others, last = architectures
        described = f"{', '.join(others)} and {last}"
        raise BertlineError(
            f"{path}: model_type is {kind!r}, only {described} can be read; name a directory with one of them"
        )
    names, configuration = HUGGINGFACE[architecture], CONFIGURATIONS[architecture]
    for key, value in names.FIXED.items():
        if given.get(key, value) != value:
            raise BertlineError(f"{path}: {key} is {given[key]!r}, only {value!r} can be read; choose other weights")
    stated = names.DEFAULTS | given
    known = {field.name: stated[field.name] for field in dataclasses.fields(configuration) if field.name in stated}
    try:
        config = configuration.from_dict(known)
        return configuration.from_dict(known | names.renamed_settings(path, given, config))
    except BertlineError as error:
        raise error if str(error).startswith(str(path)) else BertlineError(f"{path}: {error}") from None


def read_config_json(path: Path) -> dict[str, Any]:
    """Read a config.json. Raises BertlineError if it is missing or not a JSON object."""
    given = read_json(path)
    if not isinstance(given, dict):
        raise BertlineError(f"{path} is not a JSON object; name the config.json of a network")
    return given


def unused_positions_of(config: NetworkConfig, path: Path) -> int:
    """Return how many first rows of the position table no input uses, for the network of a config.json."""
    return names_of(config).unused_positions(read_config_json(path))


def head_of(config: NetworkConfig, path: Path) -> Head | None:
    """Return the head that the config.json `path` of a network names; None of a pretrained one.

    Raises BertlineError for a class of transformers with another head, or of another network.
    """
    given = read_config_json(path).get("architectures") or []
    if not isinstance(given, list):
        raise BertlineError(f"{path}: architectures is not a list; get it again")
    heads = {name: head for head, (name, _) in names_of(config).TASKS.items()}
    made = str(next(iter(given), ""))
    if made and made not in heads and not made.endswith(PRETRAINED):
        raise BertlineError(
            f"{path}: its architecture is {made}, whose head cannot be read; allowed are {', '.join(heads)} and "
            "pretrained networks"
        )
    return heads.get(made)


def labels_of(path: Path, head: Head | None, outputs: int) -> tuple[str, ...]:
    """Return the names of a head's classes, LABEL_0 and so on by default; none of a regression and of answers."""
    if head in (None, "answer") or (head == "sequence" and outputs == 1):
        return ()
    names = read_config_json(path).get("id2label") or {}
    if not isinstance(names, dict):
        raise BertlineError(f"{path}: id2label is not an object; get it again")
    return tuple(str(names.get(str(index), f"LABEL_{index}")) for index in range(outputs))


def max_length_of(folder: Path) -> float:
    """Return to how many tokens transformers truncates an input; infinity if the folder's tokenizer does not say.

    Raises BertlineError for a tokenizer that cuts off the beginning.
    """
    path = folder / paths.TOKENIZER_CONFIG
    settings = read_object(path) if path.exists() else {}
    if settings.get("truncation_side", "right") != "right":
        raise BertlineError(
            f"{path}: truncation_side is {str(settings['truncation_side'])[:80]!r}, but long inputs are cut off at the "
            "right; choose another model, or remove it if no input is that long"
        )
    given = settings.get("model_max_length")
    if given is None:
        return math.inf
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 1:
        raise BertlineError(
            f"{path}: model_max_length: given {str(given)[:80]!r}, allowed are numbers from 1 on; correct it"
        )
    return given


def check_head(path: Path, outputs: int) -> None:
    """Raise BertlineError if a config.json describes another head for sequences than the one that is computed."""
    given = read_config_json(path)
    read = {
        "classifier_pooling": "cls",  # of ModernBERT
        "problem_type": "regression" if outputs == 1 else "single_label_classification",
    }
    for key, value in read.items():
        if given.get(key) not in (None, value):
            raise BertlineError(
                f"{path}: {key} is {given[key]!r}, only {value!r} can be read with {outputs} outputs; "
                "choose another model"
            )
