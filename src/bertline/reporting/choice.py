"""A report of any runs, by their readable names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from bertline.console import BertlineError
from bertline.fingerprint import fingerprint
from bertline.reporting.page import write_report
from bertline.results import paths
from bertline.results.records import record_in

RUNS = Path(paths.RUN.format(run=""))
LENGTH_OF_NAME = 100


def report_of(*runs: str, directory: Path | None = None) -> str:
    """Write the report of any runs, of one configuration or of several; nothing else is run.

    Args:
        runs: names in results/runs, records of results/runs/*/ or their fingerprints; also separated by commas. By
            default all runs.
        directory: the folder to write (default: results/report/of-NAMES, or every-run).

    Returns the page's path. Raises BertlineError for an unknown run, with the most similar names.
    """
    names = [name for run in runs for name in ([run] if Path(run).is_file() else run.split(","))]
    names = [name.strip() for name in names if name.strip()]
    known = {folder.name: record for folder in sorted(RUNS.glob("*")) if (record := record_in(folder))}
    if not known and not names:
        raise BertlineError(f"{RUNS} contains no run yet; run snakemake first")
    records = {_record(name, known).resolve(): name for name in names or known}
    if directory is None:
        shown = "+".join(map(_shown, records.values()))
        name = shown if len(shown) <= LENGTH_OF_NAME else fingerprint(list(records.values()))
        directory = Path(paths.REPORT.format(fingerprint=f"of-{name}" if names else "every-run"))
    return str(write_report(list(records), directory))


def _shown(name: str) -> str:
    """Return the part of the folder's name for a run: of a run's record.json, the run's name.

    A name may have dots: only the ending of a record's file is left out.
    """
    path = Path(name)
    if path.name == paths.RUN_RECORD:
        return path.parent.name
    return path.name.removesuffix(".json").removeprefix("record-") if path.is_file() else name


def _record(name: str, known: dict[str, Path]) -> Path:
    if name in known:
        return known[name]
    if Path(name).is_file():
        return Path(name)
    found = [] if set(name) - set("0123456789abcdef") else sorted(RUNS.glob(f"*/record-{name}*.json"))
    if len(found) == 1:
        return found[0]
    if found:
        raise BertlineError(f"{name} is the beginning of several records' fingerprints; give more of it")
    raise BertlineError(f"{RUNS} contains no run {name}; {_nearest(name, list(known))}")


def _nearest(name: str, known: Sequence[str]) -> str:
    folded = {one.casefold(): one for one in known}
    near = [folded[one] for one in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return (
        f"it contains {', '.join(known[:10])}{', ...' if len(known) > 10 else ''}" if known else "run snakemake first"
    )
