"""What a plan will still take, judged by what is on record: benchmarks of data jobs, and phases trained before."""

from __future__ import annotations

import csv
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertline.overview import durable_step
from bertline.plan import Plan
from bertline.pruning import size_of

Json = dict[str, Any]

# The settings of a phase that its speed and the size of its files follow from.
SAME_SPEED = ("sequence_length", "global_batch_size", "precision", "packing", "optimizer")


@dataclass(frozen=True)
class Estimate:
    """What is left of one stage. None stands for what nothing on record tells."""

    what: str
    jobs: int
    hours: float | None  # of one core for data, of one process (a GPU, where there are any) for training
    size: float | None  # bytes on the disk


def estimates(plan: Plan) -> list[Estimate]:
    """One entry for every dataset and phase of the plan that is not finished."""
    found = []
    for key, dataset in plan.datasets.items():
        folder = Path(plan.dataset_folder(key))
        if "path" not in dataset and not (folder / "dataset.json").exists():
            found.append(_dataset(dataset, folder, plan.config["sequence_lengths"]))
    for key, phase in plan.phases.items():
        folder = Path("results/phases", key)
        if not (folder / "recipe.json").exists():
            found.append(_phase(phase, folder))
    return found


def _dataset(dataset: Json, folder: Path, lengths: list[int]) -> Estimate:
    missing = {
        "write_shard": [shard for shard in dataset["shards"] if not (folder / f"shards/{shard}.txt.zst").exists()],
        "encode_shard": [
            shard
            for shard in dataset["shards"]
            if not all((folder / f"seq{length}/{shard}.h5").exists() for length in lengths)
        ],
    }
    seconds = [_times(len(shards), _median_cpu_seconds(rule)) for rule, shards in missing.items()]
    samples = [path.stat().st_size for path in Path("results/datasets").glob("*/seq*/?????.h5")]
    return Estimate(
        what=f"dataset {dataset['name']}, its shards",
        jobs=sum(len(shards) for shards in missing.values()),
        hours=None if None in seconds else sum(second for second in seconds if second) / 3600,
        size=_times(len(missing["encode_shard"]) * len(lengths), statistics.median(samples) if samples else None),
    )


def _phase(phase: Json, folder: Path) -> Estimate:
    steps = phase["settings"]["steps"]
    left = 1 - durable_step(folder) / steps
    alike = [record for record in _recorded_phases() if _is_alike(record[1], phase)]
    hours = [_process_hours_a_step(recipe) * steps * left for _, recipe in alike]
    sizes = [size_of(path) for path, _ in alike]
    return Estimate(
        what=f"{phase['phase']} ({folder.name})",
        jobs=1,
        hours=statistics.median(hours) if hours else None,
        size=statistics.median(sizes) if sizes else None,
    )


def _recorded_phases() -> list[tuple[Path, Json]]:
    return [
        (path.parent, json.loads(path.read_text())) for path in sorted(Path("results/phases").glob("*/recipe.json"))
    ]


def _is_alike(recipe: Json, phase: Json) -> bool:
    same_settings = all(recipe["settings"][name] == phase["settings"][name] for name in SAME_SPEED)
    return same_settings and all(recipe["model"].get(name) == value for name, value in phase["model"].items())


def _process_hours_a_step(recipe: Json) -> float:
    milliseconds = recipe["finished"] - recipe["started"]
    return milliseconds / 3.6e6 * recipe["world_size"] / recipe["settings"]["steps"]


def _median_cpu_seconds(rule: str) -> float | None:
    seconds = []
    for path in Path("benchmarks", rule).glob("**/*.tsv"):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                try:
                    seconds.append(float(row["cpu_time"]))
                except (KeyError, ValueError):
                    continue  # Snakemake writes NA for a job that was too short to be measured
    return statistics.median(seconds) if seconds else None


def _times(count: int, each: float | None) -> float | None:
    return 0.0 if count == 0 else None if each is None else count * each
