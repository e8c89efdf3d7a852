"""Figures of a phase for the page, the model card and the terminal."""

from __future__ import annotations

import statistics
from typing import Any

from bertline.results.curves import hours_of
from bertline.results.records import Phase


def phase_facts(phase: Phase) -> dict[str, Any]:
    """Return a phase's results as numbers, None for those that are not in its journal.

    Losses are in nats; hours include only steps.
    """
    _, speed = phase.series("train/tokens_per_second")
    _, tokens = phase.series("train/tokens")
    return {
        "name": phase.name,
        "finished": phase.finished,
        "steps": phase.journal[-1].step,
        "tokens": int(tokens[-1]) if tokens else None,
        "hours": hours_of(phase),
        "held_out_loss": phase.held_out("mlm_loss"),
        "trigram_loss": phase.trigram_loss,
        "held_out_accuracy": phase.held_out("mlm_accuracy"),
        "tokens_per_second": statistics.median(speed) if speed else None,
    }
