"""Profile of a network's fastest step: time by class of kernel, idle time, and the ten longest kernels."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from steps import WARM_UP_STEPS, group_of_one, synchronize
from torch.profiler import ProfilerActivity, profile

from bertline.training.profiling import class_of, kernel_milliseconds
from gpu_parts.context import Context, Result
from gpu_parts.speed import WAYS, Case, cases, make_step, open_data

STEPS, MAX_KERNELS = 2, 10
# `class_of` is finer than needed here.
ELEMENTWISE = ("compiled programs", "dropout", "normalisation", "lookups", "other")


def run(context: Context) -> Iterator[Result]:
    """Yield the milliseconds of a step by class, then the longest kernels."""
    with tempfile.TemporaryDirectory() as folder, group_of_one(context.threads) as group:
        case = fastest(context)
        step = make_step(context, case, open_data(context, Path(folder), group), group)
        for _ in range(WARM_UP_STEPS):
            step()
        synchronize(group.device)
        on_gpu = group.device.type == "cuda"
        activities = [ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]
        with profile(activities=activities) as profiler:
            started = time.perf_counter()
            for _ in range(STEPS):
                step()
            synchronize(group.device)
            seconds = time.perf_counter() - started
        step.close()
    print(profiler.key_averages().table(sort_by="self_device_time_total" if on_gpu else "self_cpu_time_total"))
    kernels = kernel_milliseconds(profiler, STEPS)
    milliseconds: dict[str, float] = {}
    for name, spent in kernels.items():
        found = class_of(name)
        found = "elementwise" if found in ELEMENTWISE else found
        milliseconds[found] = milliseconds.get(found, 0.0) + spent
    wall = 1000 * seconds / STEPS
    milliseconds["idle"] = max(0.0, wall - sum(milliseconds.values()))
    yield {
        "case": case.name,
        "milliseconds": round(wall, 2),
        **{name: round(spent, 2) for name, spent in sorted(milliseconds.items(), key=lambda item: -item[1]) if spent},
    }
    longest = sorted(kernels.items(), key=lambda item: -item[1])[:MAX_KERNELS]
    for number, (name, spent) in enumerate(longest, 1):
        yield {"case": f"kernel {number}", "milliseconds": round(spent, 2), "kernel": name[:120]}


def fastest(context: Context) -> Case:
    """Return the engine's case with the most tokens per second in part `speed`; if none was measured, the first."""
    ours = {case.name: case for case in cases(context) if case.way != WAYS[-1]}
    measured = {
        result["case"]: result["tokens_per_second"]
        for result in context.results("speed")
        if result.get("network") == context.network and "tokens_per_second" in result and result["case"] in ours
    }
    return ours[max(measured, key=lambda name: measured[name])] if measured else next(iter(ours.values()))
