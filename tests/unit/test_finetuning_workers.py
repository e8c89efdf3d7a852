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


def worker_of(place: Path) -> int:
    return int(place.name.removeprefix("worker-"))


def learner_with(score: float) -> Any:
    """What `best_worker` uses of a learner whose main score on the dev set is `score`."""
    dev = SimpleNamespace(inputs=None, evaluate=lambda _outputs: SimpleNamespace(scores={"f1": score}))
    task = SimpleNamespace(primary="f1", padding=0, dev=dev)
    return SimpleNamespace(task=task, model=None, settings={"precision": "fp32"})


def test_ranks_whose_trainings_end_at_different_times_meet_before_a_collective(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_waits, all_arrive = threading.Event(), threading.Barrier(2)
    trained: set[int] = set()
    gathered: dict[int, list[float]] = {}

    def gather(group: Group, values: list[float]) -> Tensor:
        assert trained == {0, 1, 2}, "a collective would time out"
        gathered[group.rank] = values
        all_arrive.wait(240)
        return torch.tensor([gathered[rank] for rank in range(2)])

    def fit(_seed: int, _team: Group, place: Path) -> Any:
        worker = worker_of(place)
        if worker == 1:
            other_waits.wait(240)  # rank 0 has finished both of its own
        trained.add(worker)
        return learner_with(SCORES[worker]), worker

    monkeypatch.setattr(workers, "predict", lambda *_given: None)
    monkeypatch.setattr(workers.time, "sleep", lambda _seconds: other_waits.set())
    monkeypatch.setattr(Group, "gather", gather)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda group: best_worker(fit, 3, 1, group, tmp_path, None), groups()))
    assert [scores for _, scores in found] == [[40.0, 70.0, 50.0]] * 2
    assert found[0][0] is None
    assert found[1][0] is not None
    assert found[1][0][1] == cast(Any, 1)


@pytest.mark.parametrize("ranks", [1, 2])
def test_of_workers_with_equal_scores_the_first_is_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    all_arrive, gathered = threading.Barrier(ranks), {}

    def gather(group: Group, values: list[float]) -> Tensor:
        gathered[group.rank] = values
        all_arrive.wait(240)
        return torch.tensor([gathered[rank] for rank in range(ranks)])

    def fit(_seed: int, _team: Group, place: Path) -> Any:
        return learner_with([70.0, 70.0, 50.0][worker_of(place)]), worker_of(place)

    monkeypatch.setattr(workers, "predict", lambda *_given: None)
    monkeypatch.setattr(workers, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(Group, "gather", gather)
    team = groups() if ranks == 2 else [Group(0, 1, torch.device("cpu"))]
    with ThreadPoolExecutor(ranks) as pool:
        found = list(pool.map(lambda group: best_worker(fit, 3, 1, group, tmp_path, None), team))
    assert [scores for _, scores in found] == [[70.0, 70.0, 50.0]] * ranks
    assert [best and best[1] for best, _ in found] == [cast(Any, 0), None][:ranks]


def test_a_rank_that_has_trained_its_workers_and_waits_for_the_others_stops_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = SimpleNamespace(received=False)

    def ask(_seconds: float) -> None:
        assert not asked.received, "it goes on waiting"
        asked.received = True

    monkeypatch.setattr(workers, "predict", lambda *_given: None)
    monkeypatch.setattr(workers.time, "sleep", ask)
    first, _ = groups()
    with pytest.raises(SystemExit) as ended:
        best_worker(
            lambda _seed, _team, place: cast(Any, (learner_with(50.0), worker_of(place))),
            *(3, 1, first, tmp_path, cast(StopSignal, asked)),
        )
    assert ended.value.code == STOPPED


def test_a_rank_that_waits_for_the_others_stops_when_asked() -> None:
    asked = cast(StopSignal, SimpleNamespace(received=True))
    first, second = groups()
    with pytest.raises(SystemExit) as ended:
        meet(first, "trained", asked)
    assert ended.value.code == STOPPED
    meet(second, "trained", asked)  # nobody to wait for
    meet(Group(0, 1, torch.device("cpu")), "trained", asked)
