"""Profile of a step's time: a trace for chrome://tracing or Perfetto, and a table by class of kernel."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import torch
from tabulate import tabulate
from torch.profiler import ProfilerActivity, profile, schedule

from bertline.files import write_atomically, write_text

logger = logging.getLogger(__name__)

# Steps of this process: the first ones compile and fill caches.
SKIPPED, WARMED_UP, PROFILED = 5, 1, 5
# The first pattern that matches a kernel's name counts.
CLASSES = {
    "communication": r"nccl|c10d|allreduce|all_reduce",
    "attention": r"flash|attention|fmha|varlen",
    "matrix products": r"gemm|cutlass|::mm$|addmm|bmm|matmul|linear|cublas|nvjet",
    "optimizer": r"adam|lamb|_foreach|multi_tensor|newton|orthogonal",
    "compiled programs": r"CompiledFxGraph|triton|cpp_fused",
    "dropout": r"dropout|bernoulli|random",
    "normalisation": r"layer_norm|LayerNorm|native_norm|linalg_vector_norm",
    "copies": r"memcpy|memset|copy_|::fill_|::zero_|::cat$",
    "lookups": r"embedding|index|gather|scatter|sort",
}


def make_profiler(folder: Path) -> profile:
    """Make a profiler that writes `folder`/trace.json and `folder`/kernels.txt after eleven calls to its `step`."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return profile(
        activities=activities,
        schedule=schedule(wait=SKIPPED, warmup=WARMED_UP, active=PROFILED, repeat=1),
        on_trace_ready=lambda profiler: _write(profiler, folder),
    )


def class_of(kernel: str) -> str:
    """Return the class of a kernel by its name; `other` if none matches."""
    return next((name for name, pattern in CLASSES.items() if re.search(pattern, kernel, re.IGNORECASE)), "other")


def _write(profiler: profile, folder: Path) -> None:
    on_gpu = torch.cuda.is_available()
    milliseconds: dict[str, float] = {}
    for event in profiler.key_averages():
        spent = (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1000 / PROFILED
        name = class_of(event.key)
        milliseconds[name] = milliseconds.get(name, 0.0) + spent
    total = sum(milliseconds.values())
    rows = [
        (name, f"{spent:,.2f}", f"{100 * spent / total:.1f}")
        for name, spent in sorted(milliseconds.items(), key=lambda row: -row[1])
        if spent
    ]
    device = "GPU" if on_gpu else "CPU"
    table = tabulate(rows, headers=["kernels", f"{device} ms a step", "percent"], disable_numparse=True)
    write_text(folder / "kernels.txt", f"{table}\n")
    with write_atomically(folder / "trace.json") as path:
        profiler.export_chrome_trace(str(path))
    logger.info("profiled %d steps, written to %s:\n%s", PROFILED, folder, table)
