"""A sweep on disk: sweep.json with two tables, whose rows `bertline.planning.sweep` measures."""

from __future__ import annotations

from collections.abc import Sequence

from bertline.files import Json

SWEEP = "sweep.json"
MICRO_BATCHES, SCALING = "micro_batches", "scaling"  # names of the tables


def fastest_of(rows: Sequence[Json]) -> Json | None:
    """Return the row of a table with the most sequences per second; None if none fits the memory."""
    return max((row for row in rows if row["fits"]), key=lambda row: row["sequences_per_second"], default=None)
