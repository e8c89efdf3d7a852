"""Sweeps: the speed of a training on this machine by the size of its micro-batches and by the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import Json, one_line_damage, read_object
from bertline.limits import available_memory
from bertline.planning.plan import Plan
from bertline.planning.requested import nearest
from bertline.results import paths

# A step of a phase accumulates at most this many micro-batches: more change the speed by less than the noise.
MAX_MICRO_BATCHES = 8
# Settings of a phase without which its steps are the same.
ABSENT: Json = {"batch_size_warmup": None, "publish_best_every": None, "corpus_weights": {}, "carry_over": "weights"}

# (recipe, processes, tokens of a micro-batch) -> the speed, as `bertline.planning.trials.run_trial` returns it.
Trial = Callable[[Json, int, int], Json]


def name_of_only_run(plan: Plan) -> str:
    """Return the name of the configuration's run. Raises BertlineError if it has several, or none."""
    if len(plan.runs) != 1:
        raise BertlineError(f"there are {len(plan.runs)} runs; name one of them, or a training: {', '.join(plan.runs)}")
    return next(iter(plan.runs))


def recipe_of(plan: Plan, name: str) -> Json:
    """Return the recipe of a phase or of a task's first fine-tuning, with random weights and its vocabulary's size.

    Args:
        name: run/phase or run/task, such as demo/phase1 or demo/glue/cola; a run alone for its first phase.

    Raises BertlineError with the nearest names for an unknown one, and if the vocabulary's size is not known yet.
    """
    names: dict[str, Mapping[str, Any]] = {}
    for run, content in plan.runs.items():
        names |= {f"{run}/{phase}": plan.phases[key] for phase, key in reversed(content["phases"].items())}
        for place, key in reversed(content["finetunings"].items()):
            names[f"{run}/{place.rpartition('/')[0]}"] = plan.finetunings[key]
        if content["phases"]:
            names[run] = plan.phases[next(iter(content["phases"].values()))]
    if name not in names:
        near = ", ".join(nearest(name, list(names), plan.runs) or list(names)[:3])
        raise BertlineError(f"there is no training called {name}; near it are {near}")
    recipe = dict(names[name])
    model = dict(recipe["model"])
    if "directory" in model:
        model = read_object(Path(model["directory"], paths.CONFIG))
    model.setdefault("vocab_size", _vocab_size(plan, recipe["dataset"]) if recipe["dataset"] else 0)
    settings = recipe["settings"] if "task" in recipe else recipe["settings"] | ABSENT
    return recipe | {"model": model, "initial_weights": None, "settings": settings}


def _vocab_size(plan: Plan, dataset: str) -> int:
    card = Path(plan.dataset_file(dataset, paths.CARD))
    if card.exists():
        with one_line_damage(card):
            return int(read_object(card)["tokenizer"]["vocab_size"])
    tokenizer = plan.datasets[dataset]["settings"]["tokenizer"]
    if "vocab_size" not in tokenizer:
        raise BertlineError(
            f"{card} does not exist, which has the size of the vocabulary; run `snakemake encode` first"
        )
    return int(tokenizer["vocab_size"])


def length_of(recipe: Mapping[str, Json]) -> int:
    """Return the longest sequence of a training."""
    return int(recipe["settings"]["max_sequence_length" if "task" in recipe else "sequence_length"])


def sizes(first: int, last: int) -> list[int]:
    """Return first, twice as many, ... and last."""
    if not 1 <= first <= last:
        raise BertlineError(f"FROM={first} TO={last}: give 1 or more, and the larger one for TO")
    doubled = [first << bits for bits in range((last // first).bit_length()) if first << bits < last]
    return [*doubled, last]


def by_micro_batch(recipe: Json, tried: Sequence[int], *, processes: int, trial: Trial) -> Iterator[Json]:
    """Yield the speed with micro-batches of each number of sequences, up to the first that does not fit.

    Each row has `micro_batch_size` and what `run_trial` returns, or `fits: False`. On a CPU, a size whose memory,
    extrapolated from two before it, is not available is not tried: the system would kill other programs, too.
    """
    memory: list[tuple[int, int]] = []
    for size in tried:
        row: Json = {"micro_batch_size": size, "processes": processes}
        if _extrapolated(memory, size) * processes > available_memory():
            yield row | {"fits": False}
            return
        sequences = _sequences(recipe, processes * size)
        row |= trial(_with_batch(recipe, sequences), processes, size * length_of(recipe))
        yield row
        if not row["fits"]:
            return
        if row["device"] == "cpu":
            memory.append((size, row["memory_bytes"]))


def by_processes(recipe: Json, numbers: Sequence[int], *, micro_batch_size: int, trial: Trial) -> Iterator[Json]:
    """Yield the speed of one global batch with each number of processes, ascending.

    Each row also has `speed_up`, the first row's time of a step divided by its own, and `efficiency`, the speed-up
    divided by how many times as many processes there are.
    """
    sequences = _sequences(recipe, max(numbers) * micro_batch_size)
    first: Json | None = None
    for processes in sorted(numbers):
        row: Json = {"micro_batch_size": micro_batch_size, "processes": processes}
        row |= trial(_with_batch(recipe, sequences), processes, micro_batch_size * length_of(recipe))
        if not row["fits"]:
            yield row
            return
        first = first or row
        speed_up = first["step_seconds"] / row["step_seconds"]
        yield row | {"speed_up": speed_up, "efficiency": speed_up * first["processes"] / processes}


def _sequences(recipe: Json, at_once: int) -> int:
    """Return the sequences of a step: of a phase, several micro-batches, as far as its global batch has so many."""
    wanted = recipe["settings"].get("global_batch_size", 1)
    return at_once * max(1, min(MAX_MICRO_BATCHES, wanted // at_once))


def _with_batch(recipe: Json, sequences: int) -> Json:
    key = "batch_size" if "task" in recipe else "global_batch_size"
    return recipe | {"settings": recipe["settings"] | {key: sequences}}


def _extrapolated(memory: Sequence[tuple[int, int]], size: int) -> float:
    """Return the bytes that a process with micro-batches of `size` is going to need; 0 if that is not known."""
    if len(memory) < 2:
        return 0.0
    (smaller, less), (larger, more) = memory[-2:]
    return more + (size - larger) * max(0, more - less) / (larger - smaller)
