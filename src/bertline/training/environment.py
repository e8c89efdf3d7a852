"""Environment variables that PyTorch and NCCL read when they start: set them before PyTorch is imported."""

from __future__ import annotations

import os

# Micro-batches of many shapes fragment the memory of a GPU unless segments can grow.
GROWING_SEGMENTS = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
# cuBLAS needs a fixed workspace. NCCL otherwise chooses its algorithm by measurements, and each adds in another order.
SAME_BITS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}


def set_environment(*, compiled: bool = False, deterministic: bool = False) -> None:
    """Set the variables that a training with these options needs, except those that are set already."""
    variables: dict[str, str] = {}
    if not compiled and "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # the older name
        variables |= GROWING_SEGMENTS
    if deterministic:
        variables |= SAME_BITS
    for name, value in variables.items():
        os.environ.setdefault(name, value)
