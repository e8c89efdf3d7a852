"""Summary of the report as plain text: the table of scores, the path of the page, and how to open MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from bertline.reporting.facts import phase_facts
from bertline.reporting.scores import ScoreRow, score_rows
from bertline.results.describe import number, score_title, task_title
from bertline.results.records import Record, read_record


def summary(records: Sequence[Path | str], report: Path | None = None) -> str:
    """Return the text printed at the end of a run of the workflow."""
    blocks = [_run_block(read_record(path)) for path in records]
    closing = [f"report:  {report}"] if report else []
    return "\n\n".join([*blocks, "\n".join([*closing, "MLflow:  make ui"])]) + "\n"


def _run_block(run: Record) -> str:
    blocks = [run.name]
    phases = [phase_facts(phase) for phase in run.phases if phase.journal]
    if phases:
        headers = ["phase", "steps", "tokens per second", "held-out loss (nats)", "trigram model (nats)"]
        rows = [
            [
                phase["name"],
                number(phase["steps"]),
                _optional(phase["tokens_per_second"], "{:,.0f}"),
                _optional(phase["held_out_loss"], "{:.3f}"),
                _optional(phase["trigram_loss"], "{:.3f}"),
            ]
            for phase in phases
        ]
        blocks.append(_table(rows, headers, ["left", *["right"] * 4]))
    rows = [_score_row(row) for row in score_rows(run)]
    if rows:
        headers = ["task", "pretrained", "random weights", "majority", "copied\nposition", "margin", "over\nseeds"]
        blocks.append(_table(rows, headers, ["left", *["right"] * 6]))
        blocks.append(
            "Percent, median (worst..best seed). random weights: the same network, never pretrained, at the better of\n"
            "its learning rates. margin: between the medians. over seeds: the wider of the two ranges."
        )
    return "\n\n".join([*blocks, *run.skipped])


def _score_row(row: ScoreRow) -> list[str]:
    better = None if row.better_rate is None else row.random_weights[row.better_rate]
    return [
        f"{task_title(row.group)} {score_title(row.score)}",
        "-" if row.pretrained is None else str(row.pretrained),
        "-" if better is None else str(better),
        _optional(row.baselines.get("majority"), "{:.1f}") if row.primary else "",
        _optional(row.baselines.get("copy_position"), "{:.1f}") if row.primary else "",
        _optional(row.margin, "{:+.1f}"),
        _optional(row.spread, "{:.1f}"),
    ]


def _table(rows: list[list[str]], headers: list[str], alignment: list[str]) -> str:
    return tabulate(rows, headers, tablefmt="simple", colalign=alignment, disable_numparse=True)


def _optional(value: float | None, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)
