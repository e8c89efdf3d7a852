"""The tasks that an entry of `runs:` asks for, and the points of their grids."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def tasks_of(finetune: Json) -> Iterator[tuple[str, Json]]:
    """Every task with its settings: SQuAD's first, then GLUE's, then tables of one's own."""
    for task in ("squad_v1", "squad_v2"):
        if task in finetune:
            yield task, finetune[task]
    yield from finetune.get("glue", {}).items()
    for name, settings in finetune.get("tables", {}).items():
        yield f"table/{name}", settings


def key_of_task(task: str) -> str:
    """Where a task stands under `finetune`."""
    if task.startswith("squad"):
        return task
    return f"tables.{task.removeprefix('table/')}" if task.startswith("table/") else f"glue.{task}"


def grid_points(grid: Json) -> Iterator[tuple[str, Json]]:
    """Every combination of a grid's values, and what stands for it in a name; without a grid, the settings alone."""
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        yield "".join(f"/{key}-{value:g}" for key, value in point.items()), point
