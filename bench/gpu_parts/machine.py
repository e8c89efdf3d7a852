"""The machine: names and versions, the rates of matrix products, and the bandwidth of copies."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Callable, Iterator

import torch
from steps import synchronize, time_step
from torch import Tensor

from gpu_parts.context import Context, Result

PACKAGES = ("torch", "triton", "transformers", "tokenizers", "numpy", "h5py", "safetensors")
ROUNDS, SECONDS = 20, 2.0


def run(context: Context) -> Iterator[Result]:
    """Yield names and versions, then the rates."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    yield {"case": "names", **names(device)}
    size = 256 if context.tiny else 8192
    yield {"case": f"bf16 products of {size} x {size}", "tflops": bf16_peak(device, size)}
    elements = 1 << (20 if context.tiny else 30)  # of 4 bytes: well past any cache
    yield {"case": "copy within the device, read + written", "gigabytes_per_second": _copies(device, device, elements)}
    if device.type == "cuda":
        bandwidth = _copies(torch.device("cpu"), device, elements // 4)
        yield {"case": "copy from pinned memory", "gigabytes_per_second": bandwidth / 2}


def names(device: torch.device) -> Result:
    """Return the names and versions of the machine and its software."""
    found: Result = {"python": platform.python_version(), "cores": os.cpu_count()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["torch"] = torch.__version__  # with the build
    if device.type != "cuda":
        return {**found, "device": platform.processor() or platform.machine()}
    import pynvml

    pynvml.nvmlInit()
    properties = torch.cuda.get_device_properties(device)
    return {
        **found,
        "device": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }


def bf16_peak(device: torch.device, size: int) -> float:
    """Return the TFLOP/s of bf16 products of square matrices with random numbers; zeros would be faster."""
    first, second = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return _tflops(lambda: first @ second, size, device)


def _tflops(multiply: Callable[[], Tensor], size: int, device: torch.device) -> float:
    def products() -> None:
        for _ in range(10):
            multiply()

    seconds, _ = time_step(products, device, rounds=ROUNDS, seconds=SECONDS)
    return float(f"{10 * 2 * size**3 / seconds / 1e12:.4g}")


def _copies(source: torch.device, target: torch.device, elements: int) -> float:
    """Return the gigabytes read and written per second."""
    first = torch.empty(elements, dtype=torch.float32, device=source).normal_()
    if source != target:
        first = first.pin_memory()
    second = torch.empty(elements, dtype=torch.float32, device=target)

    def copy() -> None:
        second.copy_(first, non_blocking=True)

    synchronize(target)
    times = [time_step(copy, target, rounds=ROUNDS, seconds=SECONDS)[0] for _ in range(2)]
    return round(2 * 4 * elements / statistics.median(times) / 1e9, 1)
