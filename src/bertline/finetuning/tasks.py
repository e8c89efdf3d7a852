"""Preparation of a task by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertline.console import BertlineError
from bertline.encoding.tokenizer import read_tokenizer
from bertline.finetuning.glue import GLUE_TASKS
from bertline.finetuning.prepared import PreparedTask
from bertline.finetuning.sequences import special_tokens
from bertline.finetuning.squad_task import prepare_squad
from bertline.finetuning.tag_task import prepare_tagging
from bertline.finetuning.text_task import prepare_glue, prepare_table

SQUAD_TASKS = ("squad_v1", "squad_v2")


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
        settings: of the recipe.
        table: the description of a custom table, as in the configuration; None for SQuAD and GLUE.

    Raises BertlineError for an unknown task or a bad file.
    """
    if table is None and task not in (*SQUAD_TASKS, *GLUE_TASKS):
        raise BertlineError(f"unknown task '{task}', allowed are {', '.join([*SQUAD_TASKS, *GLUE_TASKS])}")
    tokenizer = read_tokenizer(tokenizer_path)
    special = special_tokens(tokenizer)
    if table is not None and table["kind"] == "tagging":
        return prepare_tagging(table, data, settings, tokenizer, special)
    if table is not None:
        return prepare_table(table, data, settings, tokenizer, special)
    prepare = prepare_squad if task in SQUAD_TASKS else prepare_glue
    return prepare(task, data, settings, tokenizer, special)
