"""What the page, the model card and the terminal say of a phase and of a corpus, in numbers."""

from __future__ import annotations

import statistics
from typing import Any

from bertline.tracking.courses import hours_of
from bertline.tracking.records import EncodedDataset, Phase


def phase_facts(phase: Phase) -> dict[str, Any]:
    """What a phase came to, in numbers: None where its journal does not say.

    Losses are in nats, hours those of its steps.
    """
    _, speed = phase.series("train/tokens_per_second")
    _, tokens = phase.series("train/tokens")
    return {
        "name": phase.name,
        "finished": phase.finished,
        "steps": phase.journal[-1].step,
        "planned_steps": phase.recipe.get("settings", {}).get("steps"),
        "tokens": int(tokens[-1]) if tokens else None,
        "hours": hours_of(phase),
        "held_out_loss": phase.held_out("mlm_loss"),
        "trigram_loss": phase.trigram_loss,
        "held_out_accuracy": phase.held_out("mlm_accuracy"),
        "tokens_per_second": statistics.median(speed) if speed else None,
    }


def corpus_rows(dataset: EncodedDataset) -> list[dict[str, Any]]:
    """For each corpus the documents read, kept, and dropped by reason, the commonest reason first."""
    rows = []
    for corpus in dataset.card.get("corpora", []):
        dropped = sorted(corpus.get("dropped", {}).items(), key=lambda item: (-item[1], item[0]))
        read = corpus["documents"] + sum(count for _, count in dropped)
        rows.append({"name": corpus["name"], "read": read, "kept": corpus["documents"], "dropped": dropped})
    return rows
