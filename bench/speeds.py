"""Speeds of functions that take turns, for the comparisons of whole fine-tunings, rankings and features."""

import platform
import time
from collections.abc import Callable, Mapping

import torch
import transformers

from bertline.training import processor

Work = Callable[[], int]  # returns how many units it has processed


def precisions_of(device: torch.device) -> dict[str, torch.dtype | None]:
    """Return the precisions to compare, by name, with the type for autocast: bf16 only where it is not emulated."""
    fast_bf16 = device.type == "cuda" or processor.has_fast_bf16()
    return {"fp32": None, "bf16": torch.bfloat16} if fast_bf16 else {"fp32": None}


def describe_machine(device: torch.device, threads: int) -> str:
    """Return the names of the processor or the GPU, and of the versions."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    return f"{name}, torch {torch.__version__}, transformers {transformers.__version__}, {threads} threads"


def speeds_of(work: Mapping[str, Work], rounds: int, device: torch.device) -> dict[str, list[float]]:
    """Return the units per second of each function in each round; they alternate, after an untimed call of each.

    Seconds are processor times; on a GPU, wall times.
    """
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    speeds: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, run in work.items():
            started = clock()
            units = run()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number:
                speeds[name].append(units / (clock() - started))
    return speeds
