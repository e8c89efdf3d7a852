"""What a finished phase leaves behind, and its export."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertline.console import BertlineError
from bertline.files import read_json, write_atomically, write_json
from bertline.modeling.bert import BertConfig
from bertline.modeling.huggingface import export_huggingface


def publish_phase(output: Path, weights: Mapping[str, Tensor], journal: Path, recipe: Mapping[str, Any]) -> None:
    """Write model.safetensors, metrics.jsonl and, last, recipe.json: where it lies, the phase is finished."""
    with write_atomically(output / "model.safetensors") as path:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, path)
    with write_atomically(output / "metrics.jsonl") as path:
        shutil.copyfile(journal, path)
    write_json(output / "recipe.json", recipe)


def export_phase(phase: Path, tokenizer_json: Path, directory: Path) -> None:
    """Write a finished phase as a Hugging Face directory. Raises BertlineError when it is not finished."""
    try:
        weights = load_file(phase / "model.safetensors")
    except (SafetensorError, OSError) as error:
        raise BertlineError(f"{phase}/model.safetensors cannot be read ({error}); is the phase finished?") from None
    config = BertConfig.from_dict(read_json(phase / "recipe.json")["model"])
    export_huggingface(config, weights, tokenizer_json, directory)
