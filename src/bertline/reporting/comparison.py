"""Comparison of several runs: differing settings, and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bertline.reporting.scores import ScoreRow, score_rows, titled
from bertline.results import describe
from bertline.results.curves import cost_of, curve
from bertline.results.describe import flatten
from bertline.results.records import Record

Rows = list[list[str]]
ABSENT = "–"
MAX_COLUMNS = 4


def differing_settings(runs: Sequence[Record]) -> Rows:
    """Return a row for each setting that differs between runs: its dotted key, and its value in each run.

    Settings of data are compared between runs whose dataset has a card. Cards leave out corpora's defaults.
    """
    configured = [flatten({key: value for key, value in run.config.items() if key != "description"}) for run in runs]
    of_data = [describe.settings_of_data(run.dataset.card) if run.dataset.card else None for run in runs]
    return sorted([*_differences(configured), *_differences(of_data)])


def _differences(flat: Sequence[Mapping[str, str] | None]) -> Iterator[list[str]]:
    """Yield a row for each key whose values differ; what is None has no part in it."""
    known = [settings for settings in flat if settings is not None]
    for key in {key for settings in known for key in settings}:
        if len({settings.get(key, ABSENT) for settings in known}) > 1:
            yield [key, *((settings or {}).get(key, ABSENT) for settings in flat)]


def as_table(runs: Sequence[Record], rows: Rows) -> Rows:
    """Return rows under a header of the runs' names, transposed for many runs, as a page is longer than wide."""
    table = [["", *(run.name for run in runs)], *rows]
    return table if len(runs) <= MAX_COLUMNS else [list(column) for column in zip(*table, strict=True)]


def outcomes(runs: Sequence[Record]) -> Rows:
    """Return a row for each quantity that compares runs: its name, and its value in each run."""
    rows = [
        ["tokens seen", *(_tokens(run) for run in runs)],
        ["time in steps", *(_time(run) for run in runs)],
        _held_out(runs),
    ]
    tables = [{(row.group, row.score): row for row in score_rows(run) if row.primary} for run in runs]
    for group, score in dict.fromkeys(key for table in tables for key in table):
        found = [table.get((group, score)) for table in tables]
        cells = [str((row and row.pretrained) or ABSENT) for row in found]
        rows.append([_score_name(group, score, [row for row in found if row]), *cells])
    return rows


def _score_name(group: str, score: str, rows: Sequence[ScoreRow]) -> str:
    """Return the name of a row of scores, which says if they are of other development sets, as far as that is known."""
    sizes, digests = [row.dev_examples for row in rows], [row.dev_digest for row in rows]
    name = titled(group, score, sizes)
    if len({*sizes} - {None}) < 2 and len({*digests} - {None}) < 2:
        return name
    return f"{name}; not comparable: the development sets are others"


def _tokens(run: Record) -> str:
    places, _ = curve(run.phases, "train/tokens")
    return f"{places[-1].tokens:,.0f}" if places else ABSENT


def _time(run: Record) -> str:
    places, _ = curve(run.phases, "train/tokens")
    cost = cost_of(run.phases)
    if not places:
        return ABSENT
    hours = describe.duration(3600 * places[-1].hours)
    # The cost is that of finished phases, the hours of all.
    finished = all(phase.finished for phase in run.phases)
    of_all = describe.duration(3600 * cost.process_hours) if cost and finished else hours
    return hours if of_all == hours else f"{hours} ({of_all} of all ranks)"


def _held_out(runs: Sequence[Record]) -> list[str]:
    """Return the row of the held-out losses of the last evaluated phases.

    Its name says if these were measured on samples of other texts, vocabularies or lengths.
    """
    losses, samples = [], set()
    for run in runs:
        evaluated = [phase for phase in run.phases if phase.held_out("mlm_loss") is not None]
        losses.append(f"{evaluated[-1].held_out('mlm_loss'):.3f}" if evaluated else ABSENT)
        recipes = [phase.recipe for phase in evaluated[-1:] if phase.recipe]
        samples |= {(recipe["settings"]["sequence_length"], recipe.get("dataset_digest")) for recipe in recipes}
    name = "held-out loss (nats)"
    return [name if len(samples) < 2 else f"{name}; not comparable: the samples are others", *losses]
