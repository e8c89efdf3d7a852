"""Profiles of training steps: a trace and a table by class of kernel, or a range for Nsight's tools."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tabulate import tabulate
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule

from bertline.console import BertlineError
from bertline.files import write_atomically, write_text

logger = logging.getLogger(__name__)

PAST = "steps %d to %d are not profiled: training resumes at step %d"
NOT_REACHED = "steps %d to %d are not profiled: training ended at step %d"

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


@contextmanager
def profiled(steps: tuple[int, int], folder: Path, *, done: int) -> Iterator[Callable[[], None]]:
    """Profile steps by PyTorch; yield a function to call after each step of this process.

    Writes `folder`/trace.json, for chrome://tracing or Perfetto, and `folder`/kernels.txt.

    Args:
        steps: the first and the last one to profile.
        done: number of the last step before this process's first.
    """
    before = steps[0] - 1 - done
    if before < 0:
        logger.warning(PAST, *steps, done)
        yield lambda: None
        return
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    number = steps[1] - steps[0] + 1
    finished = 0

    def write(profiler: profile) -> None:
        if finished > before:
            _write(profiler, folder, steps[0], min(finished - before, number))

    with profile(
        activities=activities,
        # A step to warm the profiler up, if there is one before.
        schedule=schedule(wait=max(0, before - 1), warmup=min(1, before), active=number, repeat=1),
        on_trace_ready=write,
    ) as profiler:

        def after_step() -> None:
            nonlocal finished
            finished += 1
            profiler.step()

        yield after_step
        if finished <= before:
            logger.warning(NOT_REACHED, *steps, done + finished)


@contextmanager
def marked(steps: tuple[int, int], *, done: int) -> Iterator[Callable[[], None]]:
    """Mark steps as the range that nsys and ncu record; yield a function to call after each step of this process.

    Steps before the first one of this process cannot be marked, and a training may end within the range: both are
    logged.

    With `nsys profile --capture-range=cudaProfilerApi` or `ncu --profile-from-start off`. Arguments as of `profiled`.

    Raises BertlineError without a GPU.
    """
    if not torch.cuda.is_available():
        raise BertlineError("--profiler nsight: there is no GPU here; leave it out, and PyTorch profiles the CPU")
    if steps[0] <= done:
        logger.warning(PAST, *steps, done)
        yield lambda: None
        return
    finished = done

    def after_step() -> None:
        nonlocal finished
        finished += 1
        if finished == steps[1]:
            end()
        begin_if_due()

    def begin_if_due() -> None:
        if finished == steps[0] - 1:
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            torch.cuda.nvtx.range_push(f"steps {steps[0]} to {steps[1]}")

    def end() -> None:
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
        torch.cuda.profiler.stop()

    begin_if_due()
    yield after_step
    if finished < steps[0]:
        logger.warning(NOT_REACHED, *steps, finished)
    elif finished < steps[1]:
        end()
        logger.warning("only steps %d to %d are profiled: training ended", steps[0], finished)


def class_of(kernel: str) -> str:
    """Return the class of a kernel by its name; `other` if none matches."""
    return next((name for name, pattern in CLASSES.items() if re.search(pattern, kernel, re.IGNORECASE)), "other")


def kernel_milliseconds(profiler: profile, steps: int) -> dict[str, float]:
    """Return the milliseconds a step that each kernel took, by name: on a GPU if there is one, otherwise operators.

    Annotations, such as that of a step, are events, too: on a CPU with the time of Python, on a GPU with that of their
    kernels, as operators.
    """
    events = [event for event in profiler.key_averages() if not event.is_user_annotation]
    if not torch.cuda.is_available():
        return {event.key: event.self_cpu_time_total / 1000 / steps for event in events}
    kernels = [event for event in events if event.device_type == DeviceType.CUDA]
    return {event.key: event.self_device_time_total / 1000 / steps for event in kernels}


def _write(profiler: profile, folder: Path, first: int, number: int) -> None:
    milliseconds: defaultdict[str, float] = defaultdict(float)
    for name, spent in kernel_milliseconds(profiler, number).items():
        milliseconds[class_of(name)] += spent
    total = sum(milliseconds.values())
    rows = [
        (name, f"{spent:,.2f}", f"{100 * spent / total:.1f}")
        for name, spent in sorted(milliseconds.items(), key=lambda row: -row[1])
        if spent
    ]
    device = "GPU" if torch.cuda.is_available() else "CPU"
    table = tabulate(rows, headers=["kernels", f"{device} ms a step", "percent"], disable_numparse=True)
    steps = f"step {first}" if number == 1 else f"steps {first} to {first + number - 1}"
    write_text(folder / "kernels.txt", f"{steps}\n{table}\n")
    with write_atomically(folder / "trace.json") as path:
        profiler.export_chrome_trace(str(path))
    logger.info("profiled %s, written to %s:\n%s", steps, folder, table)
