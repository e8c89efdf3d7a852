"""How fast pretraining is: our engine against transformers' BertForPreTraining, in one process, in turns.

    python bench/train.py results/runs/demo/dataset/dataset.json --threads 2

Both sides compute the same batches of real samples, 8 x 128, with dropout 0.1 and fused AdamW. Ours is the engine as a
phase runs it: it reads, masks, accumulates, clips and steps. transformers' has its batches ready, and is the faster of
its sdpa and eager attention. Rounds alternate; a ratio is the median over rounds of theirs / ours. Also measured: the
share of a step that waits for data, and of a checkpoint at the default interval. The last line is JSON.

On a GPU there are also BERT-large and BERT-base in bf16, compiled, with as many tokens at once as keep it busy, beside
transformers compiled in bf16 with sdpa, and what share that is of the GPU's measured peak.
"""

import argparse
import functools
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import transformers
from torch import Tensor, distributed

from bertline.console import BertlineError, run_command
from bertline.encoding.masking import IGNORED
from bertline.files import read_json
from bertline.modeling.bert import BertForPreTraining
from bertline.training.checkpoints import CheckpointWriter
from bertline.training.data.batch_size_warmup import batch_size_warmup_of
from bertline.training.data.batches import Layout, global_batch, mask_batch
from bertline.training.data.opening import TrainingData, open_training_data
from bertline.training.data.prefetching import Prefetcher, WorkItem
from bertline.training.distributed.optimizer_sharding import OptimizerSharding
from bertline.training.distributed.process_group import Group, join_group
from bertline.training.flops import flops_of
from bertline.training.gradient_accumulator import GradientAccumulator
from bertline.training.initial import make_model
from bertline.training.optimizers.registry import make_optimizer, optimizer_tensors
from bertline.training.options import Options
from bertline.training.recipe import masking_of
from bertline.training.scaling import LossScale
from bertline.training.step import Learner, train_step

BATCH, LENGTH = 8, 128
# A figure's shape, length, and whether samples are packed; which knows no attention dropout, so ours has none there.
GPU_FIGURES = {
    "large_s128_sequences_per_second": ("large", 128, False),
    "large_s512_packed_documents_per_second": ("large", 512, True),
    "base_s128_sequences_per_second": ("base", 128, False),
}
TOKENS_AT_ONCE = {"ours": 32768, "theirs": 16384}  # theirs has logits of all positions
MICRO_BATCHES = 4  # of ours in a step
PEAK_SIZE, PRODUCTS = 8192, 20
MODELS = Path(__file__).parents[1] / "config/models"
Step = Callable[[], float]


def recipe_of(shape: str, precision: str, *, length: int = LENGTH, batch: int = BATCH, packed: bool = False) -> dict:
    settings = {
        "sequence_length": length,
        "global_batch_size": batch,
        "optimizer": "adamw",
        "steps": 1,
        "learning_rate": 1e-4,
        "learning_rate_scaling": "none",
        "schedule": "constant",
        "warmup": 0,
        "power": 1.0,
        "end_learning_rate": 0.0,
        "decay": 0.1,
        "max_gradient_norm": 1.0,
        "weight_decay": 0.01,
        "betas": [0.9, 0.999],
        "epsilon": 1e-6,
        "masking": {"probability": 0.15, "max_predictions": None, "whole_word": False, "mask_only": False},
        "batch_size_warmup": None,
        "corpus_weights": {},
        "packing": packed,
        "precision": precision,
    }
    model = read_json(MODELS / f"bert-{shape}.json") | ({"attention_probs_dropout_prob": 0.0} if packed else {})
    return {"model": model, "seed": 1, "settings": settings}


def our_step(
    recipe: dict, data: TrainingData, group: Group, layout: Layout, *, compiled: bool
) -> tuple[Step, BertForPreTraining, torch.optim.Optimizer]:
    """A step that returns the seconds it waited for data."""
    model = make_model(recipe, data).to(group.device).train()
    settings = recipe["settings"]
    accumulator = GradientAccumulator(model, data, recipe, group, layout, compiled=compiled)
    accumulator.seek(0)
    optimizer = make_optimizer(model, settings)
    sharding = OptimizerSharding(model, group, enabled=False)
    learner = Learner(settings, model, data, layout, accumulator, optimizer, sharding, LossScale(settings["precision"]))
    steps = itertools.count()

    def step() -> float:
        number = next(steps)
        return train_step(learner, number + 1, number, {}).waited

    return step, model, optimizer


def islice_steps(prefetcher: Prefetcher, steps: int) -> Iterator[WorkItem]:
    for _ in range(steps):
        first = next(prefetcher)
        yield from (first, *itertools.islice(prefetcher, first.micro_batches - 1))


def their_batches(
    recipe: dict, data: TrainingData, group: Group, layout: Layout, steps: int
) -> list[dict[str, Tensor]]:
    """The micro-batches of the first global batches, masked, in transformers' names."""
    masking = masking_of(recipe["settings"])
    prefetcher = Prefetcher(
        data,
        first_step=0,
        first_position=0,
        batch_size_warmup=batch_size_warmup_of(recipe["settings"]),
        seed=recipe["seed"],
        masking=masking,
        layout=layout,
        rank_weights=[1.0],
        rank=0,
        device=group.device,
    )
    batches = []
    for item in islice_steps(prefetcher, steps):
        rows = item.micro_batch
        if rows.masked is not None:  # imported, and masked before
            ids, (positions, originals) = rows.input_ids, rows.masked
        else:
            ids, positions, originals = mask_batch(
                rows, seed=recipe["seed"], masking=masking, vocabulary=data.vocabulary
            )
        labels = torch.full_like(ids, IGNORED)
        labels.view(-1)[positions] = originals
        mask = torch.ones_like(ids) if rows.attention_mask is None else rows.attention_mask.long()
        batches.append(
            {
                "input_ids": ids,
                "token_type_ids": rows.token_type_ids,
                "attention_mask": mask,
                "labels": labels,
                "next_sentence_label": rows.pair_labels,
            }
        )
    prefetcher.close()
    return batches


def their_steps(recipe: dict, data: TrainingData, group: Group, rounds: int) -> dict[str, Step]:
    """A step for each precision and attention, over one model."""
    config = transformers.BertConfig(**recipe["model"], vocab_size=data.vocab_size, attn_implementation="sdpa")
    model = transformers.BertForPreTraining(config).to(group.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batches = their_batches(recipe, data, group, Layout(LENGTH, BATCH), rounds)  # padded like ours to the longest

    def step(attention: str, dtype: torch.dtype | None, numbers: itertools.count) -> float:
        model.set_attn_implementation(attention)
        with torch.autocast(group.device.type, dtype, enabled=dtype is not None):
            loss = model(**batches[next(numbers) % len(batches)]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return 0.0

    kinds = itertools.product(("sdpa", "eager"), (("fp32", None), ("bf16", torch.bfloat16)))
    return {
        f"transformers {precision} {attention}": functools.partial(step, attention, dtype, itertools.count())
        for attention, (precision, dtype) in kinds
    }


def compare(shape: str, data: TrainingData, group: Group, rounds: int, compiled: bool) -> dict[str, float]:
    """Time the steps of one shape in turns; print them, and return the ratios."""
    steps = their_steps(recipe_of(shape, "fp32"), data, group, rounds)
    for precision in ("fp32", "bf16"):
        steps[f"ours {precision}"], model, optimizer = our_step(
            recipe_of(shape, precision), data, group, Layout(LENGTH, BATCH, fixed=compiled), compiled=compiled
        )
    seconds, waited = take_turns(steps, rounds, group)

    def best(precision: str) -> list[float]:
        return min((seconds[f"transformers {precision} {kind}"] for kind in ("sdpa", "eager")), key=statistics.median)

    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"  {shape:5} {name:24} {1000 * median:9.1f} ms  {BATCH / median:8.1f} sequences/s", flush=True)
    fastest = min(("fp32", "bf16"), key=lambda precision: statistics.median(seconds[f"ours {precision}"]))
    ours = [value for name, values in seconds.items() if name.startswith("ours") for value in values]
    return {
        f"{shape}_vs_transformers": ratio(best("fp32"), seconds[f"ours {fastest}"]),
        f"{shape}_equal_precision": min(ratio(best(kind), seconds[f"ours {kind}"]) for kind in ("fp32", "bf16")),
        f"{shape}_data_wait_share": round(sum(waited) / sum(ours), 5),
        f"{shape}_checkpoint_share": checkpoint_share(model, optimizer),
    }


def take_turns(steps: dict[str, Step], rounds: int, group: Group) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of each step in each round, after two that warm up, and what they waited for data."""
    for step in steps.values():
        for _ in range(2):
            step()
    wait_for_device(group)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    waited = []
    for _ in range(rounds):
        for name, step in steps.items():
            started = time.perf_counter()
            waited.append(step())
            wait_for_device(group)
            seconds[name].append(time.perf_counter() - started)
    return seconds, waited


def wait_for_device(group: Group) -> None:
    if group.device.type == "cuda":
        torch.cuda.synchronize()


def ratio(theirs: list[float], ours: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(theirs, ours, strict=True)), 2)


def their_compiled_step(recipe: dict, data: TrainingData, group: Group, layout: Layout) -> Step:
    """The first global batch in bf16 with sdpa, all micro-batches of one shape."""
    config = transformers.BertConfig(**recipe["model"], vocab_size=data.vocab_size, attn_implementation="sdpa")
    model = transformers.BertForPreTraining(config).to(group.device).train()
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batches = their_batches(recipe, data, group, layout, 1)

    def step() -> float:
        for batch in batches:
            with torch.autocast(group.device.type, torch.bfloat16):
                loss = compiled(**batch).loss / len(batches)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return 0.0

    return step


def measure_gpu(card: Path, group: Group, rounds: int) -> dict[str, float]:
    """`GPU_FIGURES`, each with its ratio to transformers, and the measured peak."""
    peak = measured_peak(group)
    print(f"  bf16 products of {PEAK_SIZE} x {PEAK_SIZE} matrices: {peak:.1f} TFLOP/s", flush=True)
    print(
        "  ours and transformers (sdpa) compiled in bf16, dropout 0.1; of attention 0 in ours where packed", flush=True
    )
    result = {"measured_peak_tflops": round(peak, 1)}
    for figure, (shape, length, packed) in GPU_FIGURES.items():
        try:
            data = open_training_data(card, length, group.device)
        except BertlineError as missing:
            print(f"  {figure}: {missing}", flush=True)
            continue
        rows, their_rows = (TOKENS_AT_ONCE[who] // length for who in ("ours", "theirs"))
        # Packed, so many samples as nearly fill the micro-batches.
        a_row = 0.97 * length / float(data.train.lengths.mean()) if packed else 1.0
        batch = max(1, int(MICRO_BATCHES * rows * a_row))
        recipe = recipe_of(shape, "bf16", length=length, batch=batch, packed=packed)
        layout = Layout(length, rows, packed=packed, fixed=True, mask_free=group.device.type == "cuda")
        ours, model, _ = our_step(recipe, data, group, layout, compiled=True)
        theirs = their_compiled_step(
            recipe_of(shape, "bf16", length=length, batch=batch), data, group, Layout(length, their_rows, fixed=True)
        )
        seconds, _ = take_turns({"ours": ours, "transformers": theirs}, rounds, group)
        median = statistics.median(seconds["ours"])
        first = global_batch(
            data.train.lengths, start=0, size=batch, seed=recipe["seed"], masking=masking_of(recipe["settings"])
        )
        share = flops_of(model, first) / median / 1e12 / peak
        print(
            f"  {figure} {batch / median:,.0f}, {first.lengths.sum() / median:,.0f} tokens/s, {100 * share:.1f} "
            f"percent of the measured peak; transformers {batch / statistics.median(seconds['transformers']):,.0f}",
            flush=True,
        )
        result |= {
            figure: round(batch / median, 1),
            f"{figure}_vs_transformers": ratio(seconds["transformers"], seconds["ours"]),
            f"{figure.rsplit('_', 3)[0]}_mfu": round(share, 3),
        }
    return result


def measured_peak(group: Group) -> float:
    """TFLOP/s of bf16 matrix products: the fastest of five rounds."""
    first, second = (torch.randn(PEAK_SIZE, PEAK_SIZE, device=group.device, dtype=torch.bfloat16) for _ in range(2))

    def multiply() -> float:
        for _ in range(PRODUCTS):
            first @ second
        return 0.0

    seconds, _ = take_turns({"products": multiply}, 5, group)
    return 2 * PEAK_SIZE**3 * PRODUCTS / min(seconds["products"]) / 1e12


def checkpoint_share(model: BertForPreTraining, optimizer: torch.optim.Optimizer) -> float:
    """Of the time that training stands still for a checkpoint, at the default interval: the copy of its state."""
    with tempfile.TemporaryDirectory() as folder:
        writer = CheckpointWriter(Path(folder), keep=1, keep_every=0, before=lambda: None)
        started = time.perf_counter()
        writer.start(model.state_dict(), optimizer_tensors(optimizer, model), {"step": 1, "fingerprint": "bench"})
        copied = time.perf_counter() - started
        writer.wait()
    return round(copied / (60 * Options.checkpoint_every_minutes), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="the dataset.json of an encoded dataset")
    parser.add_argument("--shapes", nargs="+", default=["mini", "base"], help="of config/models/bert-*.json")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--no-compile", action="store_true", help="measure the engine without torch.compile")
    given = parser.parse_args()
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ.update(alone)
    group = join_group(given.threads)
    torch.manual_seed(0)
    data = open_training_data(given.dataset, LENGTH, group.device)
    device = torch.cuda.get_device_name() if group.device.type == "cuda" else processor()
    lengths = data.train.lengths
    print(f"{device}, torch {torch.__version__}, transformers {transformers.__version__}, {given.threads} threads")
    print(f"{BATCH} x {LENGTH}, mean length {lengths.mean():.1f}, vocabulary {data.vocab_size:,}, dropout 0.1, AdamW")
    result: dict[str, object] = {"device": device}
    for shape in given.shapes:
        result |= compare(shape, data, group, given.rounds, not given.no_compile)
    if group.device.type == "cuda":
        result |= measure_gpu(given.dataset, group, given.rounds)
    for share in ("data_wait_share", "checkpoint_share"):
        result[share] = max(result.pop(f"{shape}_{share}") for shape in given.shapes)
    distributed.destroy_process_group()
    print(json.dumps(result))


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    run_command(main)
