"""Utilisation of a GPU's pipes from the kernels that Nsight Compute recorded, as CSV of its command line.

    ncu --csv --metrics $METRICS --profile-from-start off ... > kernels.csv

with the metrics that `METRICS` lists. Both pages are read: `details`, the default, with a line for each kernel and
metric, and `raw`, with a line for each kernel.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from bertline.console import BertlineError

PIPES = ("fma", "fp16", "tensor", "xu")
CYCLES = "gpc__cycles_elapsed.max"
SHARES = {pipe: f"sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_elapsed" for pipe in PIPES}
METRICS = (CYCLES, *SHARES.values())
TOP = 10  # kernels with a row of their own
MAX_NAME_LENGTH = 1 << 17


class Kernel(NamedTuple):
    """A kernel's launch: its cycles, and the share of each pipe's peak in percent; 0 where it was not measured."""

    name: str
    cycles: float
    shares: Mapping[str, float]


class Row(NamedTuple):
    """Launches of one name, or of all: their number, their cycles, and the utilisation of each pipe in percent."""

    name: str
    launches: int
    cycles: float
    utilization: Mapping[str, float]


def read_kernels(path: Path) -> list[Kernel]:
    """Read the output of ncu; lines of the profiled program before the table are skipped.

    Raises BertlineError for a file without the table, without `CYCLES`, that is cut off, that has two tables, or with a
    number that cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise BertlineError(
            f"{path} cannot be read ({error.strerror}); name the file that ncu's output was kept in"
        ) from None
    heads = [
        number for number, line in enumerate(lines) if line.startswith('"ID","Process ID"') and '"Kernel Name"' in line
    ]
    if not heads:
        raise BertlineError(f"{path}: no table of ncu; run ncu with --csv, and keep its standard output")
    if len(heads) > 1:
        raise BertlineError(f"{path}: {len(heads)} tables of ncu; keep the output of each profile in a file of its own")
    launches: dict[tuple[str, str], dict[str, str]] = {}
    for row in _rows(path, lines[heads[0] :]):
        launch = launches.setdefault((row["Process ID"], row["ID"]), {"name": row["Kernel Name"]})
        if "Metric Name" in row:
            launch[row["Metric Name"]] = row["Metric Value"]
        else:
            launch |= {metric: row[metric] for metric in METRICS if metric in row}
    kernels = []
    for (_, number), launch in launches.items():
        if CYCLES not in launch:
            raise BertlineError(f"{path}: kernel {number} has no {CYCLES}; run ncu with --metrics {','.join(METRICS)}")
        shares = {pipe: _number(path, launch.get(metric, "n/a")) for pipe, metric in SHARES.items()}
        kernels.append(Kernel(launch["name"], _number(path, launch[CYCLES]), shares))
    return kernels


def _rows(path: Path, lines: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of launches; the units of page `raw` and quoted lines of the profiled program have no ID."""
    csv.field_size_limit(MAX_NAME_LENGTH)
    table = csv.DictReader(line for line in lines if line.startswith('"'))
    try:
        columns = table.fieldnames or ()
        for name in ("Process ID", "Kernel Name", *(["Metric Value"] if "Metric Name" in columns else [])):
            if name not in columns:
                raise BertlineError(f"{path}: the table of ncu has no column '{name}'; keep the whole output of ncu")
        for row in table:
            if not row["ID"].isdecimal():
                continue
            if None in row.values():
                raise BertlineError(f"{path}: the row of kernel {row['ID']} is cut off; keep the whole output of ncu")
            yield row
    except csv.Error as error:
        raise BertlineError(f"{path}: no table of ncu ({error}); run ncu with --csv") from None


def _number(path: Path, text: str) -> float:
    """Parse a number with commas between thousands; a number that the GPU does not measure is 0."""
    if text in ("n/a", ""):
        return 0.0
    if not re.fullmatch(r"(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][+-]?\d{1,2})?", text, re.ASCII):
        raise BertlineError(f"{path}: '{text[:50]}' is not a number; run ncu with LC_ALL=C")
    number = float(text.replace(",", ""))
    if not math.isfinite(number):
        raise BertlineError(f"{path}: '{text[:50]}...' is too large a number; run ncu again")
    return number


def utilization(kernels: list[Kernel]) -> list[Row]:
    """Sum the kernels: a row for all, then one for each name, the one with the most cycles first.

    A pipe's utilisation is the mean of its shares over the kernels, weighted by their cycles.
    """
    by_name: defaultdict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        by_name[kernel.name].append(kernel)
    rows = (_row(name, launches) for name, launches in by_name.items())
    return [_row("all kernels", kernels), *sorted(rows, key=lambda row: -row.cycles)]


def _row(name: str, kernels: list[Kernel]) -> Row:
    cycles = sum(kernel.cycles for kernel in kernels)
    shares = {
        pipe: sum(kernel.cycles * kernel.shares[pipe] for kernel in kernels) / cycles if cycles else 0.0
        for pipe in PIPES
    }
    return Row(name, len(kernels), cycles, shares)


def table_of(rows: list[Row]) -> str:
    """Return the table for the terminal: all kernels and the `TOP` names with the most cycles."""
    return tabulate(_lines(rows[: 1 + TOP]), headers=["kernel", "launches", "cycles", *(f"{pipe} %" for pipe in PIPES)])


def _lines(rows: list[Row]) -> Iterator[list[str]]:
    for row in rows:
        shares = (f"{row.utilization[pipe]:.1f}" for pipe in PIPES)
        name = "".join(letter if letter.isprintable() else "?" for letter in row.name[:60])
        yield [name, f"{row.launches:,}", f"{row.cycles:,.0f}", *shares]
