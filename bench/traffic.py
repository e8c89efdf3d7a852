"""Count the bytes that a training step moves through a GPU's memory, without a GPU.

    PYTHONPATH=src python bench/traffic.py
    PYTHONPATH=src python bench/traffic.py --models bert-base --tokens 8192 --precision fp32

The forward and backward pass of a packed micro-batch runs operator by operator on fake tensors, which have shapes and
types and no numbers (tests/unit/fake_gpu_device.py). An operator reads its arguments and writes its results once, and a
view moves nothing; caches are left out, and so are torch.compile, which merges operators, and the conversion of the
weights, once a step. The difference between networks of two layers and of one is what a layer moves. The unit is h
bytes per token and layer, with h the hidden size: copying the hidden states in bfloat16 moves 4 h. The last line is
JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal

sys.path.append(str(Path(__file__).parents[1] / "tests/unit"))
from fake_gpu_library import build_fake_gpu

LIBRARY = "BERTLINE_FAKE_GPU"
if LIBRARY in os.environ:
    ctypes.CDLL(os.environ[LIBRARY], mode=ctypes.RTLD_GLOBAL)

import torch  # noqa: E402
from fake_gpu_device import GPU, moved, on_fake_gpu  # noqa: E402
from steps import MODELS  # noqa: E402
from tabulate import tabulate  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from bertline.command_line import run_command  # noqa: E402
from bertline.files import read_json  # noqa: E402
from bertline.modeling.architectures import architecture_of  # noqa: E402
from bertline.modeling.attention import Packed  # noqa: E402
from bertline.modeling.network_config import config_from_dict  # noqa: E402
from bertline.modeling.weight_copies import WeightCopies  # noqa: E402
from bertline.training.objective import AUTOCAST, make_loss_fn, prepare_network  # noqa: E402

VOCABULARY, MASKED_EVERY = 30522, 7
CLASSES = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm"),
    "attention": ("_flash_attention_forward", "_flash_attention_backward"),
    "normalisation": ("native_layer_norm", "native_layer_norm_backward"),
    "dropout": ("native_dropout", "native_dropout_backward"),
    "activation": ("gelu", "gelu_backward"),
    "changes of type": ("_to_copy",),
    "residual sums": ("add", "add_"),
    "sums for biases": ("sum",),
    "copies": ("cat", "stack", "clone", "copy_", "select_backward", "slice_backward"),
}
WRITE_ONLY = ("zeros", "zeros_like", "new_zeros", "fill_", "zero_", "ones_like", "full_like", "arange")
NOTHING = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_unsafe_view")


class Traffic(TorchDispatchMode):
    """Count of the bytes that operators read and write, by name of the operator."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.split("::")[-1]
        written = _tensors(result)
        if written and not function.is_view and name not in NOTHING:
            read = [] if name in WRITE_ONLY else _tensors((args, kwargs))
            self.bytes[name] += sum(map(size_of, [*read, *written]))
        return result


def size_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's numbers; one that is expanded is read once."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1
    for length, stride in strides:
        count *= length if stride or not length else 1
    return count * tensor.element_size()


def _tensors(nested: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nested) if isinstance(leaf, Tensor) and leaf.device.type == "cuda"]


def class_of(name: str) -> str:
    """Return the class of an operator."""
    return next((found for found, names in CLASSES.items() if name in names), "other")


def count(model: dict[str, Any], layers: int, precision: str, tokens: int, length: int) -> Counter[str]:
    """Return the bytes of a forward and backward pass by class of operator."""
    description = {**model, "num_hidden_layers": layers, "vocab_size": VOCABULARY}
    if "attention_probs_dropout_prob" in model or model.get("architecture") != "modern":
        description["attention_probs_dropout_prob"] = 0.0
    config = config_from_dict(description)
    with torch.device("meta"):
        network = architecture_of(config).pretraining(config)
    with on_fake_gpu() as mode:
        prepare_network(network, precision, GPU)
        network = moved(network, mode).train()
        loss_fn = make_loss_fn(network, precision=precision, compiled=False)
        WeightCopies(network, AUTOCAST[precision])
        bounds = torch.arange(0, tokens + 1, length, dtype=torch.int32, device=GPU)
        ids = torch.zeros((1, tokens), dtype=torch.int64, device=GPU)
        packed = Packed(bounds, ids[0].clone(), length)
        positions = torch.arange(0, tokens, MASKED_EVERY, device=GPU)
        pairs = torch.zeros(len(bounds) - 1, dtype=torch.int64, device=GPU)
        traffic = Traffic()
        with traffic:
            found = loss_fn(ids, torch.zeros_like(ids), packed, positions, torch.zeros_like(positions), pairs)
            (found.mlm_loss + found.pair_loss).backward()
    classes: Counter[str] = Counter()
    for name, size in traffic.bytes.items():
        classes[class_of(name)] += size
    return classes


def main(
    *,
    models: tuple[str, ...] = ("bert-large", "modern-base"),
    precision: Literal["fp32", "bf16"] = "bf16",
    tokens: int = 32768,
    length: int = 512,
) -> None:
    """Print a table.

    Args:
        models: of config/models.
        precision: as in a phase.
        tokens: of a micro-batch.
        length: of its sequences.
    """
    if LIBRARY not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, LIBRARY: str(build_fake_gpu(Path(folder)))}
            raise SystemExit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)  # noqa: S603
    columns: dict[str, dict[str, float]] = {}
    for name in models:
        model = read_json(MODELS / f"{name}.json")
        one, two = (count(model, layers, precision, tokens, length) for layers in (1, 2))
        hidden = config_from_dict({**model, "vocab_size": VOCABULARY}).hidden_size
        columns[name] = {kind: (two[kind] - one[kind]) / (hidden * tokens) for kind in two}
    kinds = [*CLASSES, "other"]
    rows = [[kind, *(f"{column.get(kind, 0.0):.1f}" for column in columns.values())] for kind in kinds]
    beside = {name: sum(size for kind, size in found.items() if kind != kinds[0]) for name, found in columns.items()}
    rows.append(["all but matrix products", *(f"{size:.1f}" for size in beside.values())])
    print(f"{precision}, {tokens:,} tokens, h bytes per token and layer, torch {torch.__version__}")
    print(tabulate(rows, headers=["", *columns], disable_numparse=True))
    print(json.dumps({name: round(size, 1) for name, size in beside.items()}), flush=True)
    os._exit(0)  # autograd's thread for the fake GPU does not end


if __name__ == "__main__":
    run_command(main, __doc__)
