"""Sweeps: the speed of a training on this machine by the size of its micro-batches and by the number of processes."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.files import Json, one_line_damage, read_object
from bertline.fingerprint import fingerprint
from bertline.limits import available_memory
from bertline.planning.models import read_network
from bertline.planning.plan import Plan
from bertline.planning.requested import nearest
from bertline.planning.trials import run_trial
from bertline.results import paths
from bertline.results.sweeps import MICRO_BATCHES, SCALING, fastest_of

logger = logging.getLogger(__name__)

# A step of a phase accumulates at most this many micro-batches: more change the speed by less than the noise.
MAX_MICRO_BATCHES = 8
# Settings of a phase without which its steps are the same.
ABSENT: Json = {"batch_size_warmup": None, "publish_best_every": None, "corpus_weights": {}, "carry_over": "weights"}
# Options that a sweep sets itself, or that its steps do not have, with what to do.
REFUSED_OPTIONS = {
    "--micro-batch-tokens": "a sweep varies it; give FROM and TO",
    "--threads": "a sweep divides them; give workflow/scripts/sweep.py --threads, which make sweep does not have",
    "--seconds": "a sweep sets it; give workflow/scripts/sweep.py --seconds, which make sweep does not have",
    **dict.fromkeys(("--recipe", "--output"), "a sweep has files of its own; leave it out"),
    **dict.fromkeys(("--help", "-h"), "it times nothing; run `python workflow/scripts/pretrain.py --help`"),
    "--profile": "a sweep writes no profile; leave it out",
}

# (recipe, processes, tokens of a micro-batch) -> the speed, as `bertline.planning.trials.run_trial` returns it.
Trial = Callable[[Json, int, int], Json]
Show = Callable[[str, Sequence[Json]], None]


def measure(
    plan: Plan,
    name: str,
    *,
    first: int,
    last: int,
    processes: Sequence[int],
    cores: int,
    threads: int | None,
    seconds: float,
    options: Sequence[str],
    show: Show,
    save: Callable[[Path, Json], None],
) -> Path:
    """Measure a training's speed by the size of its micro-batches, and with several numbers of processes by these.

    Whatever ends it, an error, Ctrl-C or a signal, the rows until then are shown and saved.

    Args:
        name: of the training, as `full_name` takes it.
        first, last: sequences of the smallest and of the largest micro-batch.
        processes: ascending; sizes are timed with the first number, and the fastest size with each.
        cores: of this machine.
        threads: of all processes together; None for all cores.
        seconds: to time each size for.
        options: more arguments of pretrain.py, or finetune.py.
        show: called with the name and the rows of each table as soon as it is measured.
        save: called at the end, if a size fits, with the folder for the files, and the sweep: the two tables, what was
            measured, when, and on what.

    Returns the folder. Raises BertlineError for impossible values, and if no size fits the memory.
    """
    name = full_name(plan, name)
    recipe = recipe_of(plan, name)
    batch = recipe["settings"][batch_key(recipe)]
    most = -(-batch // processes[0])
    tried = occurring(recipe, sizes(first, last, most=most), processes[0])
    if last > most:
        logger.info("a step of %s has %d sequences: micro-batches of more than %d do not occur", name, batch, most)
    _check(threads, seconds, options)
    trial = _trial(threads or cores, seconds, options)
    described = {
        "name": name,
        "experiment": plan.config["experiment"],
        "options": list(options),
        **{key: recipe[key] for key in ("model", "settings", "seed")},
        "started": int(1000 * time.time()),
    }
    tables: dict[str, list[Json]] = {MICRO_BATCHES: [], SCALING: []}
    folder = None
    try:
        _collect(tables, MICRO_BATCHES, by_micro_batch(recipe, tried, processes=processes[0], trial=trial), show)
        fastest = fastest_of(tables[MICRO_BATCHES])
        if fastest is not None and len(processes) > 1:
            size = fastest["micro_batch_size"]
            _collect(tables, SCALING, by_processes(recipe, processes, micro_batch_size=size, trial=trial), show)
    finally:
        if fastest := fastest_of(tables[MICRO_BATCHES]):
            device = f"{cores} CPU cores" if fastest["device"] == "cpu" else fastest["device"]
            described |= {"device": device, "finished": int(1000 * time.time())}
            folder = _folder_of(described, tables, threads or cores)
            save(folder, {**described, **tables})
    if folder is None:
        raise BertlineError(f"FROM={first}: not even this fits the memory; give less, or a smaller network")
    return folder


def _check(threads: int | None, seconds: float, options: Sequence[str]) -> None:
    if threads is not None and threads < 1:
        raise BertlineError(f"--threads {threads}: give 1 or more")
    if not 0 < seconds < math.inf:
        raise BertlineError(f"--seconds {seconds:g}: give more than 0")
    for option in options:
        name = option.partition("=")[0].replace("_", "-").replace("--no-", "--", 1)
        if name in REFUSED_OPTIONS:
            raise BertlineError(f"--options {option}: {REFUSED_OPTIONS[name]}")


def _trial(threads: int, seconds: float, options: Sequence[str]) -> Trial:
    def trial(recipe: Json, processes: int, tokens: int) -> Json:
        logger.info("timing %d tokens at once, %d process%s", tokens, processes, "" if processes == 1 else "es")
        given = ["--micro-batch-tokens", str(tokens), *options]
        return run_trial(recipe, processes=processes, threads=max(threads, processes), options=given, seconds=seconds)

    return trial


def _collect(tables: Mapping[str, list[Json]], name: str, measured: Iterator[Json], show: Show) -> None:
    """Append the rows to a table, and show it, also if measuring ends with an error."""
    try:
        for row in measured:
            tables[name].append(row)
    finally:
        if tables[name]:
            show(name, tables[name])


def _folder_of(described: Json, tables: Mapping[str, Sequence[Json]], threads: int) -> Path:
    """Return the folder of a sweep, by what was measured: one that ended early replaces no whole one."""
    identifying = {key: value for key, value in described.items() if key not in ("started", "finished")}
    done = {table: [[row["micro_batch_size"], row["processes"]] for row in rows] for table, rows in tables.items()}
    key = fingerprint({**identifying, **done, "threads": threads})
    return Path(paths.SWEEP.format(name=described["name"], fingerprint=key))


def process_counts(given: str) -> list[int]:
    """Return the numbers in a text such as 1,2,4, ascending."""
    if not all(part.isdecimal() and int(part) for part in given.split(",")):
        raise BertlineError(f"--processes {given}: give numbers from 1 separated by commas, such as 1,2,4")
    return sorted(set(map(int, given.split(","))))


def full_name(plan: Plan, name: str) -> str:
    """Return the name of the first phase for that of a run, or for "" of the only run; others as they are.

    Raises BertlineError without a name if there are several runs, or none.
    """
    if not name and len(plan.runs) != 1:
        raise BertlineError(f"there are {len(plan.runs)} runs; name one of them, or a training: {', '.join(plan.runs)}")
    name = name or next(iter(plan.runs))
    phases = plan.runs[name]["phases"] if name in plan.runs else {}
    return f"{name}/{next(iter(phases))}" if phases else name


def recipe_of(plan: Plan, name: str) -> Json:
    """Return the recipe of a phase or of a task's first fine-tuning, with random weights and its vocabulary's size.

    Args:
        name: run/phase or run/task, such as demo/phase1 or demo/glue/cola.

    Raises BertlineError with the nearest names for an unknown one, for a task that is left out as its data is missing,
    and if the vocabulary's size or the network of external weights is not known yet.
    """
    names: dict[str, Mapping[str, Any]] = {}
    for run, content in plan.runs.items():
        names |= {f"{run}/{phase}": plan.phases[key] for phase, key in reversed(content["phases"].items())}
        for place, key in reversed(content["finetunings"].items()):
            names[f"{run}/{place.rpartition('/')[0]}"] = plan.finetunings[key]
    if name not in names:
        _check_skipped(plan, name, names)
        near = ", ".join(nearest(name, list(names), plan.runs) or list(names)[:3])
        raise BertlineError(f"there is no training called {name}; near it are {near}")
    recipe = dict(names[name])
    model = dict(recipe["model"])
    if "directory" in model:
        described = Path(model["directory"], paths.CONFIG)
        network = read_network(described)
        if network is None:
            raise BertlineError(f"{described} does not exist; fetch the weights first: `snakemake {described.parent}`")
        model = network
    model.setdefault("vocab_size", _vocab_size(plan, recipe["dataset"]) if recipe["dataset"] else 0)
    settings = recipe["settings"] if "task" in recipe else recipe["settings"] | ABSENT
    return recipe | {"model": model, "initial_weights": None, "settings": settings}


def _check_skipped(plan: Plan, name: str, names: Collection[str]) -> None:
    """Raise BertlineError for a task that is left out, and if there are no `names`."""
    reasons = {f"{run}/{task}": reason for (run, task), reason in plan.skipped.items()}
    if name in reasons:
        raise BertlineError(f"{name}: {reasons[name]}")
    if not names:
        why = f" ({next(iter(reasons.values()))})" if reasons else "; add one"
        raise BertlineError(f"{name}: the configuration has no training to time here{why}")


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


def tokens_of_example(recipe: Mapping[str, Json]) -> int:
    """Return the tokens of a training's longest example; one of a pairwise ranking has two sequences."""
    settings = recipe["settings"]
    if "task" not in recipe:
        return int(settings["sequence_length"])
    return int(settings["max_sequence_length"]) * (2 if settings.get("objective") == "pairwise" else 1)


def sizes(first: int, last: int, *, most: int) -> list[int]:
    """Return first, twice as many, ... and last, up to `most`, which a process has of a step."""
    if not 1 <= first <= last:
        raise BertlineError(f"FROM={first} TO={last}: give 1 or more, and the larger one for TO")
    if first > most:
        raise BertlineError(f"FROM={first}: a process has {most} sequences of a step, and no more at once; give fewer")
    last = min(last, most)
    doubled = [first << bits for bits in range((last // first).bit_length()) if first << bits < last]
    return [*doubled, last]


def occurring(recipe: Json, tried: Sequence[int], processes: int) -> list[int]:
    """Return the sizes of the micro-batches that a training makes of these, without repetitions."""
    return sorted({_occurring(recipe, size, processes) for size in tried})


def _occurring(recipe: Json, size: int, processes: int) -> int:
    """Return the size of the micro-batches that a training makes of at most `size` sequences.

    A phase divides a process's part of a step evenly: of 100 sequences, 16 at once are 15, and 64 are 50.
    """
    settings = recipe["settings"]
    if "task" in recipe:
        return int(min(size, -(-settings["batch_size"] // processes)))
    from bertline.training.micro_batch import rows_of  # PyTorch takes seconds, and no error needs it

    return rows_of(size * tokens_of_example(recipe), settings, processes)


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
        row |= trial(_with_batch(recipe, sequences), processes, size * tokens_of_example(recipe))
        yield row
        if not row["fits"]:
            return
        if row["device"] == "cpu":
            memory.append((size, row["memory_bytes"]))


def by_processes(recipe: Json, numbers: Sequence[int], *, micro_batch_size: int, trial: Trial) -> Iterator[Json]:
    """Yield the speed of one global batch with each number of processes, ascending.

    Args:
        micro_batch_size: at most; a process may have fewer sequences of the batch.

    Each row also has `speed_up`, the first row's time of a step divided by its own, and `efficiency`, the speed-up
    divided by how many times as many processes there are.
    """
    recipe = _with_batch(recipe, _sequences(recipe, max(numbers) * micro_batch_size))
    first: Json | None = None
    for processes in sorted(numbers):
        size = _occurring(recipe, micro_batch_size, processes)
        row: Json = {"micro_batch_size": size, "processes": processes}
        row |= trial(recipe, processes, size * tokens_of_example(recipe))
        if not row["fits"]:
            yield row
            return
        first = first or row
        speed_up = first["step_seconds"] / row["step_seconds"]
        yield row | {"speed_up": speed_up, "efficiency": speed_up * first["processes"] / processes}


def _sequences(recipe: Json, at_once: int) -> int:
    """Return the sequences of a step: of a phase, several micro-batches, as far as its global batch has so many."""
    batch = recipe["settings"][batch_key(recipe)]
    accumulated = 1 if "task" in recipe else max(1, min(MAX_MICRO_BATCHES, batch // at_once))
    return int(min(batch, at_once * accumulated))


def _with_batch(recipe: Json, sequences: int) -> Json:
    return recipe | {"settings": recipe["settings"] | {batch_key(recipe): sequences}}


def batch_key(recipe: Mapping[str, Json]) -> str:
    """Return the setting with the sequences, or examples, of a step."""
    return "batch_size" if "task" in recipe else "global_batch_size"


def _extrapolated(memory: Sequence[tuple[int, int]], size: int) -> float:
    """Return the bytes that a process with micro-batches of `size` is going to need; 0 if that is not known."""
    if len(memory) < 2:
        return 0.0
    (smaller, less), (larger, more) = memory[-2:]
    return more + (size - larger) * max(0, more - less) / (larger - smaller)
