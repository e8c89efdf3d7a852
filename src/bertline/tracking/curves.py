"""Curves of trainings as CSV and as TensorBoard's events, in addition to MLflow.

Both contain what MLflow gets: the points of the metrics journals up to the last checkpoint, with the journals' times. A
CSV file is written anew whenever its training has more points. An event file cannot be changed: each pass writes the
new points to one of its own, aside, and its name has the step and the time of the last one, so that a kill at any
moment doubles or loses nothing. If a training returned to an earlier checkpoint than was sent, its journal no longer
has these points, and the next event file tells TensorBoard to drop them.
"""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from filelock import FileLock

from bertline.console import BertlineError
from bertline.files import fsync_directory, one_line_damage, write_text
from bertline.results.journal import JournalPoint
from bertline.results.records import Training, read_record, runs_in
from bertline.tracking.following import repeat

FOLDER = Path("results/curves")
# Tags of gpauloski's BERT-PyTorch; the other metrics keep the journal's names.
TAGS = {
    "train/loss": "average_loss",
    "train/step_loss": "step_loss",
    "train/learning_rate": "learning_rate",
    "train/samples_per_second": "samples_per_second",
    "train/epoch": "epoch",
}
EVENTS = "events.out.tfevents.{number:010d}.step-{step}.time-{timestamp}"
UNFINISHED = ".unfinished"  # without "tfevents", by which TensorBoard finds its files
OF_EVENTS = re.compile(r"\.(\d{10,})\.step-(\d+)\.time-(\d+)$")


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
    """Add an event file with the points that are not in those of `folder`; one may also take points back.

    If one of them was deleted, so are the others, and all points are written again.
    """
    points = {(point.step, point.timestamp) for point in training.journal}
    files = _event_files(folder)
    if [number for number, _, _ in files] != list(range(len(files))):
        for path in reversed(files.values()):  # after a kill, the first one that is left is still not number 0
            path.unlink()
        files = {}
    ends = [(step, timestamp) for _, step, timestamp in files]
    # A file ends with a point of the journal only if the points before it are the journal's as well.
    kept = next((end[0] for end in reversed(ends) if end in points), -1)
    taken_back = bool(ends) and ends[-1] not in points
    new = [point for point in training.journal if point.step > kept]
    if new or taken_back:
        end = training.journal[-1]
        path = folder / EVENTS.format(number=len(files), step=end.step, timestamp=end.timestamp)
        _write_events(new, path, dropped_from=kept + 1 if taken_back else None)


def _event_files(folder: Path) -> dict[tuple[int, int, int], Path]:
    """Return the event files in order, each by its number and its last point's step and time; no other program's."""
    found = ((OF_EVENTS.search(path.name), path) for path in folder.glob("events.out.tfevents.*"))
    return dict(sorted(((int(of[1]), int(of[2]), int(of[3])), path) for of, path in found if of))


def _write_events(points: Sequence[JournalPoint], path: Path, *, dropped_from: int | None) -> None:
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.record_writer import RecordWriter
    from tensorboardX.summary import scalar

    logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # it warns of each NaN of a journal
    events = [Event(wall_time=points[0].timestamp / 1000 if points else 0, file_version="brain.Event:2")]
    if dropped_from is not None:
        events.append(Event(step=dropped_from, session_log=SessionLog(status=SessionLog.START)))
    for point in points:
        for name, value in point.metrics.items():
            summary = scalar(TAGS.get(name, name), value)
            events.append(Event(wall_time=point.timestamp / 1000, step=point.step, summary=summary))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(UNFINISHED)
    # Its SummaryWriter writes in a thread, which a full disk ends: then it waits for ever.
    with closing(RecordWriter(str(aside.absolute()))) as writer:
        for event in events:
            writer.write(event.SerializeToString())
        writer.flush()
    aside.rename(path)
    fsync_directory(path.parent)
