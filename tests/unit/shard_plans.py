"""Plans of shards as one value, with the pieces of every shard."""

from __future__ import annotations

from pathlib import Path

from bertline.corpus import shards
from bertline.files import Json


def make_plan(
    corpora: list[tuple[str, list[str]]],
    number: int,
    held_out: float,
    removed: Path | str | None = None,
    sample: Json | None = None,
) -> Json:
    plan, pieces = shards.stream_plan(corpora, number, held_out, removed, sample)
    return plan | {"shards": dict(pieces)}


def write_plan(path: Path | str, plan: Json) -> None:
    shards.write_plan(path, plan | {"shards": list(plan["shards"])}, sorted(plan["shards"].items()))
