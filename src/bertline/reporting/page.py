"""The report: one self-contained HTML page, and its tables as CSV and its figures as SVG next to it."""

from __future__ import annotations

import csv
import io
import os.path
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from markupsafe import Markup

from bertline.console import BertlineError
from bertline.files import one_line_damage, write_text
from bertline.reporting import alternatives, data, figures
from bertline.reporting.comparison import as_table, differing_settings, outcomes
from bertline.reporting.model_card import card_of_run, template
from bertline.reporting.published import SOURCE
from bertline.reporting.scores import (
    BASELINE_TITLES,
    ScoreRow,
    score_rows,
    scores_by_step,
    seen_in_training,
    shown_baselines,
    unfinished_stages,
    without_published,
)
from bertline.results import describe, paths
from bertline.results.curves import cost_of, curve, phase_facts
from bertline.results.records import Phase, Record, chosen_on_dev, is_current, one_line_damage_of, read_record
from bertline.results.report_files import CARDS, FIGURES, TABLES, ReportFiles

ToText = Callable[..., str]
Figure = dict[str, Any]  # its title, and its SVG as an element
DIGITS = 6  # of a fingerprint, by which runs of one name are distinguished


def write_report(records: Sequence[Path | str], directory: Path) -> Path:
    """Write `directory`/index.html, tables/*/*.csv, figures/*/*.svg and model-cards/*.md for the runs of `records`.

    Returns the page's path. The same inputs give the same bytes. Unfinished stages are shown with their results so far.
    Of a damaged run BertlineError is raised at the end, when the others have a page, incomplete.html: Snakemake deletes
    the index.html of a job that fails. What an earlier call wrote to the folder, and this one does not, is removed.

    Args:
        records: record-*.json of each run to show. Those of one name, from before and after a change of its recipe, are
            distinguished by the beginnings of their fingerprints.
        directory: the folder to write.
    """
    runs, failures = _readable(records)
    if len({(run.name, run.fingerprint) for run in runs}) != len(runs):
        raise BertlineError(f"one record was given twice ({', '.join(map(str, records))}); give each once")
    names = [run.name for run in runs]
    runs = _told_apart(runs)
    files, sections = ReportFiles(directory), []
    for run, name in zip(runs, names, strict=True):
        try:
            with one_line_damage_of(run):
                if any(phase.finished for phase in run.phases):
                    files.write(f"{CARDS}/{run.name}.md", card_of_run(run), run.fingerprint)
                differing_settings([run])
                outcomes([run])
                section = _Section(run, name, files)
                _page([section])
                sections.append(section)
        except BertlineError as error:
            failures.append(str(error))
        except TemplateError as error:
            failures.append(f"{run.path} refers to a result that cannot be shown ({error}); restore it from a copy")
    runs = [section.run for section in sections]
    if failures and not runs:
        raise BertlineError("; ".join(failures))
    side_by_side = [
        (title, as_table(runs, rows))
        for title, rows in (("Differences", differing_settings(runs)), ("Results", outcomes(runs)))
        if rows
    ]
    comparisons = []
    evaluated = {run.name: run.phases for run in runs if curve(run.phases, "held_out/mlm_loss")[1]}
    if len(runs) > 1 and evaluated:
        losses = figures.held_out_losses, alternatives.of_held_out_losses
        comparisons.append(_figure(files, "held-out-losses", "Held-out loss of all runs", *losses, evaluated))
    if by_step := scores_by_step(runs):
        table = [
            (name, step, *(f"{value:.4f}" for value in (spread.median, min(spread.values), max(spread.values))))
            for name, points in by_step.items()
            for step, spread in points
        ]
        _write_table(files, "scores-by-step", [("score", "step", "median", "worst", "best"), *table])
        scores = figures.scores_by_step, alternatives.of_scores_by_step
        comparisons.append(_figure(files, "scores-by-step", "Scores by step of pretraining", *scores, by_step))
    page = _page(sections, side_by_side=side_by_side, comparisons=comparisons)
    files.finish()
    incomplete = directory / "incomplete.html"
    if failures:
        write_text(incomplete, page)
        raise BertlineError("; ".join([*failures, f"{incomplete} shows the others"]))
    incomplete.unlink(missing_ok=True)
    write_text(directory / "index.html", page)
    return directory / "index.html"


def _page(sections: Sequence[_Section], **more: Any) -> str:
    return template("report.html.j2", autoescape=True).render(
        sections=sections,
        runs=[section.run for section in sections],
        published_source=SOURCE,
        chosen_on_dev=describe.CHOSEN_ON_DEV,
        **more,
    )


def _readable(records: Sequence[Path | str]) -> tuple[list[Record], list[str]]:
    """Return the records that can be read, and a line for each of the others."""
    runs, failures = [], []
    for path in records:
        try:
            run = read_record(path)
            if run.dataset.card:
                with one_line_damage(run.dataset.card_file):
                    _check_card(run)
            runs.append(run)
        except BertlineError as error:
            failures.append(str(error))
    return runs, failures


def _check_card(run: Record) -> None:
    """Read all of a dataset's card that a section shows."""
    card = run.dataset.card
    describe.describe_dataset(card)
    for rows in (data.corpus_rows, data.cleaning_rows, data.overlap_rows, data.overlap_table, data.corpora_table):
        list(rows(card))
    data.document_lengths(card)
    for _, section in describe.by_length(card):
        alternatives.of_length_histogram(**section["length_histogram"])


def _told_apart(runs: Sequence[Record]) -> list[Record]:
    """Add to a name that several runs have so much of their fingerprints that all names differ."""
    counts = Counter(run.name for run in runs)
    for digits in range(DIGITS, 1 + max((len(run.fingerprint) for run in runs), default=DIGITS)):
        names = [run.name if counts[run.name] == 1 else f"{run.name}-{run.fingerprint[:digits]}" for run in runs]
        if len(set(names)) == len(runs):
            return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
    raise BertlineError(f"runs of one name cannot be told apart ({', '.join(counts)}); show them in two reports")


def _figure(
    files: ReportFiles, name: str, title: str, draw: ToText, describe: ToText, *args: Any, record: str = "", **more: Any
) -> Figure:
    """Draw to figures/`name`.svg, and return the figure for the page; both functions get the same arguments."""
    svg = draw(*args, **more)
    files.write(f"{FIGURES}/{name}.svg", svg, record)
    inline = figures.inline(svg, f"{title}. {describe(*args, **more)}")
    return {"title": title, "svg": Markup(inline)}  # noqa: S704 - drawn by us from numbers


def _write_table(files: ReportFiles, name: str, rows: Iterable[Sequence[Any]], record: str = "") -> None:
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows(rows)
    files.write(f"{TABLES}/{name}.csv", content.getvalue(), record)


class _Section:
    """Contents of the page for one run. Creating it writes the run's tables and figures."""

    def __init__(self, run: Record, name: str, files: ReportFiles) -> None:
        self.run = run
        self._files = files
        self.rows = score_rows(run)
        self.shows_published = any(row.published for row in self.rows)
        self.notes = [*seen_in_training(self.rows), *without_published(self.rows)]
        self.baselines = shown_baselines(self.rows)
        self.shows_p_values = any(row.p_values for row in self.rows)
        trained = [phase for phase in run.phases if phase.journal]
        self.phases = [phase_facts(phase) for phase in trained]
        self.corpora = data.corpus_rows(run.dataset.card)
        self.cleaning = data.cleaning_rows(run.dataset.card)
        self.overlap = data.overlap_rows(run.dataset.card)
        self.dataset_words = describe.describe_dataset(run.dataset.card) if run.dataset.card else ""
        self.unfinished = unfinished_stages(run)
        self.is_current, folder = is_current(run), paths.RUN.format(run=name)
        models = [(kept, f"{folder}/{kept.name}/model" if self.is_current else str(kept.folder)) for kept in run.kept]
        self.kept = [(kept, model, os.path.relpath(model, files.folder)) for kept, model in models]
        self.recipes = _recipes(run)
        self.environment = _environment(run)
        drawn: tuple[ToText, ToText] = figures.loss_curve, alternatives.of_loss_curve
        self.loss_figures = [
            self._figure(f"loss-of-{phase.name}", f"Loss of {phase.name} by step", *drawn, phase) for phase in trained
        ]
        self.cost = cost_of(run.phases)
        self.all_phases_finished = all(phase.finished for phase in run.phases)
        if trained:
            drawn = figures.loss_over, alternatives.of_loss_over
            self.loss_figures += [
                self._figure("loss-by-tokens", "Loss by tokens seen", *drawn, trained, "tokens"),
                self._figure("loss-by-hours", "Loss by time of training", *drawn, trained, "hours"),
                self._figure("throughput", "Speed over time", figures.throughput, alternatives.of_throughput, trained),
            ]
        self.score_figure = None
        if self.rows:
            drawn = figures.score_dots, alternatives.of_score_dots
            self.score_figure = self._figure("scores", "Scores of every seed", *drawn, self.rows)
        self.length_figures = []
        for length, section in describe.by_length(run.dataset.card):
            drawn = partial(figures.length_histogram, length), alternatives.of_length_histogram
            title = f"Lengths of the samples of at most {length} tokens"
            self.length_figures.append(self._figure(f"lengths-{length}", title, *drawn, **section["length_histogram"]))
        if lengths := data.document_lengths(run.dataset.card):
            drawn = figures.document_lengths, alternatives.of_document_lengths
            self.length_figures.append(self._figure("documents", "Lengths of the documents by corpus", *drawn, lengths))
        self._table("scores", _score_table(run))
        self._table("summary", _summary_table(self.rows))
        self._table("corpora", data.corpora_table(run.dataset.card))
        if self.cleaning:
            self._table("cleaning", [list(self.cleaning[0]), *(list(row.values()) for row in self.cleaning)])
        if self.overlap:
            self._table("overlap", data.overlap_table(run.dataset.card))
        for phase in trained:
            self._table(f"curve-of-{phase.name}", _curve_table(phase))

    def _figure(self, name: str, *figure: Any, **content: Any) -> Figure:
        return _figure(self._files, f"{self.run.name}/{name}", *figure, record=self.run.fingerprint, **content)

    def _table(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        _write_table(self._files, f"{self.run.name}/{name}", rows, self.run.fingerprint)


def _recipes(run: Record) -> list[tuple[str, str]]:
    """Return the run's recipes as (stage, description)."""
    recipes = []
    if run.network:
        recipes.append(("Network", describe.describe_network(run.network)))
    recipes += [
        (phase.name, describe.describe_phase(phase.recipe, run.phase_names)) for phase in run.phases if phase.recipe
    ]
    for group, finetunings in run.groups.items():
        pretrained = [one for one in finetunings if one.recipe and one.start == "pretrained"]
        chosen = chosen_on_dev(pretrained)
        if chosen:
            sentence = describe.describe_finetuning(chosen[0].recipe, run.phase_names, [one.seed for one in chosen])
            settings = len({one.settings_name for one in pretrained})
            if settings > 1:
                sentence += (
                    f" Chosen on the dev set among {settings} settings, so its scores there are slightly optimistic."
                )
            recipes.append((describe.task_title(group), sentence))
    return recipes


def _environment(run: Record) -> list[tuple[str, str]]:
    """Return code, packages and machines as (name, values); values that differ between stages are all listed."""
    facts: dict[str, dict[str, None]] = {}
    for recipe in (training.recipe for training in run.trainings if training.recipe):
        commit = recipe.get("git_commit")
        if commit:
            changed = " with uncommitted changes" if recipe.get("git_dirty") else ""
            facts.setdefault("code", {})[f"commit {commit[:12]}{changed}"] = None
        for key in ("hardware", "world_size"):
            if recipe.get(key) is not None:
                facts.setdefault(key.replace("_", " "), {})[str(recipe[key])] = None
        for name, version in recipe.get("versions", {}).items():
            facts.setdefault(name, {})[str(version)] = None
    fingerprints = [("dataset", run.dataset.fingerprint)] if run.dataset.fingerprint else []
    fingerprints += [(phase.name, phase.fingerprint) for phase in run.phases]
    return [(name, ", ".join(values)) for name, values in facts.items()] + [
        (f"fingerprint of {name}", value) for name, value in fingerprints
    ]


def _score_table(run: Record) -> Iterable[Sequence[Any]]:
    yield ["task", "score", "start", "settings", "learning_rate", "seed", "percent", "dev_examples"]
    for finetuning in run.finetunings:
        for score, value in sorted(finetuning.result.get("scores", {}).items()):
            settings = [finetuning.start, finetuning.settings_name, finetuning.result["learning_rate"]]
            size = describe.number_of_examples(finetuning.result, score)
            yield [finetuning.group, score, *settings, finetuning.seed, f"{value:.4f}", size]


def _summary_table(rows: Sequence[ScoreRow]) -> Iterable[Sequence[Any]]:
    medians = ["pretrained_median", "random_weights_median"]
    yield ["task", "score", *medians, *BASELINE_TITLES, "margin", "spread", "dev_examples"]
    for row in rows:
        starts = [spread and spread.median for spread in (row.pretrained, row.better_random)]
        numbers = [*starts, *(row.baselines.get(name) for name in BASELINE_TITLES), row.margin, row.spread]
        yield [row.group, row.score, *("" if value is None else f"{value:.4f}" for value in numbers), row.dev_examples]


def _curve_table(phase: Phase) -> Iterable[Sequence[Any]]:
    keys = sorted({key for point in phase.journal for key in point.metrics})
    yield ["step", "timestamp", *keys]
    for point in phase.journal:
        yield [point.step, point.timestamp, *(point.metrics.get(key, "") for key in keys)]
