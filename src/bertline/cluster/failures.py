"""Reasons for failed Snakemake jobs, printed below the output of a run, and the report of what succeeded."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bertline.files import CHECKOUT
from bertline.results import paths
from bertline.training.contract import SAVED_STEP

UNFINISHED = Path(paths.REPORT.format(fingerprint="unfinished"))
# Snakemake's lines about a failed job: its rule, then, indented, its number and its logs.
FAILED = re.compile(
    r"^Error in rule (\S+):\n(?:[ \t].*\n)*?[ \t]+jobid: (\d+)\n(?:[ \t].*\n)*?[ \t]+log: (.+?) \(check log file",
    re.MULTILINE,
)
# Snakemake's line about Ctrl-C.
INTERRUPTED = "Terminating processes on user request"


def read_reasons(snakemake_logs: list[Path]) -> list[str]:
    """Return a line for each job that failed and did not succeed later: rule, last line of its log, path of the log.

    Of those that Ctrl-C ended, only jobs with an error and those that saved have a line.
    """
    snakemake_log = "".join(map(_read, snakemake_logs))
    interrupted = snakemake_log.find(INTERRUPTED)
    found, done_later = {}, set()
    for failed in FAILED.finditer(snakemake_log):
        rule, number, logs = failed.groups()
        first = logs.split(", ")[0]  # the rule's own; Slurm's comes after it
        # Inside a Slurm job every job has number 0, and its failure is printed a second time.
        if number != "0" and f"\nFinished jobid: {number} " in snakemake_log[failed.end() :]:
            done_later.add(first)
        words = last_words(Path(first))
        if 0 <= interrupted < failed.start():
            if saved := SAVED_STEP.search(words):
                words = f"stopped: {saved[1]}; the same command continues"
            elif not words.startswith("error: "):
                continue
        found[first] = f"{rule}: {words} ({first})"
    return [reason for log, reason in found.items() if log not in done_later]


def last_words(log: Path) -> str:
    """Return the last line of a job's log, without srun's lines, which report how tasks ended but not why."""
    lines = [line.strip() for line in _read(log).splitlines() if line.strip() and not line.startswith("srun: ")]
    return lines[-1] if lines else "ended without output"


def report_what_succeeded(records: list[str], scores: list[str]) -> None:
    """Write a report of the existing scores when the whole report cannot be made, and send it to MLflow.

    Args:
        records: of all runs.
        scores: of all fine-tunings; if none exists, nothing is written.
    """
    present = [record for record in records if Path(record).exists()]
    if not present or not any(Path(score).exists() for score in scores):
        return
    scripts = CHECKOUT / "workflow/scripts"
    command = ["python", str(scripts / "report.py"), *present, "--directory", str(UNFINISHED)]
    if subprocess.run(command, check=False).returncode:  # noqa: S603
        return
    print(f"The report of the finished results: {UNFINISHED}/index.html", file=sys.stderr)
    if Path(paths.MLFLOW_IS_INITIALISED).exists():
        track = ["python", str(scripts / "track.py"), *present, "--report", f"{UNFINISHED}/index.html"]
        subprocess.run(track, check=False)  # noqa: S603


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
