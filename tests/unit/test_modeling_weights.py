"""Files of weights: errors are reported in one line."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from test_hdf5_full_disk import room_of

from bertline.console import BertlineError
from bertline.modeling import weights
from bertline.modeling.weights import load_tensors, save_tensors


def test_a_full_disk_is_reported_by_its_number_and_leaves_nothing(tmp_path, monkeypatch):
    def fail(tensors, path, metadata):
        Path(path).write_bytes(b"started")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(weights, "save_file", fail)
    with pytest.raises(OSError, match="No space left") as caught:
        weights.save_tensors(tmp_path / "tensors", {"weight": torch.zeros(3)})
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_becomes_too_large_is_reported_by_its_number_and_leaves_nothing(tmp_path):
    path = tmp_path / "tensors"
    for size in (0, 100, 3999):
        with room_of(size), pytest.raises(OSError, match="File too large") as caught:
            save_tensors(path, {"weight": torch.zeros(1000)})
        assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ESTALE, errno.EDQUOT])
def test_each_error_of_the_system_has_its_number_and_the_path(tmp_path, monkeypatch, number):
    def fail(tensors, path, metadata):
        raise SafetensorError(f"Error while serializing: I/O error: a text of the system (os error {number}) at path x")

    monkeypatch.setattr(weights, "save_file", fail)
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
        save_tensors(tmp_path / "tensors", {"weight": torch.zeros(3)})
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "tensors"))


def test_a_file_of_weights_is_readable_as_any_other(tmp_path):
    (tmp_path / "other").touch()
    save_tensors(tmp_path / "tensors", {"weight": torch.zeros(3)})
    assert (tmp_path / "tensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_tensors_come_back(tmp_path):
    given = {"weight": torch.randn(4, 3).T, "step": torch.tensor(3.0)}
    save_tensors(tmp_path / "tensors", given)
    loaded = load_tensors(tmp_path / "tensors")
    assert all(torch.equal(loaded[name], given[name]) for name in given)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_missing_or_cut_file_is_an_error_of_one_line(tmp_path, damage):
    path = tmp_path / "tensors"
    if damage == "cut":
        save_tensors(path, {"weight": torch.zeros(100)})
        path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BertlineError, match=r"does not exist|not a complete safetensors file") as caught:
        load_tensors(path)
    assert "\n" not in str(caught.value)


def test_weights_in_several_files_and_a_folder_in_place_of_the_file_are_named(tmp_path):
    path = tmp_path / "model.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    expected = f"{tmp_path} has its weights in several files; choose a model with one model.safetensors"
    with pytest.raises(BertlineError, match=f"^{expected}$"):
        load_tensors(path)
    path.mkdir()
    with pytest.raises(BertlineError, match=f"^{path} is a folder; put the file of that name in its place$"):
        load_tensors(path)
