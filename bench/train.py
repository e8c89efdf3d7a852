"""How fast pretraining is: our engine against transformers' BertForPreTraining, in one process, in turns.

    python bench/train.py results/runs/demo/dataset/dataset.json --threads 2

Both sides compute the same batches of real samples, 8 x 128, with dropout 0.1 and fused AdamW. Ours is the engine as a
phase runs it: it reads, masks, accumulates, clips and steps. transformers' has its batches ready, and is the faster of
its sdpa and eager attention. Rounds alternate; a ratio is the median over rounds of theirs / ours. Also measured: the
share of a step that waits for data, and of a checkpoint at the default interval. The last line is JSON.
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
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from torch import Tensor, distributed

from bertline.console import run_command
from bertline.files import read_json
from bertline.modeling.bert import BertForPreTraining
from bertline.training.accumulation import Accumulation
from bertline.training.batch_ramp import batch_ramp_of
from bertline.training.batches import Layout, mask_batch
from bertline.training.checkpoints import CheckpointWriter
from bertline.training.data import TrainingData, open_training_data
from bertline.training.group import Group, join_group
from bertline.training.initial import make_model
from bertline.training.masking import IGNORED
from bertline.training.optimizers import make_optimizer, optimizer_tensors
from bertline.training.options import Options
from bertline.training.recipe import masking_of
from bertline.training.stream import Stream

BATCH, LENGTH = 8, 128
MODELS = Path(__file__).parents[1] / "config/models"
Step = Callable[[], float]


def recipe_of(shape: str, precision: str) -> dict:
    settings = {
        "sequence_length": LENGTH,
        "global_batch_size": BATCH,
        "optimizer": "adamw",
        "learning_rate": 1e-4,
        "weight_decay": 0.01,
        "betas": [0.9, 0.999],
        "epsilon": 1e-6,
        "masking": {"probability": 0.15, "max_predictions": None, "whole_word": False, "mask_only": False},
        "batch_ramp": None,
        "corpus_weights": {},
        "packing": False,
        "precision": precision,
    }
    return {"model": read_json(MODELS / f"bert-{shape}.json"), "seed": 1, "settings": settings}


def our_step(
    recipe: dict, data: TrainingData, group: Group, *, compiled: bool
) -> tuple[Step, BertForPreTraining, torch.optim.Optimizer]:
    """A step that returns the seconds it waited for data."""
    model = make_model(recipe, data).to(group.device).train()
    accumulation = Accumulation(model, data, recipe, group, Layout(LENGTH, BATCH, fixed=compiled), compiled=compiled)
    accumulation.seek(0)
    optimizer = make_optimizer(model, recipe["settings"])
    steps = itertools.count()

    def step() -> float:
        accumulation.compute(next(steps))
        accumulation.gradients.reduce()
        accumulation.gradients.clip(1.0)
        optimizer.step()
        return accumulation.waited

    return step, model, optimizer


def their_batches(recipe: dict, data: TrainingData, group: Group, count: int) -> list[dict[str, Tensor]]:
    """The first global batches, masked, in transformers' names; padded like ours to the longest."""
    masking = masking_of(recipe["settings"])
    stream = Stream(
        data,
        first_step=0,
        first_position=0,
        batch_ramp=batch_ramp_of(recipe["settings"]),
        seed=recipe["seed"],
        masking=masking,
        layout=Layout(LENGTH, BATCH),
        shares=[1.0],
        rank=0,
        device=group.device,
    )
    batches = []
    for work in itertools.islice(stream, count):
        rows = work.micro_batch
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
    stream.close()
    return batches


def their_steps(recipe: dict, data: TrainingData, group: Group, rounds: int) -> dict[str, Step]:
    """A step for each precision and attention, over one model."""
    config = transformers.BertConfig(**recipe["model"], vocab_size=data.vocab_size, attn_implementation="sdpa")
    model = transformers.BertForPreTraining(config).to(group.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    batches = their_batches(recipe, data, group, rounds)

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
            recipe_of(shape, precision), data, group, compiled=compiled
        )
    for step in steps.values():
        for _ in range(2):
            step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    waited = []
    for _ in range(rounds):
        for name, step in steps.items():
            begun = time.perf_counter()
            waited.append(step())
            if group.device.type == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - begun)

    def best(precision: str) -> list[float]:
        return min((seconds[f"transformers {precision} {kind}"] for kind in ("sdpa", "eager")), key=statistics.median)

    def ratio(theirs: list[float], ours: list[float]) -> float:
        return round(statistics.median(a / b for a, b in zip(theirs, ours, strict=True)), 2)

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


def checkpoint_share(model: BertForPreTraining, optimizer: torch.optim.Optimizer) -> float:
    """Of the time that training stands still for a checkpoint, at the default interval: the copy of its state."""
    with tempfile.TemporaryDirectory() as folder:
        writer = CheckpointWriter(Path(folder), keep=1, keep_every=0, before=lambda: None)
        begun = time.perf_counter()
        writer.start(model.state_dict(), optimizer_tensors(optimizer, model), {"step": 1, "fingerprint": "bench"})
        copied = time.perf_counter() - begun
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
