"""Curves of a quantity over a whole pretraining, by step, samples, tokens and hours of training; and its cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bertline.results.records import Phase


class Place(NamedTuple):
    """The place of a journal's point in a pretraining, counted from its first phase.

    `hours` is the time of training steps, without pauses between the jobs of a phase, evaluations and waiting.
    `timestamp` is the point's own, in Unix milliseconds.
    """

    step: int
    samples: float
    tokens: float
    hours: float
    timestamp: int


@dataclass(frozen=True)
class Cost:
    """The cost of a pretraining. `process_hours` are hours times ranks: GPU hours if each rank has a GPU.

    `kilowatt_hours` is an estimate from a GPU's power, averaged over the ranks whenever the journal was written; None
    if no power was recorded.
    """

    process_hours: float
    on_gpus: bool
    kilowatt_hours: float | None


def places(phases: Sequence[Phase]) -> Iterator[tuple[Phase, Place, dict[str, float]]]:
    """Yield every point of the phases' journals as (phase, place, metrics), in order."""
    before = Place(0, 0.0, 0.0, 0.0, 0)
    for phase in phases:
        now, samples, tokens, speed = before, 0.0, 0.0, 0.0
        for point in phase.journal:
            speed = point.metrics.get("train/tokens_per_second", speed)
            more_samples = point.metrics.get("train/samples", samples) - samples
            more_tokens = point.metrics.get("train/tokens", tokens) - tokens
            samples, tokens = samples + more_samples, tokens + more_tokens
            now = Place(
                before.step + point.step,
                now.samples + more_samples,
                now.tokens + more_tokens,
                now.hours + (more_tokens / speed / 3600 if more_tokens > 0 and speed > 0 else 0.0),
                point.timestamp,
            )
            yield phase, now, point.metrics
        before = now


def curve(phases: Sequence[Phase], key: str) -> tuple[list[Place], list[float]]:
    """Return the places at which `key` was recorded, and its values there."""
    found = [(place, metrics[key]) for _, place, metrics in places(phases) if key in metrics]
    return [place for place, _ in found], [value for _, value in found]


def hours_of(phase: Phase) -> float:
    """Return the hours that the steps of a phase took."""
    return max((place.hours for _, place, _ in places([phase])), default=0.0)


def phase_facts(phase: Phase) -> dict[str, Any]:
    """Return the results of a phase for the page, the model card and the terminal; None if not in its journal.

    Losses are in nats; hours include only steps. `published_step` is None if it is the last.
    """
    last, published = phase.journal[-1].step, phase.recipe.get("published_step")
    _, speed = phase.series("train/tokens_per_second")
    _, tokens = phase.series("train/tokens")
    return {
        "name": phase.name,
        "finished": phase.finished,
        "steps": last,
        "published_step": None if published == last else published,
        "tokens": int(tokens[-1]) if tokens else None,
        "hours": hours_of(phase),
        "held_out_loss": phase.held_out("mlm_loss"),
        "trigram_loss": phase.trigram_loss,
        "held_out_accuracy": phase.held_out("mlm_accuracy"),
        "tokens_per_second": statistics.median(speed) if speed else None,
    }


def cost_of(phases: Sequence[Phase]) -> Cost | None:
    """Return the cost of the finished phases; None if none is finished.

    Points without the number of ranks count with that of the point before, and the first ones with the last trainer's.
    """
    finished = [phase for phase in phases if phase.finished and phase.recipe.get("world_size") and phase.journal]
    if not finished:
        return None
    process_hours, energy, powered = 0.0, 0.0, False
    for phase in finished:
        ranks, before = phase.recipe["world_size"], 0.0
        for _, place, metrics in places([phase]):
            ranks = metrics.get("system/processes", ranks)  # it differs if a trainer resumed on another number
            hours, before = (place.hours - before) * ranks, place.hours
            process_hours += hours
            power = metrics.get("system/gpu_power_watts")
            if power is not None:
                powered = True
                energy += hours * power / 1000
    on_gpus = any("system/gpu_percent" in point.metrics for phase in finished for point in phase.journal)
    return Cost(process_hours, on_gpus, energy if powered else None)
