"""Compare the speed of pretraining on a CPU with transformers' BertForPreTraining, alternating in one process.

    python bench/train.py results/runs/demo/dataset/dataset.json --threads 2

Both compute the same batches of real samples, two micro-batches of 8 x 128 before each update, with dropout 0.1 and
fused AdamW. Bertline runs the engine as in a phase: it reads, masks, accumulates, clips and steps. transformers gets
prepared batches, and the faster of its sdpa and eager attention counts. Freed memory stays with the process for both,
as in a phase, which makes transformers faster than it is by itself. Rounds alternate; a ratio is the median over rounds
of transformers' time / Bertline's. Also measured are the share of a step spent waiting for data, and the share of time
for checkpoints at the default interval. Bertline's faster precision is compared with the rate of the machine's own
matrix products in the same rounds, and its time is divided among the classes of kernels. bf16 is left out on a
processor that is faster in fp32. The last line is JSON.

bench/gpu.py measures a GPU.
"""

import itertools
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import transformers
from steps import (
    WARM_UP_STEPS,
    OurStep,
    Step,
    batches_of_transformers,
    group_of_one,
    make_our_step,
    make_recipe,
    make_transformers_model,
    make_transformers_step,
    read_model,
    take_turns,
)
from torch.profiler import ProfilerActivity, profile

from bertline.command_line import run_command
from bertline.training import processor
from bertline.training.checkpoints import CheckpointWriter, Retention
from bertline.training.data.opening import TrainingData, open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.flops import flops_of
from bertline.training.optimizers.registry import optimizer_tensors
from bertline.training.options import Options
from bertline.training.profiling import class_of
from bertline.training.started import hardware_of

GLOBAL_BATCH, MICRO_BATCH, LENGTH = 16, 8, 128  # samples, samples, tokens
PRODUCT, PRODUCTS = 2048, "products"  # rows and columns of the matrices whose product's rate counts as the peak
PROFILED = 3  # steps
TYPES, ATTENTIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}, ("sdpa", "eager")


def compare(shape: str, data: TrainingData, group: Group, rounds: int, compiled: bool) -> dict[str, float]:
    """Time the alternating steps of one shape; print the times and return the ratios."""
    precisions = [kind for kind in TYPES if kind == "fp32" or group.device.type == "cuda" or processor.has_fast_bf16()]
    model, settings = read_model(f"bert-{shape}"), {"optimizer": "adamw", "global_batch_size": GLOBAL_BATCH}
    recipes = {kind: make_recipe(model, precision=kind, **settings) for kind in precisions}
    batching = Batching(LENGTH, MICRO_BATCH)
    batches = batches_of_transformers(recipes["fp32"], data, group, batching, rounds + WARM_UP_STEPS)
    steps: dict[str, Step] = {}
    for attention, precision in itertools.product(ATTENTIONS, precisions):
        theirs = make_transformers_model(recipes["fp32"], data, group.device, attention)
        steps[f"transformers {precision} {attention}"] = make_transformers_step(
            theirs, theirs, batches, group.device, precision
        )
    ours = {kind: make_our_step(recipes[kind], data, group, batching, compiled=compiled) for kind in precisions}
    products = {f"{PRODUCTS} {kind}": product_step(TYPES[kind], group.device) for kind in precisions}
    steps |= {f"ours {kind}": step for kind, step in ours.items()} | products
    seconds = take_turns(steps, rounds, group.device)
    peaks = {kind: 2 * PRODUCT**3 / min(seconds.pop(f"{PRODUCTS} {kind}")) for kind in precisions}

    def best(precision: str) -> list[float]:
        return min((seconds[f"transformers {precision} {kind}"] for kind in ATTENTIONS), key=statistics.median)

    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"  {shape:5} {name:24} {1000 * median:9.1f} ms  {GLOBAL_BATCH / median:8.1f} sequences/s", flush=True)
    fastest = min(precisions, key=lambda precision: statistics.median(seconds[f"ours {precision}"]))
    in_all = sum(value for kind in ours for value in seconds[f"ours {kind}"])
    step, peak = ours[fastest], peaks[fastest]
    rate = flops_of(step.learner.model, step.batch) / statistics.median(seconds[f"ours {fastest}"])
    print(f"  {shape:5} ours {fastest}: {rate / 1e9:.0f} of the {peak / 1e9:.0f} GFLOP/s of {fastest} products here")
    print_classes(f"{shape:5} ours {fastest}", step)
    return {
        f"{shape}_vs_transformers": ratio(best("fp32"), seconds[f"ours {fastest}"]),
        f"{shape}_equal_precision": min(ratio(best(kind), seconds[f"ours {kind}"]) for kind in precisions),
        f"{shape}_share_of_{fastest}_peak": round(rate / peak, 3),
        f"{shape}_data_wait_share": round(sum(step.waited for step in ours.values()) / in_all, 5),
        f"{shape}_checkpoint_share": checkpoint_share(step),
    }


def product_step(dtype: torch.dtype, device: torch.device) -> Step:
    """Return a function that computes one large product of matrices."""
    first, second, product = (torch.randn(PRODUCT, PRODUCT, device=device).to(dtype) for _ in range(3))

    def step() -> None:
        torch.mm(first, second, out=product)

    return step


def print_classes(name: str, step: OurStep) -> None:
    """Print the share of each class of kernels in the processor time of a few steps."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(PROFILED):
            step()
    spent: defaultdict[str, float] = defaultdict(float)
    for event in profiler.key_averages():
        spent[class_of(event.key)] += event.self_cpu_time_total
    total = sum(spent.values())
    shares = (f"{kind} {100 * time / total:.1f} %" for kind, time in sorted(spent.items(), key=lambda pair: -pair[1]))
    print(f"  {name}, by kernels: {', '.join(shares)}", flush=True)


def ratio(theirs: list[float], ours: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(theirs, ours, strict=True)), 2)


def checkpoint_share(step: OurStep) -> float:
    """Return the share of time that training pauses to copy its state for checkpoints, at the default interval."""
    with tempfile.TemporaryDirectory() as folder:
        writer = CheckpointWriter(Path(folder), keep=Retention(newest=1), before=lambda: None)
        started = time.perf_counter()
        state = {"step": 1, "fingerprint": "bench"}
        writer.start(step.model.state_dict(), optimizer_tensors(step.optimizer, step.model), state)
        copied = time.perf_counter() - started
        writer.wait()
    return round(copied / (60 * Options.checkpoint_every_minutes), 5)


def main(
    dataset: Path,
    *,
    shapes: tuple[str, ...] = ("mini", "base"),
    threads: int = 2,
    rounds: int = 8,
    compile: bool = True,
) -> None:
    """Run the benchmark.

    Args:
        dataset: the dataset.json of an encoded dataset.
        shapes: of config/models/bert-*.json.
        threads: of the CPU.
        rounds: the median counts.
        compile: measure the engine with torch.compile.
    """
    with group_of_one(threads) as group:
        data = open_training_data(dataset, LENGTH, group.device)
        device = hardware_of(group.device)
        mean = data.train.lengths.mean()
        print(f"{device}, torch {torch.__version__}, transformers {transformers.__version__}, {threads} threads")
        batches = f"{GLOBAL_BATCH // MICRO_BATCH} x {MICRO_BATCH} x {LENGTH}"
        print(f"{batches}, mean length {mean:.1f}, vocabulary {data.vocab_size:,}, dropout 0.1, AdamW")
        result: dict[str, Any] = {"device": device}
        for shape in shapes:
            result |= compare(shape, data, group, rounds, compile)
        for share in ("data_wait_share", "checkpoint_share"):
            result[share] = max(result.pop(f"{shape}_{share}") for shape in shapes)
    print(json.dumps(result))


if __name__ == "__main__":
    run_command(main, __doc__)
