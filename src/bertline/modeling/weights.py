"""Input and output of safetensors files, with actionable errors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertline.console import DISK_IS_FULL, BertlineError
from bertline.files import write_atomically
from bertline.modeling.huggingface_config import SEVERAL_FILES, WEIGHTS_INDEX


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device to `path`, complete or not at all. Raises OSError when the disk is full."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with write_atomically(path) as temporary:
        try:
            save_file(content, temporary, {"format": "pt"})
        except SafetensorError as error:
            # The package reports the system's error only in its text.
            for number in DISK_IS_FULL:
                if f"os error {number}" in str(error):
                    raise OSError(number, "no space left", str(path)) from None
            raise


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
