"""Files of a sweep: sweep.json with everything, tables as CSV, figures as SVG."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from bertline.files import Json, write_json, write_text
from bertline.reporting import figures
from bertline.results.describe import counted
from bertline.results.sweeps import MICRO_BATCHES, SCALING, SWEEP, fastest_of

MEASURED = (
    *("sequences", "step_seconds", "sequences_per_second", "tokens_per_second", "tflops_per_second"),
    *("model_flops_utilization", "memory_bytes", "start_seconds"),
)
COLUMNS = {
    MICRO_BATCHES: ("micro_batch_size", "processes", "fits", *MEASURED),
    SCALING: ("processes", "micro_batch_size", "fits", "speed_up", "efficiency", *MEASURED),
}


def write_sweep(folder: Path, sweep: Json) -> None:
    """Write a sweep's tables and figures to a folder, and last the sweep itself.

    Args:
        sweep: rows of `bertline.planning.sweep` below `micro_batches` and `scaling`, in addition to its description.
    """
    for name, columns in COLUMNS.items():
        if sweep[name]:
            table = io.StringIO()
            writer = csv.DictWriter(table, columns, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(sweep[name])
            write_text(folder / f"{name}.csv", table.getvalue())
    rows = [row for row in sweep[MICRO_BATCHES] if row["fits"]]
    sizes, speeds, memory = (
        [row[key] for row in rows] for key in ("micro_batch_size", "sequences_per_second", "memory_bytes")
    )
    drawn = figures.speed_by_micro_batch(sizes, speeds, [bytes_ / 1e9 for bytes_ in memory])
    write_text(folder / f"{MICRO_BATCHES}.svg", drawn)
    rows = [row for row in sweep[SCALING] if row["fits"]]
    (folder / f"{SCALING}.svg").unlink(missing_ok=True)  # of an earlier sweep, of which more may have fitted
    if len(rows) > 1:
        drawn = figures.speed_up([row["processes"] for row in rows], [row["speed_up"] for row in rows])
        write_text(folder / f"{SCALING}.svg", drawn)
    write_json(folder / SWEEP, sweep)


def print_table(name: str, rows: Sequence[Json]) -> None:
    """Print one of a sweep's tables, and below that of the micro-batches the fastest size."""
    if name == SCALING:
        print(f"\n{table_of_scaling(rows)}")
        return
    print(table_of_micro_batches(rows))
    if fastest := fastest_of(rows):
        size = fastest["micro_batch_size"]
        tokens = size * fastest["tokens"] // fastest["sequences"]
        print(f"The fastest are micro-batches of {counted(size, 'sequence')}: micro_batch_tokens={tokens}")


def table_of_micro_batches(rows: Sequence[Json]) -> str:
    """Return a table for the terminal."""
    headers = ["micro-batch", "sequences/s", "tokens/s", "ms a step", "GB", "% of peak"]
    return tabulate(map(_line, rows), headers=headers, disable_numparse=True, stralign="right")


def table_of_scaling(rows: Sequence[Json]) -> str:
    """Return a table for the terminal."""
    headers = ["processes", "micro-batch", "ms a step", "speed-up", "efficiency", "sequences/s"]
    lines = []
    for row in rows:
        speed = ["does not fit", "", "", ""]
        if row["fits"]:
            speed = [f"{1000 * row['step_seconds']:,.1f}", *(f"{row[key]:.2f}" for key in ("speed_up", "efficiency"))]
            speed.append(f"{row['sequences_per_second']:,.1f}")
        lines.append([str(row["processes"]), str(row["micro_batch_size"]), *speed])
    return tabulate(lines, headers=headers, disable_numparse=True, stralign="right")


def _line(row: Json) -> list[str]:
    size = str(row["micro_batch_size"])
    if not row["fits"]:
        return [size, "does not fit", "", "", "", ""]
    share = row["model_flops_utilization"]
    return [
        size,
        f"{row['sequences_per_second']:,.1f}",
        f"{row['tokens_per_second']:,.0f}",
        f"{1000 * row['step_seconds']:,.1f}",
        f"{row['memory_bytes'] / 1e9:.2f}",
        "" if share is None else f"{100 * share:.1f}",
    ]
