"""Curves of trainings as CSV and as TensorBoard's events, in addition to MLflow.

Both contain what MLflow gets: the points of the metrics journals up to the last checkpoint, with the journals' times. A
CSV file is written anew whenever its training has more points. An event file cannot be changed: each pass writes the
new points to one of its own, aside, and its name has the step and the time of the last one, so that a kill at any
moment doubles or loses nothing. If a training returned to an earlier checkpoint than was sent, its journal no longer
has these points: the next event file has all points, and TensorBoard drops those of the files before it. Such a file
also keeps the number of files small, all of which TensorBoard's data server holds open.
"""

from __future__ import annotations

import csv
import io
import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from filelock import FileLock

from bertline.console import BertlineError
from bertline.files import fsync_directory, one_line_damage, write_text
from bertline.results.journal import JournalPoint
from bertline.results.records import Training, read_record, runs_in
from bertline.tracking.following import repeat

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event

FOLDER = Path("results/curves")
# Tags of gpauloski's BERT-PyTorch; the other metrics keep the journal's names.
TAGS = {
    "train/loss": "average_loss",
    "train/step_loss": "step_loss",
    "train/learning_rate": "learning_rate",
    "train/samples_per_second": "samples_per_second",
    "train/epoch": "epoch",
}
EVENTS = "events.out.tfevents.{number:010d}.{content}.step-{step}.time-{timestamp}"
UNFINISHED = ".unfinished"  # without "tfevents", by which TensorBoard finds its files
OF_EVENTS = re.compile(r"\.(\d{10,})(?:\.(all|new))?\.step-(\d+)\.time-(\d+)$")  # once without all or new
MOST_FILES = 20  # of an unfinished training
# TensorBoard's Python loader, which has read a replaced file, waits for ever if that is gone before it went on.
SECONDS_BEFORE_REMOVAL = 600


class EventFile(NamedTuple):
    """An event file, from its name: whether it has all points of the training, and its last point's step and time."""

    number: int
    has_all: bool
    step: int
    timestamp: int
    path: Path


def write_curves(records: Sequence[Path | str], folder: Path = FOLDER) -> int:
    """Write the curves of runs to `folder`/csv/{run}/{training}.csv and to event files in `folder`/tensorboard.

    The latter are in a folder by the training's fingerprint: after a changed setting, another training has its name.

    Args:
        records: record.json or folder of each run, or folders of runs.

    Returns the number of trainings with new points. A record that cannot be read does not affect the others:
    BertlineError is raised at the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "curves.lock"):  # two passes at once would both write the new points
        return _write_curves(records, folder)


def _write_curves(records: Sequence[Path | str], folder: Path) -> int:
    changed, failures = 0, []
    for path in runs_in(records):
        try:
            with one_line_damage(path):
                record = read_record(path)
        except BertlineError as error:
            failures.append(str(error))
            continue
        for training in record.trainings:
            if not training.journal:
                continue
            place = f"{record.name}/{training.name}"
            changed += _write_csv(training, folder / "csv" / f"{place}.csv")
            _add_events(training, folder / "tensorboard" / place / training.fingerprint)
    if failures:
        raise BertlineError("; ".join(failures))
    return changed


def follow_curves(records: Sequence[Path | str], seconds: float, folder: Path = FOLDER) -> None:
    """Write the curves every `seconds` seconds until interrupted; a failed pass is reported if its reason is new."""
    repeat(lambda: write_curves(records, folder), "%d trainings have new points", seconds)


def _write_csv(training: Training, path: Path) -> bool:
    """Write a row for each point; return whether the file changed."""
    names = sorted({name for point in training.journal for name in point.metrics})
    table = io.StringIO()
    writer = csv.DictWriter(table, ["step", "timestamp", *names], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"step": point.step, "timestamp": point.timestamp, **point.metrics} for point in training.journal)
    # As bytes: a spreadsheet may have saved it in another encoding.
    if path.exists() and path.read_bytes() == table.getvalue().encode():
        return False
    write_text(path, table.getvalue())
    return True


def _add_events(training: Training, folder: Path) -> None:
    """Add an event file with the points that are not in those of `folder`, if there are any.

    It has all points if the training took some back, if one of the files was deleted, and if there were more files than
    `MOST_FILES`, or several of a finished training; then it replaces the others.
    """
    files = _event_files(folder)
    present, last = _not_replaced(files), training.journal[-1]
    points = {(point.step, point.timestamp) for point in training.journal}
    # A file ends with a point of the journal only if the points before it are the journal's as well.
    kept = present[-1].step if present and (present[-1].step, present[-1].timestamp) in points else None
    new = [point for point in training.journal if kept is None or point.step > kept]
    has_all = kept is None or len(present) + bool(new) > (1 if training.finished else MOST_FILES)
    if has_all or new:
        name = EVENTS.format(
            number=files[-1].number + 1 if files else 0,
            content="all" if has_all else "new",
            step=last.step,
            timestamp=last.timestamp,
        )
        _write_events(training.journal if has_all else new, folder / name, has_all=has_all)
    _discard(files if has_all else files[: -len(present)])


def _event_files(folder: Path) -> list[EventFile]:
    """Return the event files in order; no other program's."""
    found = ((OF_EVENTS.search(path.name), path) for path in folder.glob("events.out.tfevents.*"))
    return sorted(EventFile(int(of[1]), of[2] == "all", int(of[3]), int(of[4]), path) for of, path in found if of)


def _not_replaced(files: list[EventFile]) -> list[EventFile]:
    """Return the last file with all points and those after it; none if one of them is empty or was deleted."""
    start = max((index for index, file in enumerate(files) if file.has_all), default=len(files))
    present = files[start:]
    numbers = [file.number for file in present if file.path.stat().st_size]
    return present if present and numbers == list(range(present[0].number, present[0].number + len(present))) else []


def _discard(files: list[EventFile]) -> None:
    """Empty files that another one replaced, which a new TensorBoard would show, and later remove them."""
    for file in files:
        status = file.path.stat()
        if status.st_size:
            aside = file.path.with_name(UNFINISHED)
            aside.write_bytes(b"")
            aside.rename(file.path)  # also if it is somebody else's, and without an effect on who reads it
        elif time.time() - status.st_mtime > SECONDS_BEFORE_REMOVAL:
            file.path.unlink()


def _write_events(points: Sequence[JournalPoint], path: Path, *, has_all: bool) -> None:
    from tensorboardX.record_writer import RecordWriter

    logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # it warns of each NaN of a journal
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(UNFINISHED)
    # Its SummaryWriter writes in a thread, which a full disk ends: then it waits for ever.
    with closing(RecordWriter(str(aside.absolute()))) as writer:
        for event in _events(points, has_all=has_all):
            writer.write(event.SerializeToString())
        writer.flush()
    aside.rename(path)
    fsync_directory(path.parent)


def _events(points: Sequence[JournalPoint], *, has_all: bool) -> Iterator[Event]:
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.summary import scalar

    yield Event(wall_time=points[0].timestamp / 1000, file_version="brain.Event:2")
    # TensorBoard's data server drops a tag's points at a step that is not later, its Python loader those of all tags at
    # a START, but not at the first that it reads.
    for _ in range(2 if has_all else 0):
        yield Event(wall_time=points[0].timestamp / 1000, session_log=SessionLog(status=SessionLog.START))
    for point in points:
        for name, value in point.metrics.items():
            summary = scalar(TAGS.get(name, name), value)
            yield Event(wall_time=point.timestamp / 1000, step=point.step, summary=summary)
