"""Evaluation on held-out samples reads them from storage before they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from synthetic_dataset import recipe, write_dataset
from torch import distributed

from bertline.training.data.opening import open_training_data
from bertline.training.data.prefetching import READ_AHEAD
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.evaluation import evaluate
from bertline.training.initial import make_model

CPU = torch.device("cpu")


@pytest.fixture
def one_process() -> Iterator[Group]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield Group(0, 1, CPU)
    distributed.destroy_process_group()


def test_each_micro_batch_is_requested_from_storage_a_few_before_it_is_read(
    tmp_path: Path, one_process: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = open_training_data(write_dataset(tmp_path / "dataset"), 32, CPU)
    gather, read = data.held_out.gather, []
    requested: list[tuple[int, list[int]]] = []  # and how many micro-batches had been read

    def gather_noted(samples: Any) -> Any:
        read.append(list(samples))
        return gather(samples)

    monkeypatch.setattr(data.held_out, "gather", gather_noted)
    monkeypatch.setattr(data.held_out, "read_ahead", lambda samples: requested.append((len(read), list(samples))))
    evaluate(make_model(recipe(), data), data, one_process, batching=Batching(32, 2), precision="fp32")
    assert len(read) > READ_AHEAD + 2
    assert requested == list(enumerate(read[READ_AHEAD:]))
