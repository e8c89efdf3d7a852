"""Variables for PyTorch and NCCL follow the options, and those of the user stay."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bertline.training.environment import set_environment
from bertline.training.options import Options

GROWING = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
SAME_BITS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        (Options(), {}, GROWING),
        (Options(compiled=True), {}, {}),
        (Options(compiled=True, deterministic=True), {}, SAME_BITS),
        (Options(), {"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8"}, {}),
        (Options(deterministic=True), {"NCCL_ALGO": "Tree"}, {**GROWING, **SAME_BITS, "NCCL_ALGO": "Tree"}),
    ],
    ids=str,
)
def test_variables_follow_the_options(monkeypatch, options, given, expected):
    variables = dict(given)
    monkeypatch.setattr("os.environ", variables)
    set_environment(options)
    assert variables == {**given, **expected}


def test_they_are_set_before_pytorch_is_imported():
    code = "import sys; import bertline.training.environment; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
