"""The recipe of a phase: everything that alters its result, as JSON with every default filled in."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from bertline.console import BertlineError
from bertline.encoding.masking import Masking
from bertline.training.settings import check_packing, check_together

Json = dict[str, Any]

REQUIRED: Json = {
    "fingerprint": str,
    "model": dict,
    "seed": int,
    "settings": {
        "sequence_length": int,
        "global_batch_size": int,
        "steps": int,
        "batch_ramp": (dict, type(None)),
        "optimizer": ("lamb", "adamw", "muon", "lion"),
        "lamb_variant": ("nvidia", "paper"),
        "muon": {
            "momentum": (int, float),
            "nesterov": bool,
            "weight_decay": (int, float),
            "learning_rate_ratio": (int, float),
        },
        "learning_rate": (int, float),
        "learning_rate_scaling": ("none", "sqrt", "linear"),
        "base_batch_size": (int, type(None)),
        "schedule": ("polynomial", "linear", "cosine", "wsd", "constant"),
        "power": (int, float),
        "end_learning_rate": (int, float),
        "decay": (int, float),
        "warmup": (int, float),
        "weight_decay": (int, float),
        "betas": list,
        "epsilon": (int, float),
        "max_gradient_norm": (int, float),
        "masking": {"probability": (int, float), "whole_word": bool, "mask_only": bool},
        "corpus_weights": dict,
        "packing": bool,
        "precision": ("fp32", "tf32", "bf16", "fp16", "fp8"),
        "hand_over": ("weights", "weights+moments", "everything"),
        "publish_best_every": (int, type(None)),
    },
}
REQUIRED_OF_BATCH_RAMP: Json = {"from": int, "steps": (int, float)}
PACKAGES = ("bertline", "torch", "numpy", "h5py", "safetensors", "tokenizers")


def parse_recipe(text: str) -> Json:
    """Parse a recipe given as JSON text. Raises BertlineError naming the key that is missing or wrong."""
    try:
        recipe = json.loads(text)
    except json.JSONDecodeError as error:
        raise BertlineError(f"recipe: not JSON ({error})") from None
    _check(recipe, REQUIRED, "recipe")
    for key in ("sequence_length", "global_batch_size", "steps"):
        if recipe["settings"][key] < 1:
            raise BertlineError(f"recipe.settings.{key}: given {recipe['settings'][key]}, allowed is at least 1")
    if recipe["settings"]["batch_ramp"] is not None:
        _check(recipe["settings"]["batch_ramp"], REQUIRED_OF_BATCH_RAMP, "recipe.settings.batch_ramp")
    check_together(recipe["settings"], "recipe.settings")
    check_packing(recipe["settings"], recipe["model"], "recipe.settings")
    return recipe


def _check(given: Any, wanted: Any, where: str) -> None:
    if isinstance(wanted, dict):
        _check(given, dict, where)
        for key, inner in wanted.items():
            if key not in given:
                raise BertlineError(f"{where}: the key '{key}' is missing")
            _check(given[key], inner, f"{where}.{key}")
    elif isinstance(wanted, tuple) and isinstance(wanted[0], str):
        if given not in wanted:
            raise BertlineError(f"{where}: given {given!r}, allowed are {', '.join(wanted)}")
    elif not isinstance(given, wanted) or (isinstance(given, bool) and wanted is not bool):
        names = [kind.__name__ for kind in (wanted if isinstance(wanted, tuple) else (wanted,))]
        raise BertlineError(f"{where}: given {given!r}, allowed is of type {' or '.join(names)}")


def masking_of(settings: Json) -> Masking:
    """The masking that a phase's settings ask for."""
    return Masking(**settings["masking"])


def frozen_recipe(recipe: Json, *, device: torch.device, world_size: int, threads: int) -> Json:
    """The recipe together with what it was run by: versions, the code's commit, the hardware."""
    commit, dirty = _git_state()
    return {
        **recipe,
        "versions": {"python": platform.python_version(), **_versions()},
        "git_commit": commit,
        "git_dirty": dirty,
        "hardware": _hardware(device),
        "world_size": world_size,
        "threads": threads,
    }


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    versions["torch"] = torch.__version__  # says whether it is a CPU or CUDA build
    return versions


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git_state() -> tuple[str | None, bool | None]:
    """Commit of the source tree and whether it has changes; None where it is no git checkout."""
    folder = Path(__file__).parent
    outputs = []
    for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain"]):
        try:
            done = subprocess.run(  # noqa: S603
                ["git", "-C", str(folder), *arguments],  # noqa: S607
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None, None
        if done.returncode:
            return None, None
        outputs.append(done.stdout.strip())
    return outputs[0], bool(outputs[1])
