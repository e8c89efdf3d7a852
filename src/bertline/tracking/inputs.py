"""The files of which the tree of a run is made, to see whether one changed without reading the journals."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bertline.files import one_line_damage, read_object
from bertline.results import paths
from bertline.tracking.passes import and_below
from bertline.tracking.run_tree import Entry

Changes = dict[Path, tuple[int, int] | None]  # by file: its size and the time of its last change; None if it is gone


def changes_of_inputs(record: Path, report: Path | None) -> Changes:
    """Return the last changes in the folders that a record names. Raises BertlineError for a damaged record."""
    with one_line_damage(record):
        content = read_object(record, "dataset", "phases", "finetunings", "kept")
        trainings = [Path(entry["path"]) for entry in (*content["phases"], *content["finetunings"])]
        dataset = content["dataset"] or {"path": record.parent}
        folders = {record.parent, record.resolve().parent, Path(dataset["path"]), *map(Path, dataset.get("phases", []))}
        folders |= {*trainings, *(folder / paths.CHECKPOINTS for folder in trainings)}
        folders |= {Path(paths.KEPT.format(kept=key)) for key in content["kept"].values()}
    if report:
        folders.add(report.parent)
    files: list[Path] = []
    for folder in sorted(folders):
        with suppress(OSError):  # of one that does not exist
            files += folder.iterdir()
    return _changes_of(files)


def changes_of_artifacts(entry: Entry) -> Changes:
    """Return the last changes of the files that a tree of entries sends."""
    return _changes_of(artifact.path for one in and_below(entry) for artifact in one.artifacts)


def _changes_of(files: Iterable[Path]) -> Changes:
    changes: Changes = {}
    for path in files:
        try:
            status = path.stat()
            changes[path] = (status.st_size, status.st_mtime_ns)
        except OSError:
            changes[path] = None
    return changes
