"""Trainings on the same machine: how many share a GPU, and which have one to themselves."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from training_processes import CONTEXT

from bertline.console import BertlineError
from bertline.training.contract import STOPPED, WAITS_FOR_GPU
from bertline.training.distributed.claims import claim, claim_whole, private_folder
from bertline.training.distributed.process_group import Group
from bertline.training.stop import StopSignal

pytestmark = pytest.mark.slow

NAMES = ["first", "second"]


def hold(folder: Path, told: Connection, sharing: int) -> None:
    """Claim a GPU, print its name, and keep it until a signal; sharing 0 claims the whole first one."""
    told.send("here")
    index = 0
    if sharing:
        index, _lock = claim(NAMES, folder, sharing)
    else:
        _locks = claim_whole(NAMES[0], folder, Group(0, 1, torch.device("cpu")))
    told.send(index)
    told.recv()


class Holder:
    """A process that holds a claim until it is killed."""

    def __init__(self, folder: Path, sharing: int) -> None:
        self.heard, there = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=hold, args=(folder, there, sharing), daemon=True)
        self.process.start()
        assert self.heard.recv() == "here"

    def end(self) -> None:
        self.process.kill()  # no word of its own: the locks go with the process
        self.process.join()


@pytest.mark.parametrize("sharing", [1, 2])
def test_a_gpu_has_as_many_as_share_it_and_the_next_waits_until_one_is_free(tmp_path: Path, sharing: int) -> None:
    holders = [Holder(tmp_path, sharing) for _ in range(2 * sharing)]
    # The emptiest first.
    assert sorted(holder.heard.recv() for holder in holders) == sorted([0, 1] * sharing)
    waiting = Holder(tmp_path, sharing)
    assert not waiting.heard.poll(0.3)
    for holder in holders:
        holder.end()
    assert waiting.heard.recv() in (0, 1)
    waiting.end()


def test_a_training_waits_for_all_that_share_its_gpu_and_nothing_starts_with_it(tmp_path: Path) -> None:
    small = [Holder(tmp_path, 2) for _ in range(4)]
    places = [holder.heard.recv() for holder in small]
    large = Holder(tmp_path, 0)
    assert not large.heard.poll(0.3)
    for holder, place in zip(small, places, strict=True):
        if place == 0:
            holder.end()
    assert large.heard.recv() == 0
    late = Holder(tmp_path, 1)
    assert not late.heard.poll(0.3)
    large.end()
    for holder, place in zip(small, places, strict=True):
        if place == 1:
            holder.end()
    assert late.heard.recv() in (0, 1)
    late.end()


def test_a_training_that_waits_for_a_whole_gpu_holds_no_place_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainings that each hold a GPU of the other's would wait forever."""
    (_, first), (_, second) = claim(NAMES[:1], tmp_path, 2), claim(NAMES[:1], tmp_path, 2)
    first.release()
    waits: list[float] = []

    def use_the_first_place(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) == 1, "the first place is not free"
        _, lock = claim(NAMES[:1], tmp_path, 1)
        lock.release()
        second.release()

    monkeypatch.setattr("time.sleep", use_the_first_place)
    for lock in claim_whole(NAMES[0], tmp_path, Group(0, 1, torch.device("cpu"))):
        lock.release()
    assert len(waits) == 1


def test_a_training_that_waits_for_a_gpu_says_so_and_stops_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    holder, asked = Holder(tmp_path, 1), StopSignal(0.0)
    assert holder.heard.recv() == 0
    with pytest.raises(SystemExit) as whole:
        claim_whole(NAMES[0], tmp_path, Group(0, 1, torch.device("cpu")), asked)
    with pytest.raises(SystemExit) as shared:
        claim(NAMES[:1], tmp_path, 1, asked)
    assert (whole.value.code, shared.value.code) == (STOPPED, STOPPED)
    # What the display of a run looks for.
    assert [message.startswith(f"{WAITS_FOR_GPU} ") for message in caplog.messages] == [True, False] * 2
    holder.end()


def test_locks_are_in_a_folder_that_only_this_user_can_write_to(tmp_path: Path) -> None:
    folder = private_folder(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder(tmp_path) == folder
    folder.chmod(0o770)
    with pytest.raises(BertlineError, match=f"{folder}.* only this user can write to.*TMPDIR"):
        private_folder(tmp_path)
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(BertlineError, match="only this user can write to"):
        private_folder(tmp_path)
