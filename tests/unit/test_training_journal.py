"""The journal keeps what is durable and nothing twice."""

from __future__ import annotations

import ast
import errno
import json
import logging
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import bertline
from bertline.console import BertlineError, one_line_errors
from bertline.training.journal import Journal, log_point

SOURCE = Path(bertline.__file__).parent


def points(path):
    return [(point["step"], point["metrics"]) for point in map(json.loads, path.read_text().splitlines())]


def test_a_resume_takes_back_what_came_after_its_checkpoint(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, last_step=-1)
    for step in (0, 5, 10):
        journal.append(step, {"train/loss": step / 2})
    journal.close()
    with path.open("a") as file:
        file.write('{"step": 15, "metr')  # cut short by a crash
    journal = Journal(path, last_step=5)
    journal.append(10, {"train/loss": 5.0})
    journal.close()
    assert points(path) == [(0, {"train/loss": 0.0}), (5, {"train/loss": 2.5}), (10, {"train/loss": 5.0})]


def test_a_torn_line_is_cut_off(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"metrics": {}, "step": 0, "timestamp": 1}\n{"step": 1')
    Journal(path, last_step=100).close()
    assert points(path) == [(0, {})]


def test_a_damaged_line_before_others_is_named(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"metrics": {}, "step": 0}\nbad\nbad\n{"metrics": {}, "step": 1}\n')
    with pytest.raises(BertlineError, match=r"line 2 is damaged, .*: points of step 1 follow it"):
        Journal(path, last_step=100)


def test_a_journal_that_is_missing_after_a_resume_is_reported(tmp_path, caplog):
    Journal(tmp_path / "new.jsonl", last_step=-1).close()
    assert not caplog.messages
    Journal(tmp_path / "journal.jsonl", last_step=5).close()
    assert caplog.messages == [
        f"{tmp_path}/journal.jsonl is missing: its points up to step 5 are lost, and training continues"
    ]


def test_points_that_are_lost_before_a_resume_are_reported(tmp_path, caplog):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, last_step=-1)
    assert [journal.append(step, {}) for step in range(8)] == [*range(1, 9)]
    journal.cut_back(6, points=7)
    journal.close()
    Journal(path, last_step=5, points=6).close()
    Journal(path, last_step=5).close()  # from a checkpoint of an earlier version, which does not have their number
    assert not caplog.messages
    path.write_bytes(path.read_bytes()[:-100])
    journal = Journal(path, last_step=5, points=6)
    assert journal.append(6, {}) == 5
    journal.close()
    assert caplog.messages == [f"{path} lacks 2 of its points up to step 5: they are lost, and training continues"]


def test_timestamps_are_unix_milliseconds_and_values_are_numbers(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, last_step=-1)
    journal.append(1, {"train/loss": 1.5, "train/gradient_norm": float("inf")})
    point = json.loads(path.read_text())  # at once, not when it is closed
    assert abs(point["timestamp"] - time.time() * 1000) < 60_000
    assert point["metrics"] == {"train/loss": 1.5}
    journal.close()


def test_training_does_not_import_tracking() -> None:
    """Also not late, inside a function: the journal is all that tracking has of it, so that it slows no step."""
    for room in ("corpus", "encoding", "modeling", "training", "finetuning"):
        for path in (SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
                assert not [name for name in names if name.split(".")[0] == "mlflow" or "tracking" in name], path


def test_points_are_on_the_disk_before_a_checkpoint_relies_on_them(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor)))
    journal = Journal(tmp_path / "journal.jsonl", last_step=-1)
    journal.append(1, {"train/loss": 1.0})
    journal.make_durable()
    there = (tmp_path / "journal.jsonl").stat()
    assert (synced[-1].st_ino, synced[-1].st_size) == (there.st_ino, there.st_size)
    assert there.st_size > 0
    journal.close()


def test_a_full_disk_is_one_line_that_names_the_journal(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "journal.jsonl", last_step=-1)
    expected = f"error: no space left while writing {tmp_path}/journal.jsonl; free some space and run the same command"

    def fail(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("os.fsync", fail)
        with pytest.raises(SystemExit, match=expected), one_line_errors():
            journal.close()
    monkeypatch.setattr(journal, "_file", SimpleNamespace(write=len, flush=fail))
    with pytest.raises(SystemExit, match=expected), one_line_errors():
        journal.append(1, {"train/loss": 1.5})


@pytest.mark.parametrize(("seconds_left", "end"), [(None, ""), (75.4, ", 0:01:15 left"), (0.0, ", 0:00:00 left")])
def test_a_line_of_the_log_has_the_time_left_once_a_step_was_timed(caplog, seconds_left, end):
    with caplog.at_level(logging.INFO):
        log_point(3, 9, {"held_out/mlm_loss": 2.5}, seconds_left=seconds_left)
    assert caplog.messages == [f"step 3/9, held-out MLM loss 2.5000{end}"]
