"""Checkpoints are complete or absent, found by validity, and not changed if they are another model's."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import stat
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from fault_counts import TIMES, drawing
from test_corpus_damage import mutate

from bertline.console import BertlineError
from bertline.training.checkpoints import (
    CheckpointWriter,
    Retention,
    agree_on_checkpoint,
    checkpoint_at,
    clean_up,
    find_checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_checkpoint,
)
from bertline.training.distributed.process_group import Group

ALONE = Group(0, 1, torch.device("cpu"))


def save(directory, step, *, fingerprint="mine", keep=2, best=None, **more):
    return save_checkpoint(
        directory,
        weights={"weight": torch.full((3,), float(step))},
        optimizer={"weight.exp_avg": torch.zeros(3)},
        state={"fingerprint": fingerprint, "step": step, "best": best and {"step": best}, **more},
        keep=Retention(newest=keep),
    )


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_the_newest_is_found_and_old_ones_are_dropped(tmp_path):
    for step in (3, 6, 9):
        save(tmp_path, step)
    assert names(tmp_path) == ["durable.json", "step-00000006", "step-00000009"]
    assert json.loads((tmp_path / "durable.json").read_text()) == {"step": 9}
    path, state = find_checkpoint(tmp_path, "mine")
    assert state["step"] == 9
    weights, optimizer = load_checkpoint(path)
    assert weights["weight"].tolist() == [9, 9, 9]
    assert list(optimizer) == ["weight.exp_avg"]


def test_a_checkpoint_of_another_fingerprint_is_reported_and_not_changed(tmp_path, caplog):
    external = save(tmp_path, 50, fingerprint="theirs")
    assert find_checkpoint(tmp_path, "mine") is None
    assert "of another model" in caplog.text
    for step in (3, 6, 9):
        save(tmp_path, step)
    assert find_checkpoint(tmp_path, "mine")[1]["step"] == 9
    assert external.exists()


def test_a_checkpoint_of_another_fingerprint_and_the_same_step_is_not_replaced(tmp_path):
    save(tmp_path, 100, fingerprint="theirs")
    with pytest.raises(BertlineError, match="step-00000100 is a checkpoint of another model; move it away"):
        save(tmp_path, 100)
    assert find_checkpoint(tmp_path, "theirs")[1]["step"] == 100


def test_a_damaged_checkpoint_says_that_the_one_before_is_tried_if_there_is_one(tmp_path, caplog):
    for step in (1, 2):
        (save(tmp_path, step) / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(BertlineError, match="every checkpoint is damaged, the newest is step-00000002"):
        find_checkpoint(tmp_path, "mine")
    reason = "is damaged (model.safetensors does not match its digest)"
    assert caplog.messages == [
        f"the checkpoint {tmp_path}/step-00000002 {reason}; trying the one before",
        f"the checkpoint {tmp_path}/step-00000001 {reason}",
    ]


def test_a_copy_of_a_checkpoint_in_its_folder_is_none(tmp_path):
    save(tmp_path, 1)
    shutil.copytree(tmp_path / "step-00000001", tmp_path / "step-00000001.bak")
    for step in (2, 3, 4):
        save(tmp_path, step)
    assert names(tmp_path) == ["durable.json", "step-00000001.bak", "step-00000003", "step-00000004"]


def test_a_checkpoint_that_cannot_be_written_is_reported_by_the_next_step(tmp_path):
    def fail():
        raise BertlineError("the disk is full")

    writer = CheckpointWriter(tmp_path, keep=Retention(newest=2), before=fail)
    writer.check()
    writer.start({"weight": torch.zeros(3)}, {}, {"fingerprint": "mine", "step": 3})
    writer.close()
    with pytest.raises(BertlineError, match="the disk is full"):
        writer.check()


def test_no_checkpoint_is_started_after_one_that_could_not_be_written(tmp_path):
    def fail():
        raise BertlineError("the disk is full")

    writer = CheckpointWriter(tmp_path, keep=Retention(newest=2), before=fail)
    writer.start({"weight": torch.zeros(3)}, {}, {"fingerprint": "mine", "step": 3})
    with pytest.raises(BertlineError, match="the disk is full"):
        writer.start({"weight": torch.zeros(3)}, {}, {"fingerprint": "mine", "step": 6})
    writer.close()
    assert names(tmp_path) == []


def test_a_trainer_that_lost_its_lock_while_it_wrote_changes_no_checkpoint(tmp_path):
    for step in (100, 150):
        save(tmp_path, step)
    losses = iter([None, BertlineError("the lock is lost")])

    def check():
        if (loss := next(losses)) is not None:
            raise loss

    writer = CheckpointWriter(tmp_path, keep=Retention(newest=1), before=check)
    writer.start({"weight": torch.zeros(3)}, {}, {"fingerprint": "mine", "step": 100})
    with pytest.raises(BertlineError, match="the lock is lost"):
        writer.wait()
    assert names(tmp_path) == ["durable.json", "step-00000100", "step-00000150"]
    assert load_checkpoint(find_checkpoint(tmp_path, "mine")[0])[0]["weight"].tolist() == [150, 150, 150]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_used(tmp_path, caplog, name, damage):
    save(tmp_path, 3)
    file = save(tmp_path, 6) / name
    content = bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    else:
        if damage == "flip":
            content[len(content) - 3 if name != "state.json" else 0] ^= 0x40
        file.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    with caplog.at_level(logging.WARNING):
        assert find_checkpoint(tmp_path, "mine")[1]["step"] == 3
    assert "step-00000006 is damaged" in caplog.text
    save(tmp_path, 6)
    assert find_checkpoint(tmp_path, "mine")[1]["step"] == 6


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_newest_checkpoint_that_the_disk_cannot_read_is_reported_and_the_one_before_used(
    tmp_path, caplog, monkeypatch, name
):
    save(tmp_path, 3)
    bad, digest_of, text_of = save(tmp_path, 6) / name, hashlib.file_digest, Path.read_text

    def fail_for(path):
        if Path(path) == bad:
            raise OSError(errno.EIO, "Input/output error")  # of a read, which names no file

    monkeypatch.setattr(hashlib, "file_digest", lambda file, digest: fail_for(file.name) or digest_of(file, digest))
    monkeypatch.setattr(Path, "read_text", lambda path, **given: fail_for(path) or text_of(path, **given))
    assert find_checkpoint(tmp_path, "mine")[1]["step"] == 3
    assert checkpoint_at(tmp_path, "mine", 6) is None
    assert f"step-00000006 is damaged ({name} cannot be read" in caplog.text
    assert "trying the one before" in caplog.text


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_folder_in_place_of_a_file_of_a_checkpoint_is_damage(tmp_path, caplog, name):
    save(tmp_path, 3)
    path = save(tmp_path, 6) / name
    path.unlink()
    path.mkdir()
    assert find_checkpoint(tmp_path, "mine")[1]["step"] == 3
    assert f"step-00000006 is damaged ({name} cannot be read" in caplog.text


def test_a_file_with_the_name_of_a_checkpoint_is_none(tmp_path):
    save(tmp_path, 3)
    (tmp_path / "step-00000099").touch()
    assert find_checkpoint(tmp_path, "mine")[1]["step"] == 3
    save(tmp_path, 6)
    assert names(tmp_path) == ["durable.json", "step-00000003", "step-00000006", "step-00000099"]


@pytest.mark.parametrize(
    ("old", "new"),
    [('"step": 6', '"step": 7'), ('"mine"', '"mind"'), ('"layout_version": 2', '"layout_version": 3'),
     ('"state.json":', '"rtate.json":'), ('"digests":', '"eigests":')],
)  # fmt: skip
def test_a_changed_state_that_is_still_json_is_reported_and_the_checkpoint_before_used(tmp_path, caplog, old, new):
    save(tmp_path, 3)
    file = save(tmp_path, 6) / "state.json"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with caplog.at_level(logging.WARNING):
        assert find_checkpoint(tmp_path, "mine")[1]["step"] == 3
    assert "step-00000006 is damaged (state.json cannot be read, or does not match its digest)" in caplog.text


@pytest.mark.fault(row="inputs")
def test_any_changed_bytes_of_a_state_give_the_same_state_or_the_checkpoint_before(tmp_path, record_property):
    before = save(tmp_path, 3)
    file = save(tmp_path, 6) / "state.json"
    content, draw, used = file.read_bytes(), drawing("state.json"), Counter()
    whole = find_checkpoint(tmp_path, "mine")
    for _ in range(60 * TIMES):
        file.write_bytes(mutate(content, draw))
        found = find_checkpoint(tmp_path, "mine")
        assert found == whole or found[0] == before
        used[found[0]] += 1
    assert used[before] > 30 * TIMES
    record_property("faults", 60 * TIMES)


def test_the_durable_step_is_that_of_the_checkpoint_before_a_damaged_one(tmp_path):
    """Up to it points of the journal are sent to MLflow, which cannot retract them."""
    for step in (3, 6):
        save(tmp_path, step)
    (tmp_path / "step-00000006" / "model.safetensors").unlink()
    assert agree_on_checkpoint(ALONE, tmp_path, "mine")[1]["step"] == 3
    assert json.loads((tmp_path / "durable.json").read_text()) == {"step": 3}


def test_a_step_whose_point_is_not_in_the_journal_is_not_durable(tmp_path):
    """Its evaluation was interrupted: the point is written again when training resumes."""
    save(tmp_path, 5, unreported=True)
    assert json.loads((tmp_path / "durable.json").read_text()) == {"step": 4}
    (tmp_path / "durable.json").write_text('{"step": 5}')
    assert agree_on_checkpoint(ALONE, tmp_path, "mine")[1]["step"] == 5
    assert json.loads((tmp_path / "durable.json").read_text()) == {"step": 4}


def test_without_a_checkpoint_no_step_is_durable(tmp_path):
    """As when a user deleted damaged checkpoints, to train from the beginning."""
    assert agree_on_checkpoint(ALONE, tmp_path, "mine") is None
    assert names(tmp_path) == []
    (tmp_path / "durable.json").write_text("{}")
    assert agree_on_checkpoint(ALONE, tmp_path, "mine") is None
    assert json.loads((tmp_path / "durable.json").read_text()) == {"step": 0}


def test_a_damaged_newest_checkpoint_takes_no_place_of_those_that_follow_the_one_before(tmp_path):
    for step in (3, 6, 9):
        save(tmp_path, step, keep=3)
    (tmp_path / "step-00000009" / "model.safetensors").write_bytes(b"")
    agree_on_checkpoint(ALONE, tmp_path, "mine")
    for step in (7, 8):
        save(tmp_path, step, keep=1)
        assert names(tmp_path) == ["durable.json", f"step-{step:08d}"]
        assert find_checkpoint(tmp_path, "mine")[1]["step"] == step


def test_a_kill_while_a_checkpoint_replaces_another_of_its_step_loses_neither(tmp_path, monkeypatch):
    save(tmp_path, 3)
    rename, renamed = Path.rename, []

    def rename_and_be_killed(path, target):
        rename(path, target)
        renamed.append(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename_and_be_killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 3)
    assert renamed
    clean_up(tmp_path, tmp_path)
    assert find_checkpoint(tmp_path, "mine")[1]["step"] == 3
    save(tmp_path, 3)
    assert names(tmp_path) == ["durable.json", "step-00000003"]


def test_a_checkpoint_and_its_files_are_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    synced = {}

    def fsync(descriptor):
        if not (tmp_path / "step-00000003").exists():
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            synced[os.fstat(descriptor).st_ino] = sorted(os.listdir(descriptor)) if is_folder else []

    monkeypatch.setattr("os.fsync", fsync)
    path = save(tmp_path, 3)
    assert synced[path.stat().st_ino] == names(path) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert all(file.stat().st_ino in synced for file in path.iterdir())


def test_half_written_files_of_killed_trainers_do_not_remain(tmp_path):
    save(tmp_path, 3)
    for name in (".journal.jsonl.x1.part", ".durable.json.x2.part", ".step-00000006.part/model.safetensors"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{")
    clean_up(tmp_path, tmp_path.parent)
    assert {path.name for path in tmp_path.iterdir()} == {"durable.json", "step-00000003"}


def test_training_does_not_silently_start_anew_when_all_checkpoints_are_damaged(tmp_path):
    (save(tmp_path, 3) / "model.safetensors").unlink()
    with pytest.raises(BertlineError, match=r"every checkpoint is damaged, the newest is step-00000003"):
        find_checkpoint(tmp_path, "mine")


def test_the_best_that_the_newest_ones_name_stay(tmp_path):
    for step, best in ((3, 3), (6, 3), (9, 9), (12, 9), (15, 9)):
        save(tmp_path, step, best=best, keep=2)
        # Those that a checkpoint names are there as long as it is one of the newest.
        assert (tmp_path / "step-00000003").exists() == (step < 12)
    assert names(tmp_path) == ["durable.json", "step-00000009", "step-00000012", "step-00000015"]


def test_training_does_not_continue_from_a_checkpoint_whose_best_one_is_damaged(tmp_path, caplog):
    for step, best in ((3, 3), (6, 3), (9, 9), (12, 9)):
        save(tmp_path, step, best=best, keep=4)
    (tmp_path / "step-00000009" / "model.safetensors").write_bytes(b"")
    assert find_checkpoint(tmp_path, "mine")[1]["step"] == 12
    assert find_checkpoint(tmp_path, "mine", with_best=True)[1]["step"] == 6
    assert "step-00000012 is damaged (the best one before it, step-00000009: model.safetensors does" in caplog.text
    assert checkpoint_at(tmp_path, "mine", 9) is None
    assert checkpoint_at(tmp_path, "mine", 3)[1]["step"] == 3
    assert checkpoint_at(tmp_path, "theirs", 3) is None


def test_half_written_ones_are_invisible_and_cleaned_up(tmp_path):
    save(tmp_path, 3)
    (tmp_path / "step-00000003").rename(tmp_path / ".step-00000006.part")
    assert find_checkpoint(tmp_path, "mine") is None
    clean_up(tmp_path, tmp_path.parent)
    assert names(tmp_path) == ["durable.json"]


def test_the_remains_of_a_killed_export_are_removed(tmp_path):
    """`export_huggingface` writes a folder, `publish_phase` files."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / ".export.part").mkdir()
    (tmp_path / ".export.part" / "model.safetensors").touch()
    (tmp_path / ".metrics.jsonl.0123abcd.part").touch()
    clean_up(tmp_path / "checkpoints", tmp_path)
    assert names(tmp_path) == ["checkpoints"]


def test_a_trainer_that_fails_finishes_the_checkpoint_at_work_first(tmp_path):
    """It ends its process at once after that; and what went wrong with a checkpoint hides no other error."""
    may_write = threading.Event()

    def fail():
        raise BertlineError("the lock is lost")

    for step, before in ((3, may_write.wait), (6, fail)):
        writer = CheckpointWriter(tmp_path, keep=Retention(newest=2), before=before)
        writer.start({"weight": torch.zeros(3)}, {}, {"fingerprint": "mine", "step": step})
        assert find_checkpoint(tmp_path, "mine") is None or step == 6
        may_write.set()
        writer.close()
    assert find_checkpoint(tmp_path, "mine")[1]["step"] == 3


def test_if_all_were_saved_after_skipped_batches_there_is_none_to_return_to(tmp_path):
    """They are not damaged, which would be an error."""
    state = {"fingerprint": "mine", "step": 3, "skipped_in_a_row": [3]}
    path = write_checkpoint(tmp_path, weights={"weight": torch.zeros(3)}, optimizer={}, state=state)
    assert find_checkpoint(tmp_path, "mine", after_update=True) is None
    assert find_checkpoint(tmp_path, "mine")[0] == path


def test_the_one_to_return_to_is_kept_with_its_best(tmp_path):
    """Those of stops among skipped global batches may have corrupt weights."""
    for step, best, skipped in ((2, 2, []), (4, 2, []), (6, 5, [6, 7]), (8, 5, [9])):
        save(tmp_path, step, best=best, keep=1, skipped_in_a_row=skipped)
    assert names(tmp_path) == ["durable.json", "step-00000002", "step-00000004", "step-00000008"]
    assert find_checkpoint(tmp_path, "mine", with_best=True, after_update=True)[1]["step"] == 4
    save(tmp_path, 10, best=10, keep=1, skipped_in_a_row=[])
    assert names(tmp_path) == ["durable.json", "step-00000010"]
