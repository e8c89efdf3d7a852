"""Checks of a phase's settings against each other. Imports no PyTorch, since the workflow uses it when planning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.console import BertlineError
from bertline.training.optimizers.schedules import share_or_steps


def check_used(chosen: Mapping[str, Any], settings: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> None:
    """Raise BertlineError, naming the key after `where`, for a setting that has no effect given another one.

    Args:
        chosen: the settings that differ from their defaults.
        settings: all of the phase's.
        schema: of a phase. Its `used_with` lists, for a setting, the values of another one with which it has an effect.
    """
    for key, part in schema["properties"].items():
        for other, values in part.get("used_with", {}).items():
            if key in chosen and settings[other] not in values:
                raise BertlineError(
                    f"{where}.{key}: given {chosen[key]!r}, but {other} '{settings[other]}' does not use it; "
                    f"leave it out, or choose {other} {' or '.join(values)}"
                )


def check_together(settings: Mapping[str, Any], where: str) -> None:
    """Raise BertlineError, naming the key after `where`, for settings that contradict each other.

    Args:
        settings: of a phase, with every default filled in.
    """
    total = settings["steps"]
    if settings["learning_rate_scaling"] != "none" and settings["base_batch_size"] is None:
        raise BertlineError(
            f"{where}.base_batch_size: missing, but learning_rate_scaling '{settings['learning_rate_scaling']}' needs "
            "it; give the global batch that the learning rate was found for"
        )
    if settings["end_learning_rate"] > settings["learning_rate"]:
        raise BertlineError(
            f"{where}.end_learning_rate: given {settings['end_learning_rate']}, allowed is at most learning_rate, "
            f"{settings['learning_rate']}"
        )
    if share_or_steps(settings["warmup"], total) > total:
        raise BertlineError(
            f"{where}.warmup: given {settings['warmup']}, allowed is a share of the steps, or at most steps, "
            f"{total}; otherwise the learning rate is never reached"
        )
    if settings["schedule"] == "wsd":
        rise, decay = (share_or_steps(settings[key], total) for key in ("warmup", "decay"))
        if rise + decay > total:
            raise BertlineError(
                f"{where}.decay: warm-up ({rise:g} steps) and decay ({decay:g} steps) are longer than the phase "
                f"({total} steps); shorten one of them"
            )
    every = settings["publish_best_every"]
    if every is not None and not 1 <= every <= total:
        raise BertlineError(f"{where}.publish_best_every: given {every}, allowed is 1 to steps, {total}")
    warmup = settings["batch_size_warmup"]
    if warmup is not None and not 1 <= warmup["from"] <= settings["global_batch_size"]:
        raise BertlineError(
            f"{where}.batch_size_warmup.from: given {warmup['from']}, allowed is 1 to global_batch_size, "
            f"{settings['global_batch_size']}"
        )
    if warmup is not None and not 0 < share_or_steps(warmup["steps"], total) <= total:
        raise BertlineError(
            f"{where}.batch_size_warmup.steps: given {warmup['steps']}, allowed is a share of the steps above 0, or "
            f"at most steps, {total}"
        )


def check_static_masks(chosen: Mapping[str, Any], where: str) -> None:
    """Raise BertlineError, naming the key after `where`, for masking a dataset of statically masked samples.

    Args:
        chosen: the settings that differ from their defaults.
    """
    if "masking" in chosen:
        raise BertlineError(
            f"{where}.masking: given {chosen['masking']}, but the dataset's samples were masked before and keep their "
            "masks; leave it out"
        )


def check_packing(settings: Mapping[str, Any], model: Mapping[str, Any], where: str) -> None:
    """Raise BertlineError, naming the key after `where`, for packing a network with attention dropout."""
    published = 0.1 if model.get("architecture", "bert") == "bert" else 0.0
    dropout = model.get("attention_probs_dropout_prob", published)
    if settings["packing"] and dropout:
        raise BertlineError(
            f"{where}.packing: packed sequences have no attention dropout, and attention_probs_dropout_prob of the "
            f"model is {dropout}; set that to 0, or packing to false"
        )
