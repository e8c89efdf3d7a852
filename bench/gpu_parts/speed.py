"""Speed of a network's training steps: eager, compiled, replayed from CUDA graphs, and transformers'."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from steps import (
    OurStep,
    batches_of_transformers,
    free_memory,
    group_of_one,
    make_our_step,
    make_recipe,
    make_transformers_model,
    make_transformers_step,
    read_model,
    synchronize,
    time_step,
)

from bertline.training.data.opening import TrainingData, open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.flops import flops_of
from bertline.training.micro_batch import fix_shapes_of_phase
from bertline.training.objective import MAX_PROGRAMS
from bertline.training.optimizers.registry import OPTIMIZERS, make_optimizer
from gpu_parts import machine
from gpu_parts.context import Context, Result
from gpu_parts.samples import write_samples_like_wikipedia

MICRO_BATCHES = 16  # in a step; BERT's global batches have 16 to 250 on one GPU
ROUNDS, SECONDS = 12, 6.0
SAMPLES = 20_000


@dataclass(frozen=True)
class Network:
    """A network to train: a file of config/models, a sequence length, and padded rows or packing."""

    model: str
    sequence_length: int
    packed: bool


NETWORKS = {
    "large-128": Network("bert-large", 128, packed=False),
    "large-128-packed": Network("bert-large", 128, packed=True),
    "large-512-packed": Network("bert-large", 512, packed=True),
    "base-128": Network("bert-base", 128, packed=False),
    "modern-base-512-packed": Network("modern-base", 512, packed=True),
}


@dataclass(frozen=True)
class Case:
    """One way to compute a step, with `tokens` tokens in a micro-batch."""

    way: str  # of WAYS
    tokens: int

    @property
    def name(self) -> str:
        return f"{self.way} {self.tokens // 1024}k" if self.tokens >= 1024 else f"{self.way} {self.tokens}"


WAYS = ("eager", "compiled", "cuda graphs", "transformers")


def cases(context: Context) -> list[Case]:
    """Return the cases in order of importance: the deadline may prevent the last ones."""
    if context.tiny:  # every way once: a CPU compiles slowly
        ways = ("eager", "transformers") if NETWORKS[context.network].packed else ("eager", "compiled")
        return [Case(way, 256) for way in ways]
    # Eager first: it takes seconds, and the first compilation may take all the time.
    first = [Case("eager", 32768), Case("compiled", 32768), Case("transformers", 32768), Case("compiled", 65536)]
    second = [Case("cuda graphs", 32768), Case("compiled", 131072), Case("compiled", 16384)]
    rest = [Case("eager", tokens) for tokens in (65536, 16384, 131072)]
    return [*first, *second, *rest, Case("transformers", 65536)]


def run(context: Context) -> Iterator[Result]:
    """Yield the cases until the deadline is near; after the first one, the optimizers' times."""
    with tempfile.TemporaryDirectory() as folder, group_of_one(context.threads) as group:
        data = open_data(context, Path(folder), group)
        peak = measured_peak(context, group.device)
        chosen = [case for case in cases(context) if possible(case, group.device)]
        measures = [(case.name, partial(measure, context, case, data, group, peak)) for case in chosen]
        recipe, batching = recipe_and_batching(context, data, chosen[0], group)
        measures[1:1] = [
            (f"{name}'s step", partial(measure_optimizer, name.lower(), recipe, data, group, batching))
            for name in ("LAMB", "AdamW", "Muon")
        ]
        longest = 0.0
        for name, measured in measures:
            if context.seconds_left() < 1.2 * longest:
                yield {"case": name, "error": "not reached: the time was up"}
                continue
            started = time.monotonic()
            try:
                yield {"case": name, **measured()}
            except torch.OutOfMemoryError:
                yield {"case": name, "error": "does not fit into the memory"}
            except Exception as error:
                traceback.print_exc()
                yield {"case": name, "error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
            free_memory()
            synchronize(group.device)  # an error of the device itself ends this part
            longest = max(longest, time.monotonic() - started)


def possible(case: Case, device: torch.device) -> bool:
    """Return whether the device supports a case."""
    return case.way != "cuda graphs" or device.type == "cuda"


def open_data(context: Context, folder: Path, group: Group) -> TrainingData:
    """Write a dataset for the network and open it."""
    length = 32 if context.tiny else NETWORKS[context.network].sequence_length
    card = write_samples_like_wikipedia(folder / "data", length, 400 if context.tiny else SAMPLES, tiny=context.tiny)
    return open_training_data(card, length, group.device)


def measured_peak(context: Context, device: torch.device) -> float:
    """Return the TFLOP/s of bf16 products measured by part `machine`, or measure them."""
    for result in context.results("machine"):
        if "bf16 products" in result["case"]:
            return float(result["tflops"])
    return machine.bf16_peak(device, 256 if context.tiny else 8192)


def recipe_and_batching(context: Context, data: TrainingData, case: Case, group: Group) -> tuple[dict, Batching]:
    """Return a case's recipe and batching: steps of `MICRO_BATCHES` nearly full micro-batches, of two if tiny."""
    network = NETWORKS[context.network]
    model = read_model(network.model)
    if context.tiny:
        sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
        model = {**model, **sizes}
    if network.sequence_length > 128 and "attention_probs_dropout_prob" in model:
        model["attention_probs_dropout_prob"] = 0.0  # as in config/one-gpu-day.yaml
    packed = network.packed and case.way != "transformers"
    length = data.train.sequence_length
    rows, micro_batches = case.tokens // length, 2 if context.tiny else MICRO_BATCHES
    a_row = 0.97 * length / float(data.train.lengths.mean()) if packed else 1.0
    recipe = make_recipe(
        model,
        sequence_length=length,
        global_batch_size=int(micro_batches * rows * a_row),
        packing=packed,
        optimizer="lamb",
        learning_rate=1e-4,
        precision="bf16",
    )
    mask_free = group.device.type == "cuda"
    return recipe, Batching(length, rows, packed=packed, mask_free=mask_free)


def make_step(context: Context, case: Case, data: TrainingData, group: Group) -> OurStep:
    """Make the engine's step of a case."""
    recipe, batching = recipe_and_batching(context, data, case, group)
    return make_our_step(
        recipe, data, group, batching, compiled=case.way != "eager", cuda_graphs=case.way == "cuda graphs"
    )


def measure(context: Context, case: Case, data: TrainingData, group: Group, peak: float) -> Result:
    """Time the steps of a case."""
    if case.way == "transformers":
        return measure_transformers(context, case, data, group)
    step = make_step(context, case, data, group)
    try:
        median, compilation = time_step(step, group.device, rounds=ROUNDS, seconds=SECONDS)
        waited = step.waited
        started = time.perf_counter()
        step()
        synchronize(group.device)
        return {
            "samples_per_second": round(len(step.batch.samples) / median, 1),
            "tokens_per_second": round(step.real_tokens / median),
            "share_of_peak": round(flops_of(step.model, step.batch) / median / 1e12 / peak, 3),
            "milliseconds": round(1000 * median, 2),
            "padding_share": round(1 - step.real_tokens / step.computed_tokens, 3),
            "data_wait_share": round((step.waited - waited) / (time.perf_counter() - started), 4),
            "extra_seconds_at_start": round(compilation, 1),
            **memory(),
        }
    finally:
        step.close()


def measure_transformers(context: Context, case: Case, data: TrainingData, group: Group) -> Result:
    """Time compiled steps in bf16 with sdpa, on padded rows with prepared masks and labels."""
    recipe, batching = recipe_and_batching(context, data, case, group)
    batching = fix_shapes_of_phase(batching, data, recipe, group.world_size)
    torch._dynamo.config.recompile_limit = MAX_PROGRAMS
    batches = batches_of_transformers(recipe, data, group, batching, 1)
    model = make_transformers_model(recipe, data, group.device)
    compiled = torch.compile(model, dynamic=False)
    step = make_transformers_step(model, compiled, batches, group.device, "bf16")
    median, compilation = time_step(step, group.device, rounds=ROUNDS, seconds=SECONDS)
    tokens = sum(int(batch["attention_mask"].sum()) for batch in batches[0])
    return {
        "samples_per_second": round(recipe["settings"]["global_batch_size"] / median, 1),
        "tokens_per_second": round(tokens / median),
        "milliseconds": round(1000 * median, 2),
        "extra_seconds_at_start": round(compilation, 1),
        **memory(),
    }


def measure_optimizer(name: str, recipe: dict, data: TrainingData, group: Group, batching: Batching) -> Result:
    """Time an optimizer alone, eager and, if it can be, compiled."""
    step = make_our_step(recipe, data, group, batching, compiled=False)
    step.close()
    for weight in step.model.parameters():
        weight.grad = torch.randn_like(weight)
    found: Result = {}
    settings = {**recipe["settings"], "optimizer": name}
    for key, compiled in (("milliseconds", False), ("milliseconds_compiled", True)):
        if not compiled or OPTIMIZERS[name].is_compilable:
            optimizer = make_optimizer(step.model, settings, compiled=compiled)
            seconds, _ = time_step(optimizer.step, group.device, rounds=ROUNDS, seconds=2.0)
            found[key] = round(1000 * seconds, 2)
    return found


def memory() -> Result:
    """Return the peak memory of tensors; nothing for a CPU."""
    return {"memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1)} if torch.cuda.is_available() else {}
