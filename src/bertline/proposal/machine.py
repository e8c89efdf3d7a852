"""Hardware of this machine: cores, memory, GPUs, disk. Does not import PyTorch, which takes seconds."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import metadata

import psutil

from bertline.console import BertlineError
from bertline.training import processor

AMPERE = (8, 0)  # compute capability from which GPUs have bf16


@dataclass(frozen=True)
class Machine:
    """Hardware to train on; bytes. `gpus` are names, empty to train on CPUs, `gpu_memory` is the smallest one's."""

    cores: int
    memory: int
    disk: int  # free in this folder
    gpus: tuple[str, ...] = ()
    gpu_memory: int = 0
    has_fast_bf16: bool = True
    has_compiler: bool = True  # a C++ compiler, for --compile on CPUs

    @property
    def device(self) -> str:
        """Description in a few words."""
        if self.gpus:
            return f"{len(self.gpus)} x {self.gpus[0]}, {self.gpu_memory / 1e9:.0f} GB each"
        return f"{self.cores} cores, {self.memory / 1e9:.0f} GB"


def this_machine(gpus: int | None = None) -> Machine:
    """Return the hardware that this process may use.

    Args:
        gpus: number to use, 0 for none; None for all.

    Raises BertlineError if there are fewer GPUs, or the installed PyTorch cannot use them.
    """
    names, memory, has_fast_bf16 = _gpus()
    if gpus is not None and gpus > len(names):
        there = f"this machine has {len(names)}" if names else "this machine has none that NVIDIA's driver lists"
        raise BertlineError(f"GPUS={gpus}: {there} (see nvidia-smi); give GPUS=0 to train on the CPUs")
    wanted = names if gpus is None else names[:gpus]
    if wanted and (build := metadata.version("torch")).endswith("+cpu"):
        raise BertlineError(
            f"this machine has a GPU ({wanted[0]}), but the installed PyTorch {build} is a build for CPUs; remove "
            ".venv and run `make setup` without TORCH_OPTIONS, or give GPUS=0 to train on the CPUs"
        )
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory=psutil.virtual_memory().available,
        disk=shutil.disk_usage(".").free,
        gpus=wanted,
        gpu_memory=memory if wanted else 0,
        has_fast_bf16=has_fast_bf16 if wanted else processor.has_fast_bf16(),
        has_compiler=shutil.which("g++") is not None or shutil.which("clang++") is not None,
    )


def _gpus() -> tuple[tuple[str, ...], int, bool]:
    """Return the names of NVIDIA's GPUs, the smallest one's memory, and whether all have bf16."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), 0, False
    try:
        found = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = tuple(str(pynvml.nvmlDeviceGetName(gpu)) for gpu in found)
        memory = min((int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total) for gpu in found), default=0)
        return names, memory, all(pynvml.nvmlDeviceGetCudaComputeCapability(gpu) >= AMPERE for gpu in found)
    finally:
        pynvml.nvmlShutdown()
