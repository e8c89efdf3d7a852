"""The frozen recipe of a training: the recipe and the circumstances of the run, written at its start."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from bertline.console import BertlineError
from bertline.files import CHECKOUT, one_line_damage, read_object, write_json
from bertline.results import paths
from bertline.training.checkpoints import checkpoint_of_another
from bertline.training.lock import own_job

CODE = ("src", "workflow", "Snakefile")  # what results depend on; configurations may be anywhere, also untracked
PACKAGES = ("bertline", "torch", "numpy", "h5py", "safetensors", "tokenizers")


def write_started(checkpoints: Path, recipe: Mapping[str, Any]) -> list[str]:
    """Write `checkpoints`/recipe.json when a trainer starts or resumes.

    Returns the jobs so far, including this one.

    Args:
        recipe: frozen, with the circumstances of this trainer.
    """
    path = checkpoints / paths.RECIPE
    before = _read_started(path)
    earlier = before.get("jobs", []) if before.get("fingerprint") == recipe["fingerprint"] else []
    job = own_job()
    with one_line_damage(path):
        jobs = list(dict.fromkeys([*earlier, *([job] if job else [])]))
    write_json(path, {**recipe, "jobs": jobs})
    return jobs


def check_folder(output: Path, fingerprint: str) -> None:
    """Raise BertlineError if the folder of a phase has outputs, or a training, of another fingerprint."""
    checkpoints = output / paths.CHECKPOINTS
    for folder, what in ((output, "finished"), (checkpoints, "unfinished")):
        theirs = _read_started(folder / paths.RECIPE).get("fingerprint", fingerprint)
        if theirs != fingerprint:
            raise BertlineError(f"{output} is the {what} phase {theirs}, not {fingerprint}; name another output")
    if other := checkpoint_of_another(checkpoints, fingerprint):
        raise BertlineError(
            f"{other} is a checkpoint of another model than {fingerprint}; name another output, or move it away"
        )


def _read_started(path: Path) -> dict[str, Any]:
    try:
        return read_object(path) if path.exists() else {}
    except BertlineError as error:
        problem = str(error).partition(";")[0]
        raise BertlineError(f"{problem}; delete it, and run the same command again, which writes it anew") from None


def frozen_recipe(recipe: dict[str, Any], *, device: torch.device, world_size: int, threads: int) -> dict[str, Any]:
    """Return the recipe with versions, the code's commit and the hardware."""
    commit, dirty = _git_state()
    return {
        **recipe,
        "versions": {"python": platform.python_version(), **_versions()},
        "git_commit": commit,
        "git_dirty": dirty,
        "hardware": hardware_of(device),
        "world_size": world_size,
        "threads": threads,
    }


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    versions["torch"] = torch.__version__  # its suffix tells CPU from CUDA builds
    return versions


def hardware_of(device: torch.device) -> str:
    """Return the name of a GPU, or of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _git_state() -> tuple[str | None, bool | None]:
    """Return the commit of the source tree and whether the code there has changes; None if git cannot tell.

    In a container the commit is that of the image, if its build was given one and no checkout is used instead.
    """
    # Git otherwise refuses another user's checkout, as that of a volume that containers share.
    owner = ["-c", f"safe.directory={CHECKOUT}"]
    command = ["git", *owner, "-C", str(CHECKOUT), "status", "--porcelain=v2", "--branch", "--", *CODE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        of_image = None if (CHECKOUT / ".git").exists() else os.environ.get("BERTLINE_COMMIT")
        return of_image or None, None
    lines = done.stdout.splitlines()  # the first is "# branch.oid" and the commit
    return lines[0].split()[2], not all(line.startswith("#") for line in lines)
