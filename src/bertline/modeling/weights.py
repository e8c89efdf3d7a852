"""Input and output of safetensors files, with actionable errors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertline.console import BertlineError
from bertline.files import write_atomically
from bertline.modeling.huggingface_config import SEVERAL_FILES, WEIGHTS_INDEX


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device to `path`, complete or not at all. Raises OSError, as for a full disk."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with write_atomically(path) as temporary:
        try:
            save_file(content, temporary, {"format": "pt"})
        except SafetensorError as error:
            # The package reports the system's error only in its text.
            found = re.search(r"\(os error (\d+)\)", str(error))
            if found is None:
                raise
            raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file. Raises BertlineError when it is missing or damaged."""
    if path.is_dir():
        raise BertlineError(f"{path} is a folder; put the file of that name in its place")
    try:
        return load_file(path)
    except FileNotFoundError:
        if path.with_name(WEIGHTS_INDEX).exists():
            raise BertlineError(f"{path.parent} {SEVERAL_FILES}") from None
        raise BertlineError(f"{path} does not exist") from None
    except (SafetensorError, OSError) as error:
        raise BertlineError(f"{path} is not a complete safetensors file ({error}); fetch or make it again") from None
