"""Compare the losses of a training in bf16, as a GPU computes it, with those in fp32.

    python bench/precision.py results/runs/demo/dataset/dataset.json --steps 1000

Trains a small deep BERT on real samples for each seed, which sets the initial weights, the order of the samples, the
masks and dropout, in both precisions. A GPU keeps the hidden states between layers in bfloat16; so does this on a CPU.
Printed are the mean losses of each tenth of the steps, of each training when it ends and of all at the end, and of the
last tenth the difference between the precisions beside that between seeds. The last line is JSON.
"""

from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from steps import group_of_one, make_recipe, read_model
from tabulate import tabulate
from tqdm import tqdm

from bertline.command_line import run_command
from bertline.console import BertlineError
from bertline.training.data.opening import TrainingData, open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.options import Options
from bertline.training.setup import make_learner, prepare_device
from bertline.training.started import hardware_of
from bertline.training.step import train_step

PRECISIONS, LENGTH, PARTS = ("fp32", "bf16"), 128, 10


def train(recipe: dict[str, Any], data: TrainingData, group: Group, rows: int) -> list[float]:
    """Train all steps; return the loss of masked words of each, in nats."""
    options = Options()
    prepare_device(recipe["settings"], group, options)
    learner = make_learner(recipe, data, group, options, batching=Batching(LENGTH, rows))
    if recipe["settings"]["precision"] == "bf16":
        learner.model.encoder.residual_type = torch.bfloat16
    learner.accumulator.seek(0)
    losses = []
    name = f"{recipe['settings']['precision']}, seed {recipe['seed']}"
    for number in tqdm(range(recipe["settings"]["steps"]), name, mininterval=5):
        statistics_of_step = train_step(learner, number + 1, number).statistics
        losses.append(statistics_of_step["mlm_loss"] / statistics_of_step["masked"])
    learner.accumulator.close()
    return losses


def main(
    dataset: Path,
    *,
    steps: int = 1000,
    layers: int = 8,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    seeds: tuple[int, ...] = (1, 2, 3),
    threads: int = 2,
) -> None:
    """Run the comparison.

    Args:
        dataset: the dataset.json of an encoded dataset.
        steps: of each training, at least ten.
        layers: of the network, with 128 hidden units.
        batch_size: samples of a step.
        learning_rate: of AdamW, after a warm-up, with linear decay.
        seeds: of the trainings.
        threads: of the CPU.
    """
    model = {**read_model("bert-tiny"), "num_hidden_layers": layers}
    settings = {"steps": steps, "global_batch_size": batch_size, "learning_rate": learning_rate, "optimizer": "adamw"}
    if steps < PARTS:
        raise BertlineError(f"--steps {steps}: give {PARTS} or more, whose tenths are compared")
    bounds = [steps * part // PARTS for part in range(PARTS + 1)]
    means: dict[tuple[int, str], list[float]] = {}
    with group_of_one(threads) as group:
        data = open_training_data(dataset, LENGTH, group.device)
        print(f"{hardware_of(group.device)}, torch {torch.__version__}, {threads} threads")
        print(f"{layers} layers of 128, {steps} steps of {batch_size} x {LENGTH}, AdamW at {learning_rate}", flush=True)
        for seed, precision in itertools.product(seeds, PRECISIONS):
            recipe = make_recipe(
                model, sequence_length=LENGTH, schedule="linear", warmup=0.1, precision=precision, **settings
            )
            found = train({**recipe, "seed": seed}, data, group, batch_size)
            means[seed, precision] = [statistics.mean(found[first:last]) for first, last in itertools.pairwise(bounds)]
            # At once: a long comparison may be interrupted.
            print(f"{precision}, seed {seed}: {' '.join(f'{mean:.4f}' for mean in means[seed, precision])}", flush=True)
    rows = [[bounds[at + 1], *(f"{means[key][at]:.4f}" for key in means)] for at in range(PARTS)]
    print(tabulate(rows, headers=["to step", *(f"{precision}, seed {seed}" for seed, precision in means)]))
    last = {key: found[-1] for key, found in means.items()}
    differences = {seed: last[seed, "bf16"] - last[seed, "fp32"] for seed in seeds}
    of_seeds = [last[seed, "fp32"] for seed in seeds]
    print(
        json.dumps(
            {
                "last_tenth_nats": {
                    f"{precision}, seed {seed}": round(loss, 4) for (seed, precision), loss in last.items()
                },
                "bf16_minus_fp32": {seed: round(difference, 4) for seed, difference in differences.items()},
                "deviation_between_seeds": round(statistics.stdev(of_seeds), 4) if len(of_seeds) > 1 else None,
            }
        )
    )


if __name__ == "__main__":
    run_command(main, __doc__)
