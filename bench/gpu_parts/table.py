"""Formatting of results as tables."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

Result = dict[str, Any]
UNITS = {
    "samples_per_second": "samples/s",
    "tokens_per_second": "tokens/s",
    "share_of_peak": "of peak",
    "milliseconds": "ms",
    "host_milliseconds": "host ms",
    "first_milliseconds": "first ms",
    "padding_share": "padding",
    "data_wait_share": "data wait",
    "extra_seconds_at_start": "compile s",
    "memory_gib": "GiB",
    "gigabytes_per_second": "GB/s",
    "tflops": "TFLOP/s",
}


def tables(results: list[Result]) -> str:
    """Return a table for each part, in order of arrival; for a repeated case, with the last result."""
    parts: dict[str, dict[tuple[str, str], Result]] = {}
    for result in results:
        key = (result.get("network", ""), result.get("case", ""))
        parts.setdefault(result["part"], {})[key] = result
    shown = {"machine": _machine, "correctness": _correctness, "profile": _profile}
    return "\n".join(f"{part}\n\n{shown.get(part, _table)(list(rows.values()))}\n" for part, rows in parts.items())


def _machine(rows: list[Result]) -> str:
    """Return names and versions, then the rates."""
    names = [f"{name}: {value}" for row in rows if row.get("case") == "names" for name, value in row.items()]
    rates = _table([row for row in rows if row.get("case") != "names"])
    return "\n".join([*(name for name in names if not name.startswith(("part:", "case:"))), "", rates])


def _profile(rows: list[Result]) -> str:
    """Return the time by class, then the longest kernels."""
    kernels = [row for row in rows if "kernel" in row]
    return "\n\n".join(_table(some) for some in ([row for row in rows if "kernel" not in row], kernels) if some)


def _correctness(rows: list[Result]) -> str:
    """Return the counts and the tests that failed."""
    outcomes = [row["outcome"] for row in rows if "outcome" in row]
    counts = ", ".join(f"{outcomes.count(name)} {name}" for name in sorted(set(outcomes)))
    return "\n".join([counts, *(f"{row.get('case', '')}: {row['error']}" for row in rows if "error" in row)])


def _table(rows: list[Result]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("part", "losses", "error")))
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    text = tabulate(cells, headers=[UNITS.get(name, name) for name in names], disable_numparse=True)
    notes = [
        f"{row.get('network', '')} {row.get('case', '')}: {row[name]}".strip()
        for row in rows
        for name in ("error", "losses")
        if name in row
    ]
    return "\n".join([text, *notes])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
