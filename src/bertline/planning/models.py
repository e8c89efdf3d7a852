"""Resolution and checks of a run's network, without PyTorch, because the graph runs them at every start.

Without these checks, problems would only be found when training begins, after days of downloading and encoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import Json, read_json
from bertline.modeling.huggingface_config import read_configuration
from bertline.modeling.network_config import config_from_dict, value_of
from bertline.settings.configuration import definition, strip_defaults, validate


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
    config_from_dict({"vocab_size": 1, **described}, where)
    return strip_defaults(described, definition(schema, "model"), schema)


def read_network(path: Path) -> Json | None:
    """Return the keys of the network that a config.json describes, None if there is no such file.

    Raises BertlineError for a network that cannot be read.
    """
    return read_configuration(path).to_dict() if path.is_file() else None


def check_length(model: Mapping[str, Any], length: int, where: str) -> None:
    """Raise BertlineError, naming the key `where`, for sequences longer than the network supports."""
    most = value_of(model, "max_position_embeddings")
    if length > most:
        raise BertlineError(
            f"{where}: given {length}, allowed is at most the model's max_position_embeddings, {most}; raise that or "
            "lower this"
        )


def check_layers(model: Mapping[str, Any], layers: Sequence[int], where: str) -> None:
    """Raise BertlineError, naming the key `where`, for a layer that a network does not have; 0 are the embeddings."""
    depth = value_of(model, "num_hidden_layers")
    for layer in layers:
        if not -depth - 1 <= layer <= depth:
            raise BertlineError(f"{where}: given {layer}, allowed are -{depth + 1} to {depth}")
