"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, arXiv 1606.05250; 2018, arXiv 1806.03822)."""

from __future__ import annotations

from dataclasses import dataclass

from bertline.tasks.task import Head, Task


@dataclass(frozen=True, kw_only=True)
class SquadTask(Task):
    """SQuAD; `version` is v1, or v2 with unanswerable questions."""

    prepare: str = "bertline.finetuning.squad_task:prepare_squad"
    head: Head = "answer"
    settings: str = "squad"
    version: str


SQUAD_TASKS = {
    "squad_v1": SquadTask(
        title="SQuAD 1.1",
        version="v1",
        hub="rajpurkar/squad",
        # The digest of the official dev-v1.1.json, whose SHA-256 begins with 95aa6a52.
        digests={"dev": "57e866cfeeb36e60751ba16d5c34085c7acf79c09b284d4e4f60118f2a32f5fb"},
    ),
    "squad_v2": SquadTask(title="SQuAD 2.0", version="v2", hub="rajpurkar/squad_v2"),
}
