"""Curves as CSV and as TensorBoard's events, read by a reader of the files' published format."""

from __future__ import annotations

import csv
import errno
import math
import os
import shutil
import struct
import threading
import time
import tracemalloc
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google_crc32c import value as crc32c
from synthetic_runs import journal_line, write_journal, write_run
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter

from bertline.console import BertlineError
from bertline.files import read_json, write_json
from bertline.results import paths
from bertline.results.journal import JournalPoint
from bertline.results.records import read_record
from bertline.tracking import curves
from bertline.tracking.curves import TAGS, write_curves
from bertline.tracking.following import repeat

RECORD, PHASE = Path("results/runs/demo/record.json"), "phase1"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run; the folder of its first phase, whose training is made to go on."""
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("squad_v1",), seeds=1)
    record.rename(record.with_name("record.json"))
    folder = Path(next(one["path"] for one in read_json(RECORD)["phases"] if one["name"] == PHASE))
    for name in paths.PHASE_OUTPUTS:
        (folder / name).unlink(missing_ok=True)
    return folder


def train_to(folder: Path, steps: list[int], durable: int) -> None:
    write_journal(folder / paths.STARTED_JOURNAL, [journal_line(step) for step in steps])
    write_json(folder / paths.DURABLE, {"step": durable})


def write() -> int:
    return write_curves(["results/runs"])


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events_of(file: Path) -> list[Event]:
    """TFRecord: length, its masked CRC-32C, an event, its masked CRC-32C."""
    data, events, at = file.read_bytes(), [], 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        content = data[at + 12 : at + 12 + length]
        checks = struct.unpack("<I", data[at + 8 : at + 12]) + struct.unpack("<I", data[at + 12 + length :][:4])
        assert checks == (masked(data[at : at + 8]), masked(content))
        events.append(Event.FromString(content))
        at += length + 16
    return events


class TensorBoard:
    """What TensorBoard shows of a folder: with its Python loader (`--load_fast=false`), or with its data server."""

    def __init__(self, folder: Path, *, python: bool) -> None:
        self.folder, self.python = folder, python
        self.points: dict[str, list[tuple[int, float, float]]] = {}
        self._read: dict[Path, int] = {}
        self._current: Path | None = None
        self._starts = 0

    def reload(self) -> dict[str, list[tuple[int, float, float]]]:
        files = sorted(self.folder.glob("events.out.tfevents.*"))
        if self.python:
            if self._current is not None and self._current not in files:
                return self.points  # it waits at a deleted file for ever
            files = [file for file in files if self._current is None or file >= self._current]
            self._current = files[-1] if files else None
        for file in files:
            events = events_of(file)[self._read.get(file, 0) :]
            self._read[file] = self._read.get(file, 0) + len(events)
            for event in events:
                self._add(event)
        return self.points

    def _add(self, event: Event) -> None:
        if event.session_log.status == SessionLog.START:
            self._starts += 1
            if self.python and self._starts > 1:
                for tag in self.points:
                    self._drop(tag, event.step)
        for value in event.summary.value:
            if not self.python:
                self._drop(value.tag, event.step)
            self.points.setdefault(value.tag, []).append((event.step, value.simple_value, event.wall_time))

    def _drop(self, tag: str, start: int) -> None:
        self.points[tag] = [one for one in self.points.get(tag, []) if one[0] < start]


def shown(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """What a newly started TensorBoard shows, which is the same with either loader."""
    fast, slow = (TensorBoard(folder, python=python).reload() for python in (False, True))
    assert {tag: [one[::2] for one in of_tag] for tag, of_tag in fast.items() if of_tag} == {
        tag: [one[::2] for one in of_tag] for tag, of_tag in slow.items() if of_tag
    }
    return fast


def events_folder() -> Path:
    """Of the training that has the name now."""
    key = next(one["fingerprint"] for one in read_json(RECORD)["phases"] if one["name"] == PHASE)
    return Path(f"results/curves/tensorboard/demo/{PHASE}/{key}")


def rows_of(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(f"results/curves/csv/{name}.csv").open()))


def check(steps: list[int], points: dict[str, list[tuple[int, float, float]]] | None = None) -> None:
    """CSV and events (or `points`) have exactly these steps, each once, with the journal's values and times."""
    rows, points = rows_of(f"demo/{PHASE}"), shown(events_folder()) if points is None else points
    assert [int(row["step"]) for row in rows] == steps
    for name in rows[0].keys() - {"step", "timestamp"}:
        expected = [(int(row["step"]), float(row[name]), int(row["timestamp"]) / 1000) for row in rows if row[name]]
        found = points.get(TAGS.get(name, name), [])
        assert [(step, time) for step, _, time in found] == [(step, time) for step, _, time in expected]
        for (_, value, _), (_, exact, _) in zip(found, expected, strict=True):
            assert value == pytest.approx(exact, rel=1e-6) or (math.isnan(value) and math.isnan(exact))


def test_points_up_to_the_last_checkpoint_are_there_once(run: Path) -> None:
    train_to(run, [0, 10, 20, 30], durable=20)
    write()
    check([0, 10, 20])
    assert write() == 0
    check([0, 10, 20])
    train_to(run, [0, 10, 20, 30, 40], durable=40)
    assert write() == 1
    check([0, 10, 20, 30, 40])
    assert {"average_loss", "learning_rate", "samples_per_second"} <= shown(events_folder()).keys()


@pytest.mark.parametrize(("step", "timestamp"), [(2**70, 1), (-1, 1), (10, 2**70), (10, -1)])
def test_a_journal_with_an_impossible_number_is_one_line_and_other_runs_are_written(
    run: Path, step: int, timestamp: int
) -> None:
    other = read_json(RECORD)
    folder = Path(shutil.copytree(run, run.with_name("other")))
    train_to(folder, [0, 10], durable=10)
    phase = {"name": PHASE, "fingerprint": "other", "path": str(folder)}
    write_json(Path("results/runs/other/record.json"), other | {"run": "other", "fingerprint": "f", "phases": [phase]})
    line = journal_line(10) | {"step": step, "timestamp": timestamp}
    write_journal(run / paths.STARTED_JOURNAL, [line])
    write_json(run / paths.DURABLE, {"step": 2**71})
    with pytest.raises(BertlineError, match=rf"{paths.STARTED_JOURNAL} line 1 is not a point .*; delete the line"):
        write()
    assert [row["step"] for row in rows_of(f"other/{PHASE}")] == ["0", "10"]


def test_values_that_are_not_numbers_are_written_without_a_warning(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    line = journal_line(10)
    line["metrics"]["train/loss"] = float("nan")
    write_journal(run / paths.STARTED_JOURNAL, [line])
    write_json(run / paths.DURABLE, {"step": 10})
    write()
    check([10])
    assert not caplog.records


def test_a_csv_that_a_spreadsheet_saved_in_another_encoding_is_written_anew(run: Path) -> None:
    train_to(run, [0, 10], durable=10)
    write()
    Path(f"results/curves/csv/demo/{PHASE}.csv").write_bytes("step,Zeitpunkt für Müller".encode("latin-1"))
    assert write() == 1
    check([0, 10])


@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_after_an_event_file_was_deleted_every_point_is_there_once(run: Path, deleted: int) -> None:
    for last in (10, 20, 30):
        train_to(run, list(range(0, last + 1, 10)), durable=last)
        write()
    sorted(events_folder().iterdir())[deleted].unlink()
    another = events_folder() / "events.out.tfevents.1700000000.host"  # of another program
    another.touch()
    for _ in range(2):
        write()
        check([0, 10, 20, 30])
    assert another.exists()
    train_to(run, [0, 10, 20, 30, 40], durable=40)
    write()
    check([0, 10, 20, 30, 40])


def test_a_return_to_an_earlier_checkpoint_takes_points_back(run: Path) -> None:
    train_to(run, [0, 10, 20, 30], durable=30)
    write()
    train_to(run, [0, 10], durable=10)
    write()
    check([0, 10])
    train_to(run, [0, 10, 20, 30, 40], durable=40)
    write()
    check([0, 10, 20, 30, 40])


@pytest.mark.parametrize("python", [False, True])
def test_a_tensorboard_that_runs_shows_each_point_once_over_many_passes_and_returns(
    run: Path, monkeypatch: pytest.MonkeyPatch, python: bool
) -> None:
    monkeypatch.setattr(curves, "MOST_FILES", 3)
    monkeypatch.setattr(curves, "SECONDS_BEFORE_REMOVAL", -1)
    tensorboard = TensorBoard(events_folder(), python=python)
    for last in [10, 20, 30, 40, 50, 60, 20, 30, 10, 70, 80, 90]:
        train_to(run, list(range(0, last + 1, 10)), durable=last)
        write()
        check(list(range(0, last + 1, 10)))
        check(list(range(0, last + 1, 10)), tensorboard.reload())
        assert len(list(events_folder().iterdir())) <= 2 * curves.MOST_FILES


def test_a_tag_is_gone_whose_first_point_was_taken_back(run: Path) -> None:
    train_to(run, [10, 50, 100], durable=100)  # 100 has held-out losses
    write()
    train_to(run, [10, 50], durable=50)
    write()
    assert not shown(events_folder()).get("held_out/mlm_loss")


def test_files_that_another_replaced_are_removed_once_every_tensorboard_has_left_them(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "MOST_FILES", 3)
    for last in [10, 20, 30, 40]:
        train_to(run, list(range(0, last + 1, 10)), durable=last)
        write()
    write()
    assert len(list(events_folder().iterdir())) == 4
    *replaced, complete = sorted(events_folder().iterdir())
    for file in replaced:
        os.utime(file, (time.time() - 3600,) * 2)
    write()
    assert list(events_folder().iterdir()) == [complete]
    check([0, 10, 20, 30, 40])


def test_if_a_file_with_all_points_is_deleted_another_is_written(run: Path) -> None:
    for last in (30, 10, 20):
        train_to(run, list(range(0, last + 1, 10)), durable=last)
        write()
    for file in sorted(events_folder().iterdir())[1:]:
        file.unlink()  # the first one is empty
    train_to(run, [0, 10, 20, 30], durable=30)
    write()
    check([0, 10, 20, 30])


def test_a_finished_training_has_one_file(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "SECONDS_BEFORE_REMOVAL", -1)
    for last in (10, 20):
        train_to(run, list(range(0, last + 1, 10)), durable=last)
        write()
    assert len(list(events_folder().iterdir())) == 2
    finished = [replace(one, finished=True) for one in read_record(RECORD).phases]
    monkeypatch.setattr(curves, "read_record", lambda path: replace(read_record(path), phases=finished))
    for _ in range(2):
        write()
        check([0, 10, 20])
    assert len(list(events_folder().iterdir())) == 1


def test_the_memory_for_writing_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    peaks = []
    for count in (100, 2000):  # as a list, the events of the latter take 2.4 MB
        lines = [journal_line(step) for step in range(1, count + 1)]
        points = [JournalPoint(line["step"], line["timestamp"], line["metrics"]) for line in lines]
        curves._write_events(points[:1], tmp_path / "first", has_all=True)  # it imports
        tracemalloc.start()
        curves._write_events(points, tmp_path / "all", has_all=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 500_000


def test_event_files_of_an_earlier_version_are_written_anew(run: Path) -> None:
    """It took points back with a START that TensorBoard's Python loader ignores."""
    for steps in ([0, 10, 20], [0, 10], [0, 10, 20, 30]):
        train_to(run, steps, durable=steps[-1])
        write()
    for file in sorted(events_folder().iterdir()):
        events = [event for event in events_of(file) if event.session_log.status != SessionLog.START]
        if not events[1:]:
            file.unlink()
            continue
        number, step = int(file.name.split(".")[3]), events[-1].step
        old = file.with_name(f"events.out.tfevents.{number:010d}.step-{step}.time-{journal_line(step)['timestamp']}")
        file.unlink()
        with closing(RecordWriter(str(old.absolute()))) as writer:
            for event in events:
                writer.write(event.SerializeToString())
    running = TensorBoard(events_folder(), python=True)
    running.reload()
    write()
    check([0, 10, 20, 30])
    check([0, 10, 20, 30], running.reload())


def test_points_that_were_trained_again_between_two_passes_take_the_place_of_the_old_ones(run: Path) -> None:
    train_to(run, [0, 10], durable=10)
    write()
    train_to(run, [0, 10, 20, 30], durable=30)
    write()
    # The checkpoints of 20 and 30 are damaged; it resumes from that of 10 and is further on before the next pass.
    again = [journal_line(step) | {"timestamp": journal_line(step)["timestamp"] + 5000} for step in (20, 30, 40)]
    write_journal(run / paths.STARTED_JOURNAL, [journal_line(0), journal_line(10), *again])
    write_json(run / paths.DURABLE, {"step": 40})
    write()
    check([0, 10, 20, 30, 40])
    assert write() == 0
    check([0, 10, 20, 30, 40])


def test_another_training_of_the_same_name_has_its_own_curve(run: Path) -> None:
    train_to(run, [0, 10, 20], durable=20)
    write()
    before = shown(events_folder())
    old, record = events_folder(), read_json(RECORD)
    entry = next(one for one in record["phases"] if one["name"] == PHASE)
    entry["fingerprint"], entry["path"] = "f" * 16, str(run.with_name("f" * 16))
    write_json(RECORD, record)
    train_to(Path(entry["path"]), [0, 10, 20, 30], durable=30)
    write()
    check([0, 10, 20, 30])
    assert shown(old) == before


class KilledError(Exception):
    """In the place of a kill."""


def kill_at(patched: pytest.MonkeyPatch, number: int) -> None:
    """Kill before a file gets its place, the `number`-th time."""
    calls, rename, write_text = [], Path.rename, curves.write_text

    def count() -> None:
        calls.append(1)
        if len(calls) == number:
            raise KilledError

    def killed_rename(path: Path, target: Path) -> Path:
        count()
        return rename(path, target)

    def killed_write(path: Path, text: str) -> None:
        count()
        write_text(path, text)

    patched.setattr(Path, "rename", killed_rename)
    patched.setattr(curves, "write_text", killed_write)


@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_a_kill_at_any_moment_doubles_nothing(run: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int) -> None:
    train_to(run, [0, 10, 20], durable=20)
    with monkeypatch.context() as patched:
        kill_at(patched, killed_at)
        with pytest.raises(KilledError):
            write()
    write()
    check([0, 10, 20])
    assert not [path for path in Path("results/curves").rglob("*") if path.name.startswith(".")]


@pytest.mark.parametrize("killed_at", [1, 2, 3, 4])
def test_a_kill_while_a_file_takes_the_place_of_others_doubles_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    for steps in ([10, 20], [10, 20, 100], [10]):  # 100 has held-out losses
        train_to(run, steps, durable=steps[-1])
        with monkeypatch.context() as patched:
            if steps == [10]:
                kill_at(patched, killed_at)
                with pytest.raises(KilledError):  # of the CSV, the new file, or one of the two that it replaces
                    write()
            else:
                write()
    write()
    check([10])
    assert not shown(events_folder()).get("held_out/mlm_loss")
    assert len([path for path in events_folder().iterdir() if path.stat().st_size]) == 1


def test_event_files_of_another_member_of_a_team_are_replaced(run: Path) -> None:
    """Its folder is writable for the group, the files in it are not."""
    train_to(run, [0, 10, 20], durable=20)
    write()
    (old,) = events_folder().iterdir()
    with old.open("rb") as file:
        train_to(run, [0, 10], durable=10)
        write()
        assert file.read()
    check([0, 10])


def test_on_a_full_disk_a_pass_ends_with_an_error_and_the_next_one_writes_all(run: Path) -> None:
    train_to(run, [0, 10, 20], durable=20)
    events_folder().mkdir(parents=True)
    (events_folder() / curves.UNFINISHED).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write()
    (events_folder() / curves.UNFINISHED).unlink()
    write()
    check([0, 10, 20])


def test_a_follower_survives_a_full_disk(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    passes = iter([OSError(errno.ENOSPC, "No space left on device", "a.csv"), 0, KeyboardInterrupt])

    def one_pass() -> int:
        result = next(passes)
        if result == 0:
            return 0
        raise result

    monkeypatch.setattr("bertline.tracking.following.time.sleep", lambda seconds: None)
    repeat(one_pass, "%d", seconds=10)
    assert caplog.messages == ["[Errno 28] No space left on device: 'a.csv'; trying again every 10 seconds"]
    assert not list(passes)


def test_two_passes_at_once_write_each_point_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_to(run, [0, 10, 20], durable=20)
    others: list[threading.Thread] = []
    write_events, calls = curves._write_events, []

    def begin_another(*arguments: Any, **options: Any) -> None:
        calls.append(arguments[1].parent)
        if not others:
            others.append(threading.Thread(target=write))
            others[0].start()
            others[0].join(1)  # it waits for this pass, or writes what this one is going to write
        write_events(*arguments, **options)

    monkeypatch.setattr(curves, "_write_events", begin_another)
    write()
    others[0].join()
    assert len(calls) == len(set(calls))
    check([0, 10, 20])


def test_a_damaged_record_does_not_stop_the_others(run: Path) -> None:
    train_to(run, [0, 10], durable=10)
    (Path("results/runs/broken")).mkdir()
    Path("results/runs/broken/record.json").write_text("{")
    with pytest.raises(BertlineError, match="broken"):
        write()
    check([0, 10])


@pytest.mark.parametrize("seconds", [-1.0, 0.0, float("nan"), float("inf"), 1e30])
def test_an_interval_that_cannot_be_waited_is_one_line(seconds: float) -> None:
    with pytest.raises(BertlineError, match="cannot be waited; give a number above 0"):
        curves.follow_curves([], seconds)


def test_without_any_run_what_to_do_is_said(run: Path) -> None:
    shutil.rmtree("results/runs")
    with pytest.raises(BertlineError, match=r"^results/runs contains no run yet; run snakemake first$"):
        write_curves(["results/runs"])
