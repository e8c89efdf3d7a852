"""Outputs of a finished phase, and its export."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from bertline.files import read_json, write_atomically, write_json
from bertline.modeling.architectures import config_from_dict
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.weights import load_tensors, save_tensors


def publish_phase(output: Path, weights: Mapping[str, Tensor], journal: Path, recipe: Mapping[str, Any]) -> None:
    """Write model.safetensors, metrics.jsonl and, last, recipe.json: if it exists, the phase is finished."""
    save_tensors(output / "model.safetensors", weights)
    with write_atomically(output / "metrics.jsonl") as path:
        shutil.copyfile(journal, path)
    write_json(output / "recipe.json", recipe)


def export_phase(phase: Path, tokenizer: Path, output: Path) -> None:
    """Write a finished phase as a Hugging Face directory. Raises BertlineError if it is not finished.

    Args:
        phase: the phase's folder.
        tokenizer: the dataset's tokenizer.json.
        output: the directory to write.
    """
    config = config_from_dict(read_json(phase / "recipe.json")["model"])
    export_huggingface(config, load_tensors(phase / "model.safetensors"), tokenizer, output)
