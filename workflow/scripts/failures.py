"""The last thing that snakemake's output shows: why each job failed that was not done again with success."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from bertline.console import HelpFormatter

UNFINISHED = Path("results/report/unfinished")
# What snakemake writes about a failed job: its rule, then, indented, its number and its logs.
FAILED = re.compile(
    r"^Error in rule (\S+):\n(?:[ \t].*\n)*?[ \t]+jobid: (\d+)\n(?:[ \t].*\n)*?[ \t]+log: (.+?) \(check log file",
    re.MULTILINE,
)


def reasons(snakemake_log: str) -> list[str]:
    """A line for each failed job: its rule, the last line of its own log, and where that is."""
    found, done_later = {}, set()
    for failed in FAILED.finditer(snakemake_log):
        rule, number, logs = failed.groups()
        first = logs.split(", ")[0]  # the rule's own; Slurm's comes after it
        # Inside a Slurm job every job has number 0, and says the same once more.
        if number != "0" and f"\nFinished jobid: {number} " in snakemake_log[failed.end() :]:
            done_later.add(first)
        found[first] = f"{rule}: {last_words(Path(first))} ({first})"
    return [reason for log, reason in found.items() if log not in done_later]


def last_words(log: Path) -> str:
    """The last line of a job's log, apart from srun's, which tells how tasks ended and not why."""
    lines = [line.strip() for line in _read(log).splitlines() if line.strip() and not line.startswith("srun: ")]
    return lines[-1] if lines else "ended without a word"


def reasons_in(snakemake_logs: list[Path]) -> list[str]:
    """The same of log files."""
    return reasons("".join(map(_read, snakemake_logs)))


def report_what_is_there(records: list[str], scores: list[str]) -> None:
    """After a score failed that the report waits for: write one of what is there, and send that to MLflow.

    Parameters
    ----------
    records: of all runs. scores: of all fine-tunings; without any nothing is written.
    """
    present = [record for record in records if Path(record).exists()]
    if not any(Path(score).exists() for score in scores):
        return
    command = ["python", "workflow/scripts/report.py", "--record", *present, "--output-directory", str(UNFINISHED)]
    if subprocess.run(command, check=False).returncode:  # noqa: S603
        return
    print(f"The report of what is there: {UNFINISHED}/index.html", file=sys.stderr)
    if Path("results/mlflow-is-initialised").exists():
        track = ["python", "workflow/scripts/track.py", *present, "--report", f"{UNFINISHED}/index.html"]
        subprocess.run(track, check=False)  # noqa: S603


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=HelpFormatter,
        epilog="example: python workflow/scripts/failures.py .snakemake/log/last.log",
    )
    parser.add_argument("log", type=Path, help="a log of snakemake's")
    print(*reasons_in([parser.parse_args().log]), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
