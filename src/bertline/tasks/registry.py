"""Registry of the fine-tuning tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertline.tasks.boolq import BOOLQ
from bertline.tasks.glue import GLUE_TASKS
from bertline.tasks.squad import SQUAD_TASKS
from bertline.tasks.task import Task, TextTask

TASKS: dict[str, Task] = {**SQUAD_TASKS, "boolq": BOOLQ, **GLUE_TASKS}

# Functions for data that a configuration describes, by its kind.
TABLES = {
    "classification": Task(title="Classification", prepare="bertline.finetuning.text_task:prepare_table"),
    "regression": Task(title="Regression", prepare="bertline.finetuning.text_task:prepare_table"),
    "tagging": Task(title="Tagging", prepare="bertline.finetuning.tag_task:prepare_tagging", head="tokens"),
    "ranking": Task(title="Ranking", prepare="bertline.finetuning.ranking.task:prepare_ranking"),
}
RANKING = "ranking/"  # before the names of ranking tasks, as `table/` before those of tables


def name_of_task(task: str) -> str:
    """Return a task's name in a run's folder and in reports: `cola` is glue/cola, others keep theirs."""
    family = TASKS[task].family if task in TASKS else ""
    return f"{family}/{task}" if family else task


def texts_of_task(task: str, table: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the names of the one or two texts of an input; `text` for an unknown task.

    Args:
        task: its name, as in a recipe.
        table: of a custom table, as in the configuration.
    """
    if task.startswith(RANKING):
        return ("query", "passage")
    known = TASKS.get(task)
    return known.texts if isinstance(known, TextTask) else tuple((table or {}).get("texts", ("text",)))


def settings_of_task(task: str) -> str:
    """Return the schema's definition of a task's settings."""
    if task in TASKS:
        return TASKS[task].settings
    return "ranking" if task.startswith(RANKING) else "classification"


def description_of(task: str, table: Mapping[str, Any] | None) -> Task:
    """Return the description of a task; `table` is that of a custom table or a ranking, as in the configuration."""
    return TASKS[task] if table is None else TABLES[table["kind"]]
