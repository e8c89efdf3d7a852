"""Estimates of a plan's remaining work from records: benchmarks of data jobs, journals of trainings.

Parts of a corpus and shards of a dataset are similar, so finished ones predict the others; jobs of other corpora, which
may be a thousand times smaller, do not. Without a record of training a network, the estimate uses its floating point
operations and the speed of a GPU in site.yaml. Every estimate states its basis.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.sources import listing_of, slices_of
from bertline.encoding.tokenizer import load_tokenizer
from bertline.files import Json, one_line_damage, read_object, write_json
from bertline.fingerprint import fingerprint
from bertline.modeling.network_config import shape_of
from bertline.planning.entries import CorpusEntry, PhaseRecipe
from bertline.planning.plan import Plan
from bertline.planning.pruning import size_of
from bertline.planning.remaining import DatasetLeft, datasets_left, phases_left
from bertline.results import paths
from bertline.results.journal import read_journal
from bertline.settings.site import Site
from bertline.training.data.batch_size_warmup import batch_size_warmup_of

# The settings of a phase that determine the time per sample, in addition to the network.
SAME_SPEED = ("sequence_length", "precision", "packing")
PLAIN_OPTIMIZERS = {"adamw", "lamb", "lion", "sgd"}  # their own work is small and about the same
# Those under the optimizer's own key and under kfac: how often and of what matrices are decomposed.
SAME_SPEED_OF_OPTIMIZER = (
    *("basis_interval", "root_interval", "largest_side"),
    *("method", "gradient_factor", "factor_interval", "inverse_interval", "skip"),
)
UNKNOWN_SPEED = "unknown: no record of such a training, and no `gpu` in site.yaml"
# One core, from a megabyte of a bz2 dump to its sentences: `make bench-data` on real text, AMD EPYC, November 2026.
SECONDS_OF_DUMP_MEGABYTE = 0.5


@dataclass(frozen=True)
class Estimate:
    """Estimate of the remaining work of one stage. None means unknown."""

    what: str
    jobs: int | None
    core_hours: float | None = None  # of data jobs
    node_hours: float | None = None  # of training
    size: float | None = None  # bytes on disk
    basis: str = ""  # of the estimate, in words


def estimates(plan: Plan, site: Site | None = None) -> list[Estimate]:
    """Return one entry for every dataset and phase of which something is to be made, and for the datasets' corpora.

    Args:
        site: gives the number of processes per node, and the speed of a GPU. Without it a node has as many processes as
            in the records.
    """
    datasets = datasets_left(plan)
    read = {corpus for key, left in datasets.items() if left.reads_corpora for corpus in plan.datasets[key]["corpora"]}
    found = [_corpus(key, corpus) for key, corpus in plan.corpora.items() if key in read]
    found += [_dataset(plan, key, left) for key, left in datasets.items()]
    for key in phases_left(plan):
        found.append(_phase(plan, plan.phases[key], Path(paths.PHASE.format(phase=key)), site))
    return [left for left in found if left.jobs != 0]


def _corpus(key: str, corpus: CorpusEntry) -> Estimate:
    what = f"corpus {corpus['name']}"
    parts, dump_bytes = list(corpus.get("parts", {})), 0
    if "parts" not in corpus:
        try:
            content = listing_of(corpus)
        except BertlineError:
            return Estimate(what, None, basis="unknown: the dump is not listed yet (snakemake list_parts)")
        parts, dump_bytes = list(slices_of(content)), sum(part["size"] for part in content["parts"].values())
    unread = sum(not Path(paths.DOCUMENTS.format(corpus=key, part=part)).exists() for part in parts)
    unsplit = sum(not Path(paths.SENTENCES.format(corpus=key, part=part)).exists() for part in parts)
    reading = ("extract_part", "clean_part") if "parts" not in corpus else ("read_part",)
    jobs = dict.fromkeys(reading, unread) | {"split_sentences": unsplit}
    hours, basis = _core_hours(key, jobs)
    if hours is None and dump_bytes:
        hours = dump_bytes / 1e6 * SECONDS_OF_DUMP_MEGABYTE / 3600
        basis = f"{dump_bytes / 1e9:.3g} GB of dump, at {SECONDS_OF_DUMP_MEGABYTE:g} s per MB on another machine"
    return Estimate(what, sum(jobs.values()), core_hours=hours, basis=basis)


def _dataset(plan: Plan, key: str, left: DatasetLeft) -> Estimate:
    jobs = {"write_shard": len(left.write), "encode_shard": len(left.encode)}
    hours, basis = _core_hours(key, jobs)
    pattern, lengths = paths.SAMPLES.format(length="*", shard="?????"), plan.config["sequence_lengths"]
    samples = [path.stat().st_size for path in Path(plan.dataset_folder(key)).glob(pattern)]
    return Estimate(
        f"dataset {plan.datasets[key]['name']}, its shards",
        sum(jobs.values()),
        core_hours=hours,
        size=len(left.encode) * len(lengths) * statistics.median(samples) if samples else None,
        basis=basis,
    )


def _core_hours(key: str, jobs: Json) -> tuple[float | None, str]:
    """Return the hours of one core for the number of jobs of each rule, by the median of the finished ones for `key`,
    and the basis in words."""
    hours, recorded = 0.0, 0
    for rule, count in jobs.items():
        seconds = recorded_seconds(Path("benchmarks", rule, key).glob("*.tsv"), "cpu_time")
        if count and not seconds:
            return None, f"unknown: none of its {rule} jobs is finished"
        hours += count * statistics.median(seconds or [0]) / 3600
        recorded += len(seconds) if count else 0
    return hours, f"{recorded} finished jobs of the same kind"


def recorded_seconds(files: Iterable[Path], column: str) -> list[float]:
    """Return a column of Snakemake's benchmarks: `s`, from start to end, or `cpu_time`. Damaged files are left out."""
    seconds = []
    for path in files:
        with suppress(OSError, UnicodeDecodeError, csv.Error), path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                # Snakemake writes NA for a job that was too short to measure.
                with suppress(KeyError, TypeError, ValueError):
                    seconds.append(float(row[column]))
    return [of_job for of_job in seconds if math.isfinite(of_job)]


@dataclass(frozen=True)
class _Speed:
    """The speed of a training, recorded or computed."""

    process_seconds: float  # per sample
    processes: float  # per node
    basis: str


def _phase(plan: Plan, phase: PhaseRecipe, folder: Path, site: Site | None) -> Estimate:
    alike = _alike(phase)
    sizes = [size_of(path) for path, _ in alike]
    speed = _recorded_speed(phase, folder, alike, site) or _computed_speed(plan, phase, site)
    hours = None
    if speed:
        processes = site.size(phase["phase"]).mean_processes_per_node if site else speed.processes
        hours = _samples_left(phase, folder) * speed.process_seconds / processes / 3600
    return Estimate(
        f"{phase['phase']} ({folder.name})",
        1,
        node_hours=hours,
        size=statistics.median(sizes) if sizes else None,
        basis=speed.basis if speed else UNKNOWN_SPEED,
    )


def _recorded_speed(
    phase: PhaseRecipe, folder: Path, alike: list[tuple[Path, Json]], site: Site | None
) -> _Speed | None:
    """Return the speed of a training from the nearest record. Trials are of this machine, not of a site's nodes."""
    speed = _own_speed(folder, phase["settings"]) or _speed_of_finished(alike)
    return speed or (None if site else _timed_speed(phase))


def training_seconds(plan: Plan, key: str, site: Site | None = None) -> float | None:
    """Return how long the job of a phase takes, from its last checkpoint on; None if its network is not on record.

    Args:
        site: gives the number of processes. Without it, they are as many as in the records.
    """
    phase, folder = plan.phases[key], Path(paths.PHASE.format(phase=key))
    alike = _alike(phase)
    speed = _recorded_speed(phase, folder, alike, site)
    if speed is None:
        return None
    processes = sum(kind.processes for kind in site.size(phase["phase"]).kinds) if site else speed.processes
    return _samples_left(phase, folder) * speed.process_seconds / processes + _seconds_besides_training(alike)


def _samples_left(phase: PhaseRecipe, folder: Path) -> int:
    settings = phase["settings"]
    warmup = batch_size_warmup_of(settings)
    return warmup.position_at(settings["steps"]) - warmup.position_at(paths.durable_step(folder))


def _seconds_besides_training(alike: list[tuple[Path, Json]]) -> float:
    """Return the median time in the jobs of finished trainings before the first step and after the last."""
    besides = []
    for path, recipe in alike:
        trained = (recipe.get("finished", 0) - recipe.get("started", 0)) / 1000  # over all jobs of one that was stopped
        recorded = recorded_seconds([Path("benchmarks/pretrain_phase", f"{path.name}.tsv")], "s")
        besides += [max(0.0, seconds - trained) for seconds in recorded]
    return statistics.median(besides) if besides else 0.0


def _alike(phase: PhaseRecipe) -> list[tuple[Path, Json]]:
    """Return the finished trainings, and their recipes, that take as long for a sample."""
    finished = [(path, _recipe_of(path)) for path in paths.finished_folders(paths.PHASE, paths.PHASE_OUTPUTS)]
    return [(path, recipe) for path, recipe in finished if _is_alike(path / paths.RECIPE, recipe, phase)]


def _recipe_of(folder: Path) -> Json:
    path = folder / paths.RECIPE
    recipe = read_object(path, "settings", "model", "hardware")
    with one_line_damage(path):
        return {**recipe, "world_size": int(recipe["world_size"]), "hardware": str(recipe["hardware"])}


def _is_alike(path: Path, recipe: Json, phase: PhaseRecipe) -> bool:
    with one_line_damage(path):
        same_settings = settings_of_speed(recipe["settings"]) == settings_of_speed(phase["settings"])
        return same_settings and shape_of(recipe["model"]) == shape_of(phase["model"])


def settings_of_speed(settings: Json) -> Json:
    """Return the settings of a phase on which the time per sample depends, in addition to the network."""
    optimizer = settings.get("optimizer", "adamw")
    kind = "plain" if optimizer in PLAIN_OPTIMIZERS else optimizer
    found = {name: settings[name] for name in SAME_SPEED} | {"optimizer": kind}
    for key in (kind, "kfac"):
        if (chosen := settings.get(key)) is not None:
            found[key] = {name: chosen[name] for name in SAME_SPEED_OF_OPTIMIZER if name in chosen}
    if not found.get(kind):  # a trial may leave out settings that take no time, such as Muon's
        found.pop(kind, None)
    return found


def _own_speed(folder: Path, settings: Json) -> _Speed | None:
    """Return the speed of a training that was started; None without a record."""
    step = paths.durable_step(folder)
    state = folder / paths.CHECKPOINTS / paths.CHECKPOINT.format(step=step) / paths.STATE
    rate = _samples_per_second(folder / paths.STARTED_JOURNAL)
    if rate is None or not state.exists():
        return None
    reproducibility = read_object(state).get("reproducibility")
    if reproducibility is None:  # a checkpoint of another layout version
        return None
    with one_line_damage(state):
        processes = int(reproducibility["world_size"])
    return _Speed(processes / rate, processes, f"its own journal, up to step {step} of {settings['steps']}")


def _speed_of_finished(alike: list[tuple[Path, Json]]) -> _Speed | None:
    """Return the median of finished trainings, from their journals, which exclude waiting in queues."""
    known = [
        (recipe["world_size"] / rate, recipe)
        for path, recipe in alike
        if (rate := _samples_per_second(path / paths.JOURNAL))
    ]
    if not known:
        return None
    hardware = ", ".join(sorted({recipe["hardware"] for _, recipe in known}))
    phases = "phase" if len(known) == 1 else "phases"
    return _Speed(
        statistics.median(seconds for seconds, _ in known),
        max(recipe["world_size"] for _, recipe in known),
        f"{len(known)} finished {phases} of this network with such an optimizer, on {hardware}",
    )


def _samples_per_second(journal: Path) -> float | None:
    """Return the median speed of steps over a journal's points, less the mean share of all else; None without any."""
    key, overall = "train/samples_per_second", "train/overall_samples_per_second"
    points = [point.metrics for point in read_journal(journal) if key in point.metrics]
    if not points:
        return None
    with one_line_damage(journal):
        slower = statistics.fmean(point[key] / point[overall] for point in points)
        return statistics.median(point[key] for point in points) / slower


def record_speed(recipe: Json, timed: Json) -> None:
    """Keep the speed of a trial of some steps, for estimates before the first training of its network.

    Args:
        timed: what `bertline.planning.trials.run_trial` returns.
    """
    settings = {**settings_of_speed(recipe["settings"]), "global_batch_size": recipe["settings"]["global_batch_size"]}
    what = {"model": recipe["model"], "settings": settings, "world_size": timed["processes"]}
    content = what | {"hardware": timed["device"], "seconds": timed["busy_seconds"]}
    write_json(Path(paths.TIMED_STEP.format(fingerprint=fingerprint(what))), content)


def _timed_speed(phase: PhaseRecipe) -> _Speed | None:
    """Return the median of trials of this network."""
    speeds = []
    for path in sorted(Path(paths.TIMED_STEP).parent.glob("*.json")):
        step = read_object(path, "model", "settings", "seconds", "world_size", "hardware")
        if _is_alike(path, step, phase):
            with one_line_damage(path):
                of_sample = step["seconds"] * step["world_size"] / step["settings"]["global_batch_size"]
                speeds.append((of_sample, int(step["world_size"]), str(step["hardware"])))
    if not speeds:
        return None
    seconds, processes, hardware = zip(*speeds, strict=True)
    where = ", ".join(sorted(set(hardware)))
    return _Speed(statistics.median(seconds), max(processes), f"a trial of some steps, on {where}")


def _computed_speed(plan: Plan, phase: PhaseRecipe, site: Site | None) -> _Speed | None:
    """Return the speed computed from the operations of the network and the stated speed of a GPU."""
    vocab_size = phase["model"].get("vocab_size") or _vocab_size(plan, phase["dataset"])
    if site is None or site.gpu is None or not site.size(phase["phase"]).gpus_per_node or vocab_size is None:
        return None
    from bertline.training.flops import flops_of_a_sample  # PyTorch takes seconds, and is rarely needed here

    settings = phase["settings"]
    length, masking = settings["sequence_length"], settings["masking"]
    masked = min(masking["probability"] * length, masking.get("max_predictions") or length)
    flops = flops_of_a_sample({**phase["model"], "vocab_size": vocab_size}, length=length, masked=masked)
    share = f"{100 * site.gpu.share:g} % of {site.gpu.peak_tflops:g} TFLOP/s per GPU ({site.path})"
    return _Speed(
        flops / (1e12 * site.gpu.peak_tflops * site.gpu.share),
        site.size(phase["phase"]).mean_processes_per_node,
        f"computed: {flops / 1e9:,.3g} GFLOP per full sequence at {share}",
    )


def _vocab_size(plan: Plan, dataset: str) -> int | None:
    """Return the size of a dataset's vocabulary: of the finished tokenizer, or as configured."""
    tokenizer = Path(plan.dataset_folder(dataset), paths.TOKENIZER)
    if tokenizer.exists():
        return load_tokenizer(tokenizer).get_vocab_size()
    return plan.datasets[dataset].get("settings", {}).get("tokenizer", {}).get("vocab_size")
