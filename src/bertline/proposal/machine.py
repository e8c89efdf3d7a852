"""Hardware of this machine: cores, memory, GPUs, disk. Does not import PyTorch, which takes seconds."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from bertline.console import BertlineError
from bertline.limits import available_cores, available_memory
from bertline.training import processor

AMPERE = (8, 0)  # compute capability from which GPUs have bf16
VISIBLE = "CUDA_VISIBLE_DEVICES"


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
    if gpus is not None and not 0 <= gpus <= len(names):
        there = f"this machine has {len(names)}" if names else "this machine has none that NVIDIA's driver lists"
        if (shown := os.environ.get(VISIBLE)) is not None:
            there = f"with {VISIBLE}={shown} there are {len(names)}"
        raise BertlineError(f"GPUS={gpus}: {there} (see nvidia-smi); give GPUS=0 to train on the CPUs")
    wanted = names if gpus is None else names[:gpus]
    if wanted and (build := metadata.version("torch")).endswith("+cpu"):
        raise BertlineError(
            f"this machine has a GPU ({wanted[0]}), but the installed PyTorch {build} is a build for CPUs; remove "
            ".venv and run `make setup` without TORCH_OPTIONS, or give GPUS=0 to train on the CPUs"
        )
    return Machine(
        cores=available_cores(),
        memory=available_memory(),
        disk=shutil.disk_usage(".").free,
        gpus=wanted,
        gpu_memory=memory if wanted else 0,
        has_fast_bf16=has_fast_bf16 if wanted else processor.has_fast_bf16(),
        has_compiler=shutil.which("g++") is not None or shutil.which("clang++") is not None,
    )


def use_gpus(number: int | None) -> Machine:
    """Return what `this_machine` does; if no GPU is to be used, hide them from the processes that this one starts."""
    machine = this_machine(number)
    if number == 0:
        os.environ[VISIBLE] = ""
    return machine


def _gpus() -> tuple[tuple[str, ...], int, bool]:
    """Return the names of NVIDIA's GPUs that CUDA shows, the smallest one's memory, and whether all have bf16."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), 0, False
    try:
        found = _visible_gpus(os.environ.get(VISIBLE))
        names = tuple(str(pynvml.nvmlDeviceGetName(gpu)) for gpu in found)
        memory = min((int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total) for gpu in found), default=0)
        return names, memory, all(_has_bf16(gpu) for gpu in found)
    finally:
        pynvml.nvmlShutdown()


def _visible_gpus(visible: str | None) -> list[Any]:
    """Return NVML's handles of the GPUs that CUDA shows: NVML itself lists all.

    Args:
        visible: CUDA_VISIBLE_DEVICES, indices in NVML's order or the beginnings of UUIDs. The first that there is not
            ends the list.
    """
    import pynvml

    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    if visible is None:
        return _used_by_cuda(gpus)
    uuids = [str(pynvml.nvmlDeviceGetUUID(gpu)) for gpu in gpus]
    chosen: list[int] = []
    for entry in map(str.strip, visible.split(",")):
        if entry.startswith("MIG-") and not chosen:  # CUDA uses one slice of a GPU, and nothing else
            with suppress(pynvml.NVMLError):
                return [pynvml.nvmlDeviceGetHandleByUUID(entry)]
        if entry.startswith("GPU-"):
            matching = [index for index, uuid in enumerate(uuids) if uuid.startswith(entry)]
        else:
            matching = [int(entry)] if entry.isdecimal() and int(entry) < len(gpus) else []
        if len(matching) != 1:
            break
        if matching[0] in chosen:  # CUDA takes a list with a repetition for an empty one
            return []
        chosen += matching
    return _used_by_cuda([gpus[index] for index in chosen])


def _used_by_cuda(gpus: list[Any]) -> list[Any]:
    """Return NVML's handles of what CUDA uses of GPUs: the first slice (MIG) if any is divided, otherwise all.

    A divided GPU without slices cannot be used.
    """
    divided = [gpu for gpu in gpus if _is_divided(gpu)]
    if slices := [one for gpu in divided if (one := _first_slice(gpu)) is not None]:
        return slices[:1]
    return [gpu for gpu in gpus if gpu not in divided]


def _is_divided(gpu: Any) -> bool:
    import pynvml

    with suppress(pynvml.NVMLError):  # a GPU that cannot be divided
        return bool(pynvml.nvmlDeviceGetMigMode(gpu)[0])
    return False


def _first_slice(gpu: Any) -> Any:
    """Return NVML's handle of the first slice of a divided GPU, None if it has none."""
    import pynvml

    with suppress(pynvml.NVMLError):
        for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            with suppress(pynvml.NVMLError):  # nothing at this place, or not for this container
                return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
    return None


def _has_bf16(gpu: Any) -> bool:
    """Return whether a GPU, or a slice of one, has bf16: only GPUs since Ampere have slices."""
    import pynvml

    with suppress(pynvml.NVMLError):  # the driver may not tell the capability of a slice
        return bool(pynvml.nvmlDeviceGetCudaComputeCapability(gpu) >= AMPERE)
    return True
