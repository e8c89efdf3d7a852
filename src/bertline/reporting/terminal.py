"""Summary of the report as plain text: the table of scores, the path of the page, and how to open MLflow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bertline.command_line import Files
from bertline.console import BertlineError
from bertline.reporting.scores import ScoreRow, score_rows, seen_in_training, shown_baselines, unfinished_stages
from bertline.results import paths
from bertline.results.curves import phase_facts
from bertline.results.describe import number, score_title, task_title
from bertline.results.records import Record, is_current, one_line_damage_of, read_record, runs_in


def summary(records: Files, *, report: Path | None = None) -> str:
    """Return the text printed at the end of a run of the workflow.

    With a damaged run it is printed without that run, and BertlineError raised.

    Args:
        records: record.json of each run to show, or a folder of runs.
        report: the report's index.html.
    """
    blocks, failures = [], []
    for path in runs_in(records):
        try:
            run = read_record(path)
            with one_line_damage_of(run):
                blocks.append(_run_block(run))
        except BertlineError as error:
            failures.append(str(error))
    closing = [f"report:  {report}"] if report else []
    text = "\n\n".join([*blocks, "\n".join([*closing, "MLflow:  make ui"])])
    if failures:
        print(text)
        raise BertlineError("; ".join(failures))
    return text


def _run_block(run: Record) -> str:
    unfinished = unfinished_stages(run)
    title = run.name if is_current(run) else f"{run.name}, of an earlier configuration"
    blocks = [f"{title}, not finished: {unfinished}" if unfinished else title]
    phases = [phase_facts(phase) for phase in run.phases if phase.journal]
    if phases:
        headers = ["phase", "steps", "tokens per second", "held-out loss (nats)", "trigram model (nats)"]
        blocks.append(_table(headers, [_phase_row(phase) for phase in phases]))
    rows = score_rows(run)
    if rows:
        baselines = shown_baselines(rows)
        titles = [title.replace(" ", "\n", 1) for title in baselines.values()]
        headers = ["task", "dev\nset", "pretrained", "random weights", *titles, "margin", "over\nseeds"]
        blocks.append(_table(headers, [_score_row(row, baselines) for row in rows]))
        blocks.append(
            "Percent, median (worst..best seed). dev set: its number of examples. random weights: the same network,\n"
            "never pretrained, at the better of its learning rates. margin: between the medians. over seeds: the\n"
            "wider of the two ranges."
        )
        blocks += ["\n".join(notes)] if (notes := seen_in_training(rows)) else []
    models = [
        f"  {paths.RUN.format(run=run.name)}/{kept.name}/model" if is_current(run) else f"  {kept.folder}"
        for kept in run.kept
        if kept.finetuning.start == "pretrained" and kept.folder.exists()  # not deleted since
    ]
    if models:
        blocks.append("\n".join(["The best model of each task, in Hugging Face's layout:", *models]))
    return "\n\n".join([*blocks, *run.skipped])


def _phase_row(phase: dict[str, Any]) -> list[str]:
    losses = [_optional(phase[key], "{:.3f}") for key in ("held_out_loss", "trigram_loss")]
    return [phase["name"], number(phase["steps"]), _optional(phase["tokens_per_second"], "{:,.0f}"), *losses]


def _score_row(row: ScoreRow, baselines: Iterable[str]) -> list[str]:
    return [
        f"{task_title(row.group)} {score_title(row.score)}",
        _optional(row.dev_examples, "{:,}"),
        str(row.pretrained or "-"),
        str(row.better_random or "-"),
        *(_optional(row.baselines.get(name), "{:.1f}") if row.primary else "" for name in baselines),
        _optional(row.margin, "{:+.1f}"),
        _optional(row.spread, "{:.1f}"),
    ]


def _table(headers: list[str], rows: list[list[str]]) -> str:
    alignment = ["left", *["right"] * (len(headers) - 1)]
    return tabulate(rows, headers, tablefmt="simple", colalign=alignment, disable_numparse=True)


def _optional(value: float | None, pattern: str) -> str:
    return "-" if value is None else pattern.format(value)
