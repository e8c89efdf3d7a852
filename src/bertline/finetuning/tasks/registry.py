"""Registry of the fine-tuning tasks."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertline.console import BertlineError
from bertline.finetuning.tasks.boolq import BOOLQ
from bertline.finetuning.tasks.glue import GLUE_TASKS
from bertline.finetuning.tasks.squad import SQUAD_TASKS
from bertline.finetuning.tasks.task import Task

if TYPE_CHECKING:
    from bertline.finetuning.prepared import PreparedTask

TASKS: dict[str, Task] = {**SQUAD_TASKS, "boolq": BOOLQ, **GLUE_TASKS}

# Functions for data that a configuration describes, by its kind.
PREPARE_TABLE = {
    "classification": "bertline.finetuning.text_task:prepare_table",
    "regression": "bertline.finetuning.text_task:prepare_table",
    "tagging": "bertline.finetuning.tag_task:prepare_tagging",
    "ranking": "bertline.finetuning.ranking.task:prepare_ranking",
}
RANKING = "ranking/"  # before the names of ranking tasks, as `table/` before those of tables


def name_of_task(task: str) -> str:
    """Return a task's name in a run's folder and in reports: `cola` is glue/cola, others keep theirs."""
    family = TASKS[task].family if task in TASKS else ""
    return f"{family}/{task}" if family else task


def settings_of_task(task: str) -> str:
    """Return the schema's definition of a task's settings."""
    if task in TASKS:
        return TASKS[task].settings
    return "ranking" if task.startswith(RANKING) else "classification"


def prepare_task(
    task: str,
    data: Mapping[str, str],
    settings: Mapping[str, Any],
    tokenizer_path: Path | str,
    table: Mapping[str, Any] | None = None,
) -> PreparedTask:
    """Read and tokenize a task's files.

    Args:
        data: the files by set: train, dev and, for predictions only, test sets.
        settings: of the recipe; the seed too, for a task that draws examples.
        table: the description of a custom table or a ranking, as in the configuration; None for a registered task.

    Raises BertlineError for an unknown task or a bad file.
    """
    if table is None and task not in TASKS:
        raise BertlineError(f"unknown task '{task}', allowed are {', '.join(TASKS)}")
    from bertline.encoding.tokenizer import read_tokenizer

    described = TASKS[task] if table is None else table
    module, function = (TASKS[task].prepare if table is None else PREPARE_TABLE[table["kind"]]).split(":")
    return getattr(importlib.import_module(module), function)(described, data, settings, read_tokenizer(tokenizer_path))
