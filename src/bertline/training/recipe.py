"""The recipe of a phase: everything that alters its result, as JSON with every default filled in."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bertline.console import BertlineError
from bertline.encoding.masking import Masking
from bertline.training.settings import check_packing, check_together

Json = dict[str, Any]

# What every recipe has; `settings` are checked against a definition of the configuration's schema.
KEYS: Json = {
    "fingerprint": {"type": "string"},
    "model": {"type": "object"},
    "seed": {"type": "integer"},
    "settings": {"type": "object"},
}
SCHEMA = Path(__file__).parents[3] / "config/config.schema.yaml"
PACKAGES = ("bertline", "torch", "numpy", "h5py", "safetensors", "tokenizers")


def parse_recipe(text: str) -> Json:
    """Parse the recipe of a phase from JSON. Raises BertlineError naming the key that is missing or wrong."""
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise BertlineError(f"recipe: not JSON ({error}); give what a planned phase or a recipe.json holds") from None
    recipe = complete_recipe(given, "phase")
    check_together(recipe["settings"], "recipe.settings")
    check_packing(recipe["settings"], recipe["model"], "recipe.settings")
    return recipe


def complete_recipe(recipe: Any, kind: str, *, others: Sequence[str] = ()) -> Json:
    """Check a recipe against the configuration's schema; return it with the defaults of its settings filled in.

    Parameters
    ----------
    kind: the schema's definition of `settings`: phase, squad or classification.
    others: keys that it needs beside `KEYS`.

    Raises BertlineError naming the key that is missing or wrong.
    """
    # Here, so that training runs where jsonschema is not installed.
    from bertline.configuration import definition, fill_defaults, load_schema, validate

    schema = load_schema(SCHEMA)
    keys = KEYS | {"settings": {"$ref": f"#/$defs/{kind}"}}
    form = {"type": "object", "required": [*keys, *others], "properties": keys, "$defs": schema["$defs"]}
    validate(recipe, form, what="recipe")
    return {**recipe, "settings": fill_defaults(recipe["settings"], definition(schema, kind), schema)}


def masking_of(settings: Json) -> Masking:
    """Return the masking of a phase's settings."""
    return Masking(**settings["masking"])


def frozen_recipe(recipe: Json, *, device: torch.device, world_size: int, threads: int) -> Json:
    """Return the recipe with what computes it: versions, the code's commit, the hardware."""
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
    """Return the commit of the source tree and whether it has changes; None where it is no git checkout."""
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
