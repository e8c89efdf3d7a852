"""Workers that do not synchronise, in threads of one process: how long they wait for each other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, distributed

from bertline.finetuning import workers
from bertline.finetuning.workers import best_worker, meet
from bertline.training.contract import STOPPED
from bertline.training.distributed.process_group import Group
from bertline.training.stop import StopSignal

SCORES = {0: 40.0, 1: 70.0, 2: 50.0}


def groups() -> list[Group]:
    """Two ranks that share a store."""
    store = distributed.HashStore()
    return [Group(rank, 2, torch.device("cpu"), 2, store) for rank in range(2)]


def test_ranks_whose_trainings_end_at_different_times_meet_before_a_collective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_waits, all_arrive = threading.Event(), threading.Barrier(2)
    trained: set[int] = set()
    gathered: dict[int, list[float]] = {}

    def gather(group: Group, values: list[float]) -> Tensor:
        assert trained == {0, 1, 2}, "a collective would time out"
        gathered[group.rank] = values
        all_arrive.wait(20)
        return torch.tensor([gathered[rank] for rank in range(2)])

    def fit(_seed: int, _team: Group, place: Path) -> Any:
        worker = int(place.name.removeprefix("worker-"))
        if worker == 1:
            other_waits.wait(20)  # rank 0 has finished both of its own
        evaluation = SimpleNamespace(scores={"f1": SCORES[worker]})
        dev = SimpleNamespace(inputs=None, evaluate=lambda _outputs: evaluation)
        task = SimpleNamespace(primary="f1", padding=0, dev=dev)
        trained.add(worker)
        return SimpleNamespace(task=task, model=None, settings={"precision": "fp32"}), worker

    monkeypatch.setattr(workers, "predict", lambda *_given: None)
    monkeypatch.setattr(workers.time, "sleep", lambda _seconds: other_waits.set())
    monkeypatch.setattr(Group, "gather", gather)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda group: best_worker(fit, 3, 1, group, tmp_path, None), groups()))
    assert [scores for _, scores in found] == [[40.0, 70.0, 50.0]] * 2
    assert found[0][0] is None
    assert found[1][0] is not None
    assert found[1][0][1] == cast(Any, 1)


def test_a_rank_that_waits_for_the_others_stops_when_asked() -> None:
    asked = cast(StopSignal, SimpleNamespace(received=True))
    first, second = groups()
    with pytest.raises(SystemExit) as ended:
        meet(first, "trained", asked)
    assert ended.value.code == STOPPED
    meet(second, "trained", asked)  # nobody to wait for
    meet(Group(0, 1, torch.device("cpu")), "trained", asked)
