"""Variables for PyTorch and NCCL follow the options, those of the user stay, and an unused GPU is reported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertline.files import CHECKOUT
from bertline.training.distributed import process_group
from bertline.training.environment import set_environment

GROWING = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
SAME_BITS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        ({}, {}, GROWING),
        ({"compiled": True}, {}, {}),
        ({"compiled": True, "deterministic": True}, {}, SAME_BITS),
        ({}, {"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8"}, {}),
        ({"deterministic": True}, {"NCCL_ALGO": "Tree"}, {**GROWING, **SAME_BITS, "NCCL_ALGO": "Tree"}),
    ],
    ids=str,
)
def test_variables_follow_the_options(monkeypatch, options, given, expected):
    variables = dict(given)
    monkeypatch.setattr("os.environ", variables)
    set_environment(**options)
    assert variables == {**given, **expected}


def test_they_are_set_before_pytorch_is_imported():
    code = "import sys; import bertline.training.environment; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


AT_IMPORT_OF_TORCH = """
import importlib.abc, os, runpy, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print(os.environ.get("PYTORCH_ALLOC_CONF"), flush=True)
            os._exit(0)

sys.meta_path.insert(0, Finder())
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.parametrize("script", ["pretrain", "finetune", "time_steps", "time_finetuning"])
def test_a_trainer_lets_the_segments_of_a_gpu_grow(script):
    files = ["--recipe=recipe.json", "--output=output"]
    files += {"pretrain": ["--dataset=dataset.json"], "finetune": ["--tokenizer=tokenizer.json"]}.get(script, [])
    command = [sys.executable, "-c", AT_IMPORT_OF_TORCH, f"workflow/scripts/{script}.py", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout == "expandable_segments:True\n"


def test_a_trainer_reports_that_its_pytorch_cannot_use_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = process_group.Group(0, 1, torch.device("cpu"))
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(process_group, "NVIDIA_DRIVER", tmp_path / "absent")
    assert process_group.describe(group) == "one process on CPUs"
    monkeypatch.setattr(process_group, "NVIDIA_DRIVER", tmp_path)
    assert re.search(
        "this machine has a GPU, but PyTorch .* is a build for CPUs: .* without TORCH_OPTIONS",
        process_group.describe(group),
    )
