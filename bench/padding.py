"""Print how many tokens training computes for each real one: in rows and packed, compiled and not.

    python bench/padding.py results/runs/demo/dataset/dataset.json

Collates the micro-batches of the first steps as the trainer does, without computing them. "fill" is the share of real
tokens among the computed ones; "samples/s" is the speed of collation, in processor time. The last line is JSON.
"""

import itertools
import json
import time
from pathlib import Path
from typing import Any

import torch
from steps import make_recipe
from tabulate import tabulate

from bertline.command_line import run_command
from bertline.encoding.card_format import read_card
from bertline.training.data.opening import TrainingData, open_training_data
from bertline.training.data.prefetching import work_items
from bertline.training.data.shapes import Batching
from bertline.training.micro_batch import fix_shapes_of_phase, rows_of

MIN_STEPS, SECONDS = 3, 1.0
WAYS = {"rows": False, "packed": True}


def measure(
    data: TrainingData, batch_size: int, micro_batch_tokens: int, *, packed: bool, compiled: bool
) -> dict[str, Any]:
    """Collate the steps of a single process; return the figures of one way."""
    recipe = make_recipe({}, sequence_length=data.train.sequence_length, global_batch_size=batch_size, packing=packed)
    rows = rows_of(micro_batch_tokens, recipe["settings"], 1)
    batching = Batching(data.train.sequence_length, rows, packed=packed)
    if compiled:
        batching = fix_shapes_of_phase(batching, data, recipe, 1)
    items = work_items(data, batching, recipe, first_step=0, first_position=0, rank_weights=[1.0], rank=0)
    real = computed = micro_batches = samples = 0
    started, steps = time.process_time(), 0
    while steps < MIN_STEPS or time.process_time() - started < SECONDS:
        first = next(items)
        for item in itertools.chain([first], itertools.islice(items, first.micro_batches - 1)):
            assert item.micro_batch is not None, "a process alone is never idle"  # noqa: S101
            real += item.micro_batch.tokens
            computed += item.micro_batch.input_ids.numel()
        micro_batches += first.micro_batches
        samples += len(first.batch.samples)
        steps += 1
    return {
        "fill": round(real / computed, 3),
        "computed per real": round(computed / real, 3),
        "programs": len(batching.shapes),
        "micro-batches/step": round(micro_batches / steps, 1),
        "samples/s": round(samples / (time.process_time() - started)),
    }


def main(
    dataset: Path, *, batch_sizes: tuple[int, ...] = (4096, 32768), micro_batch_tokens: int = 32768, threads: int = 1
) -> None:
    """Run the benchmark.

    Args:
        dataset: the dataset.json of an encoded dataset.
        batch_sizes: global batches.
        micro_batch_tokens: of a process.
        threads: of the CPU.
    """
    torch.set_num_threads(threads)
    found = []
    for length in map(int, read_card(dataset)["sequence_lengths"]):
        data = open_training_data(dataset, length, torch.device("cpu"))
        print(f"length {length}: {len(data.train):,} samples, {data.train.lengths.mean():.1f} tokens on average")
        for batch_size, (way, packed), compiled in itertools.product(batch_sizes, WAYS.items(), (False, True)):
            case = {"length": length, "batch": batch_size, "way": f"{way}, compiled" if compiled else way}
            found.append(case | measure(data, batch_size, micro_batch_tokens, packed=packed, compiled=compiled))
    print(tabulate(found, headers="keys"))
    print(json.dumps(found))


if __name__ == "__main__":
    run_command(main, __doc__)
