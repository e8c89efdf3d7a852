"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, arXiv 1606.05250; 2018, arXiv 1806.03822)."""

from __future__ import annotations

from dataclasses import dataclass

from bertline.finetuning.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class SquadTask(Task):
    """SQuAD; `version` is v1, or v2 with unanswerable questions."""

    prepare: str = "bertline.finetuning.squad_task:prepare_squad"
    settings: str = "squad"
    version: str


SQUAD_TASKS = {
    "squad_v1": SquadTask(title="SQuAD 1.1", version="v1"),
    "squad_v2": SquadTask(title="SQuAD 2.0", version="v2"),
}
