"""Compare optimizers on the demo's network: steps and seconds to AdamW's final held-out loss.

    python bench/optimizers.py results/runs/demo/dataset/dataset.json

Every optimizer trains the first phase of config/demo.yaml, in as many steps and with each of its learning rates, and
the held-out MLM loss is measured at intervals. For each the learning rate with the lowest final loss is shown, and the
first of these measurements that is not above the final loss of AdamW. Seconds are those of training, without
evaluation. The last line is JSON.
"""

import json
import time
from pathlib import Path
from typing import Any, Literal

import yaml
from steps import ROOT, group_of_one, make_recipe
from tabulate import tabulate

from bertline.command_line import run_command
from bertline.settings.configuration import definition, fill_defaults, load_schema
from bertline.training.data.opening import TrainingData, open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.evaluation import evaluate
from bertline.training.options import Options
from bertline.training.setup import make_learner
from bertline.training.step import train_step

Settings = dict[str, Any]

Variant = Literal[
    "adamw",
    "lamb",
    "muon",
    "soap",
    "shampoo",
    "kfac + lamb",
    "kfac (sample) + lamb",
    "kfac (sample) + adamw",
]
VARIANTS: dict[Variant, tuple[Settings, list[float]]] = {
    "adamw": ({"optimizer": "adamw"}, [3e-3, 6e-3]),
    "lamb": ({"optimizer": "lamb"}, [1e-2, 3e-2]),
    "muon": ({"optimizer": "muon"}, [3e-3, 6e-3]),
    "soap": ({"optimizer": "soap"}, [3e-3, 6e-3]),
    "shampoo": ({"optimizer": "shampoo"}, [3e-3, 6e-3]),
    "kfac + lamb": ({"optimizer": "lamb", "kfac": {}}, [1e-2, 3e-2]),
    "kfac (sample) + lamb": ({"optimizer": "lamb", "kfac": {"gradient_factor": "sample"}}, [1e-2, 3e-2]),
    "kfac (sample) + adamw": ({"optimizer": "adamw", "kfac": {"gradient_factor": "sample"}}, [3e-3, 6e-3]),
}


def settings_of_demo() -> tuple[Settings, Settings]:
    """Return the network and the first phase of config/demo.yaml."""
    run = yaml.safe_load((ROOT / "config/demo.yaml").read_text())["runs"]["demo"]
    return run["model"], next(iter(run["phases"].values()))


def train(
    recipe: Settings, data: TrainingData, group: Group, *, every: int
) -> tuple[list[tuple[int, float, float]], float]:
    """Train. Returns step, seconds of training so far and held-out loss at intervals, and the seconds of a step."""
    settings = recipe["settings"]
    learner = make_learner(recipe, data, group, Options(), batching=Batching(settings["sequence_length"], 64))
    learner.accumulator.seek(0)
    points, seconds = [], 0.0
    for step in range(1, settings["steps"] + 1):
        started = time.perf_counter()
        train_step(learner, step, step - 1)
        seconds += time.perf_counter() - started
        if step % every == 0 or step == settings["steps"]:
            found = evaluate(learner.model, data, group, batching=learner.batching, precision=settings["precision"])
            points.append((step, seconds, found["held_out/mlm_loss"]))
    learner.accumulator.close()
    return points, seconds / settings["steps"]


def main(dataset: Path, *, steps: int = 800, every: int = 20, threads: int = 1, only: tuple[Variant, ...] = ()) -> None:
    """Run the benchmark.

    Args:
        dataset: dataset.json with samples of length 32.
        steps: of each training.
        every: steps between measurements of the held-out loss.
        threads: of the CPU.
        only: names of optimizers to compare with AdamW; none for all.
    """
    model, phase = settings_of_demo()
    schema = load_schema(ROOT / "config/config.schema.yaml")
    best: dict[Variant, tuple[float, list[tuple[int, float, float]], float]] = {}
    with group_of_one(threads) as group:
        data = open_training_data(dataset, phase["sequence_length"], group.device)
        for name, (changes, learning_rates) in VARIANTS.items():
            for learning_rate in learning_rates if name == "adamw" or not only or name in only else ():
                chosen = {**phase, "steps": steps, **changes, "learning_rate": learning_rate}
                filled = fill_defaults(chosen, definition(schema, "phase"), schema)
                points, a_step = train(make_recipe(model, **filled), data, group, every=every)
                print(f"{name} {learning_rate:g}: {points[-1][2]:.3f} nats, {a_step * 1000:.0f} ms", flush=True)
                if name not in best or points[-1][2] < best[name][1][-1][2]:
                    best[name] = learning_rate, points, a_step
    target = best["adamw"][1][-1][2]
    rows = {}
    for name, (learning_rate, points, a_step) in best.items():
        reached = next(((step, seconds) for step, seconds, loss in points if loss <= target), (None, None))
        rows[name] = (learning_rate, points[-1][2], round(a_step * 1000), *reached)
    headers = ["optimizer", "learning rate", "final loss (nats)", "ms per step", "steps to AdamW's", "seconds to it"]
    print(tabulate([(name, *row) for name, row in rows.items()], headers, floatfmt=("", "g", ".3f", "", "", ".0f")))
    print(json.dumps(rows))


if __name__ == "__main__":
    run_command(main, __doc__)
