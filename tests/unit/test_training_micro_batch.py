"""The size of a micro-batch that is found by trying."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_dataset import MODEL, recipe, write_dataset
from training_processes import Trainer, journal, train

from bertline.files import sha256_of_file
from bertline.training import micro_batch
from bertline.training.data.opening import open_training_data
from bertline.training.data.shapes import Batching
from bertline.training.distributed.process_group import Group
from bertline.training.initial import make_model
from bertline.training.micro_batch import fastest, largest, rows_of


@given(most=st.integers(1, 3000), limit=st.integers(0, 4000))
@settings(max_examples=60, deadline=None)
def test_on_a_gpu_it_is_the_largest_of_the_doubled_sizes_that_fits(most, limit):
    tried = []

    def fits(rows):
        tried.append(rows)
        return rows <= limit

    found = largest(fits, most)
    assert found <= min(limit, most)
    assert found == most or 2 * max(found, 0.5) > min(limit, most)
    # Nothing is tried behind the first that is too large.
    assert sum(rows > limit for rows in tried) <= 1


@pytest.mark.parametrize(
    ("seconds_a_row", "most", "found"),
    [
        ({1: 5, 2: 4, 4: 3, 8: 3.5, 16: 4, 32: 1}, 64, 4),  # what comes after two that were slower is not tried
        ({1: 5, 2: 6, 4: 3, 8: 6, 16: 6}, 64, 4),  # one that was slower may be noise
        ({1: 5, 2: 4.95, 4: 4.95}, 64, 1),  # a gain of one percent is none
        ({1: 5, 2: 4, 3: 3}, 3, 3),
        ({1: 5}, 1, 1),
    ],
)
def test_on_a_cpu_it_is_the_fastest(seconds_a_row, most, found):
    assert fastest(lambda rows: rows * seconds_a_row[rows], most) == found


def test_on_a_cpu_sizes_that_the_memory_may_not_hold_are_not_tried():
    tried = []

    def seconds(rows):
        tried.append(rows)
        return 1.0

    assert fastest(seconds, 64, go_on=lambda: tried[-1] < 8) == 8
    assert tried == [1, 2, 4, 8]


def test_it_is_found_once_recorded_and_taken_again(tmp_path):
    card, output = write_dataset(tmp_path / "dataset"), tmp_path / "phase"
    stopped = Trainer(recipe(steps=4), card, output, micro_batch_tokens="auto", stop_after_minutes=0.0)
    assert stopped.finish() == 75
    assert "found by trying" in stopped.log.read_text()
    (saved,) = (output / "checkpoints").glob("step-*")
    rows = json.loads((saved / "state.json").read_text())["reproducibility"]["rows"]
    resumed = train(recipe(steps=4), card, output, micro_batch_tokens="auto")
    assert resumed.log.read_text().count("found by trying") == 1
    assert "rows was" not in resumed.log.read_text()
    tokens = json.loads((output / "recipe.json").read_text())["micro_batch_tokens"]
    assert tokens == 32 * rows == journal(output)[0]["metrics"]["train/micro_batch_tokens"]
    # Nothing else depends on how it was found.
    train(recipe(steps=4), card, tmp_path / "given", micro_batch_tokens=tokens)
    assert sha256_of_file(tmp_path / "given/model.safetensors") == sha256_of_file(output / "model.safetensors")


def test_ranks_agree_and_another_number_of_them_finds_its_own(tmp_path):
    card, output = write_dataset(tmp_path / "dataset"), tmp_path / "phase"
    options = {"micro_batch_tokens": "auto", "stop_after_minutes": 0.0}
    assert Trainer(recipe(), card, output, ranks=2, **options).finish() == 75
    (saved,) = (output / "checkpoints").glob("step-*")  # after the first step, or before it if that has several parts
    state = json.loads((saved / "state.json").read_text())
    assert state["reproducibility"]["rows"] <= 8 == rows_of(10**6, recipe()["settings"], 2)
    resumed = Trainer(recipe(), card, output, **options)
    assert resumed.finish() == 75
    assert resumed.log.read_text().count("found by trying") == 2


def test_all_ranks_take_the_smallest_of_their_sizes(tmp_path, monkeypatch):
    class WithASmallerOne(Group):
        def all_reduce_min(self, value):
            return min(value, 1)  # the other rank has found a single row

    monkeypatch.setattr(micro_batch, "fastest", lambda *_, **__: 4)
    data = open_training_data(write_dataset(tmp_path / "dataset"), 32, torch.device("cpu"))
    given = {**recipe(), "model": MODEL}
    group = WithASmallerOne(0, 1, torch.device("cpu"))
    found = micro_batch.find_micro_batch_tokens(make_model(given, data), data, given, Batching(32, 1), group)
    assert found == 32
