"""A sweep as an MLflow run: a point for each size of a micro-batch, and the files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertline.files import Json, one_line_damage, read_json
from bertline.fingerprint import fingerprint
from bertline.results import describe, paths
from bertline.results.sweeps import MICRO_BATCHES, SCALING, SWEEP
from bertline.tracking.run_tree import Artifact, Entry, Point, identity_of, source_tags

# Rows of a sweep, and what is the step of their points in MLflow.
STEPS = {MICRO_BATCHES: "micro_batch_size", SCALING: "processes"}


def sweeps_beside(records: Sequence[Path | str]) -> list[Path]:
    """Return the files of the sweeps beside the folders of runs among `records`: one may not have been sent."""
    beside = [Path(path).parent / paths.SWEEPS for path in records if Path(path).suffix != ".json"]
    return sorted(sweep for folder in beside for sweep in folder.glob(f"**/{SWEEP}"))


def entry_of(folder: Path) -> Entry:
    """Return the entry of the sweep in a folder: metrics named {table}/{column}, by size or by processes."""
    with one_line_damage(folder / SWEEP, "restore it from a copy, or delete its folder and run `make sweep` again"):
        return _entry(folder, read_json(folder / SWEEP))


def _entry(folder: Path, sweep: Json) -> Entry:
    name, device, digest = f"sweep of {sweep['name']}", sweep["device"], fingerprint(sweep)
    points = [
        Point(f"{table}/{key}", row[step], sweep["finished"], float(value))
        for table, step in STEPS.items()
        for row in sweep[table]
        for key, value in row.items()
        if key != step and isinstance(value, int | float)
    ]
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".csv", ".svg"))
    return Entry(
        name=name,
        # Every sweep is a run of its own: another one, of another time, does not replace it.
        identity_tags=identity_of("sweep", digest, run=f"{name} {digest}", record=digest),
        description=f"Speed of {sweep['name']} on {device}, by the sequences of a micro-batch and by processes.",
        finished=True,
        started=sweep["started"],
        ended=sweep["finished"],
        parameters=describe.flatten({"settings": sweep["settings"], "model": sweep["model"], "seed": sweep["seed"]}),
        tags=describe.flatten({"device": device, "options": " ".join(sweep["options"])}, "bertline.")
        | source_tags("sweep"),
        points=points,
        artifacts=[Artifact(path) for path in files],
        experiment=sweep["experiment"],
    )
