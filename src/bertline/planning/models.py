"""Resolution and checks of a run's network, without PyTorch, because the graph runs them at every start.

Without these checks, problems would only be found when training begins, after days of downloading and encoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import Json, read_json
from bertline.modeling.network_config import LIMITS
from bertline.settings.configuration import definition, strip_defaults, validate

# Defaults of the keys needed here, which a model may omit; tests compare them with the networks' classes.
_BASE = {"hidden_size": 768, "num_attention_heads": 12}
_BERT = {**_BASE, "num_hidden_layers": 12, "intermediate_size": 3072, "max_position_embeddings": 512}
PUBLISHED = {
    "bert": _BERT,
    "modern": {**_BASE, "num_hidden_layers": 22, "intermediate_size": 1152, "max_position_embeddings": 8192},
    "roberta": _BERT,
}
# By the `model_type` of a config.json.
ARCHITECTURE_OF_TYPE = {"bert": "bert", "modernbert": "modern", "roberta": "roberta"}


def resolve_model(schema: Json, models: Path, where: str, model: str | Json) -> Json:
    """Return a model's keys without those that equal their defaults.

    Args:
        schema: config/config.schema.yaml.
        models: config/models.
        where: the key of the run, for messages.
        model: the name of a file of `models`, or the keys themselves.

    Raises BertlineError for an unknown name, and for keys of an invalid network.
    """
    if isinstance(model, str):
        known = sorted(path.stem for path in models.glob("*.json"))
        if model not in known:
            allowed = ", ".join(known)
            raise BertlineError(f"{where}.model: given {model!r}, allowed are {allowed} or the keys themselves")
        where = str(models / f"{model}.json")
        described: Json = read_json(where)
        validate(described, {"$defs": schema["$defs"], "$ref": "#/$defs/network"}, what=where)
    else:
        where, described = f"{where}.model", model
    for key, (smallest, largest) in LIMITS.items():
        if key in described and not smallest <= described[key] <= largest:
            raise BertlineError(f"{where}.{key}: given {described[key]}, allowed are {smallest} to {largest}")
    size, heads = _key(described, "hidden_size"), _key(described, "num_attention_heads")
    if size % heads:
        raise BertlineError(
            f"{where}: hidden_size {size} is not a multiple of num_attention_heads {heads}; change one of them"
        )
    if described.get("architecture") == "modern" and size // heads % 2:
        raise BertlineError(
            f"{where}: hidden_size {size} divided by num_attention_heads {heads} is odd, and rotary positions turn "
            "pairs; change one of them"
        )
    return strip_defaults(described, definition(schema, "model"), schema)


def read_network(path: Path) -> Json | None:
    """Return the keys of a network in a config.json that the functions below read, None if there is no such file.

    Raises BertlineError if it does not describe a network. Other kinds of networks are refused when weights are read.
    """
    if not path.is_file():
        return None
    given = read_json(path)
    if not isinstance(given, dict):
        raise BertlineError(f"{path} is not a JSON object; name the config.json of a network")
    architecture = ARCHITECTURE_OF_TYPE.get(str(given.get("model_type", "bert")), "bert")
    found: Json = {"architecture": architecture}
    for key in PUBLISHED[architecture].keys() & given.keys():
        if type(given[key]) is not int:
            raise BertlineError(f"{path}: its {key} is not an integer; name the config.json of a network")
        found[key] = given[key]
    if architecture == "roberta":  # transformers counts its positions from the padding token's id + 1
        padding = given.get("pad_token_id")
        unused = 1 + (padding if type(padding) is int else 1)
        found["max_position_embeddings"] = _key(found, "max_position_embeddings") - unused
    return found


def check_length(model: Mapping[str, Any], length: int, where: str) -> None:
    """Raise BertlineError, naming the key `where`, for sequences longer than the network supports."""
    most = _key(model, "max_position_embeddings")
    if length > most:
        raise BertlineError(
            f"{where}: given {length}, allowed is at most the model's max_position_embeddings, {most}; raise that or "
            "lower this"
        )


def check_layers(model: Mapping[str, Any], layers: Sequence[int], where: str) -> None:
    """Raise BertlineError, naming the key `where`, for a layer that a network does not have; 0 are the embeddings."""
    depth = _key(model, "num_hidden_layers")
    for layer in layers:
        if not -depth - 1 <= layer <= depth:
            raise BertlineError(f"{where}: given {layer}, allowed are -{depth + 1} to {depth}")


def check_shape(theirs: Mapping[str, Any], ours: Mapping[str, Any], where: str) -> None:
    """Raise BertlineError, naming the key `where`, if the weights of one network do not fit into the other."""
    there, here = shape_of(theirs), shape_of(ours)
    if differing := [key for key in here if there.get(key) != here[key]]:
        others = ", ".join(f"{key} is {there.get(key)} there and {here[key]} here" for key in differing)
        raise BertlineError(f"{where}: another network ({others}); start from weights of the same network")


def shape_of(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what determines the shapes of a network's layers: `architecture`, sizes and numbers."""
    architecture = model.get("architecture", "bert")
    keys = set(PUBLISHED[architecture])
    if architecture == "modern":  # its rotary positions need no table
        keys.remove("max_position_embeddings")
    return {"architecture": architecture, **{key: _key(model, key) for key in sorted(keys)}}


def _key(model: Mapping[str, Any], key: str) -> int:
    return int(model.get(key, PUBLISHED[model.get("architecture", "bert")][key]))
