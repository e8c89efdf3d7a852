"""Scores of the pretrained model, compared with the same network from random weights and with trivial baselines."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bertline.fingerprint import canonical_json
from bertline.reporting.published import PUBLISHED_SCORES, Published
from bertline.results.describe import (
    counted,
    is_official,
    number,
    number_in_train,
    number_of_examples,
    score_title,
    task_title,
)
from bertline.results.records import Finetuning, Record, chosen_on_dev

BASELINE_TITLES = {
    "majority": "majority",
    "copy_position": "copied position",
    "bm25": "BM25",
    "candidates": "order of candidates",
}


@dataclass(frozen=True)
class Spread:
    """A score over seeds, in percent."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def width(self) -> float:
        """Difference between the best and the worst seed."""
        return max(self.values) - min(self.values)

    def __str__(self) -> str:
        if len(self.values) == 1:
            return f"{self.median:.1f}"
        return f"{self.median:.1f} ({min(self.values):.1f}..{max(self.values):.1f})"


@dataclass(frozen=True)
class ScoreRow:
    """One score of one task.

    `random_weights` is by learning rate; `baselines` are known for the main score only; `official` is whether the
    development set is the official one, None if that is not known; `published` is None unless it is; `dev_examples` is
    the size of the set, `dev_in_train` the number of its examples with the texts of a training example, and
    `dev_digest`, known for the main score only, that of its examples. `p_values`, by baseline, are those of rankings
    from pretrained weights, the largest over seeds.
    """

    group: str
    score: str
    primary: bool
    pretrained: Spread | None
    random_weights: dict[float, Spread]
    baselines: dict[str, float]
    official: bool | None = None
    published: Published | None = None
    dev_examples: int | None = None
    dev_in_train: int | None = None
    dev_digest: str | None = None
    p_values: dict[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Titles of the task and the score, with the size of the development set."""
        return titled(self.group, self.score, [self.dev_examples])

    @property
    def better_rate(self) -> float | None:
        """Learning rate with the highest median from random weights, the smaller one in case of a tie."""
        rates = sorted(self.random_weights)
        return max(rates, key=lambda rate: self.random_weights[rate].median) if rates else None

    @property
    def better_random(self) -> Spread | None:
        """Scores from random weights at the better learning rate."""
        return None if self.better_rate is None else self.random_weights[self.better_rate]

    @property
    def margin(self) -> float | None:
        """Difference in percentage points between the medians of pretrained weights and of the better random ones."""
        return self.pretrained.median - self.better_random.median if self.pretrained and self.better_random else None

    @property
    def spread(self) -> float | None:
        """Wider of the two ranges over seeds, which the margin has to exceed; None if a start has a single seed."""
        starts = [start for start in (self.pretrained, self.better_random) if start and len(start.values) > 1]
        return max(start.width for start in starts) if len(starts) == 2 else None

    @property
    def helps(self) -> bool | None:
        """Whether the margin exceeds the spread and the pretrained median every baseline; None without a spread."""
        if self.pretrained is None or self.margin is None or self.spread is None:
            return None
        return self.margin > self.spread and all(self.pretrained.median > value for value in self.baselines.values())


def titled(group: str, score: str, sizes: Iterable[int | None]) -> str:
    """Return the titles of a task and a score, with the sizes of the development sets that are known."""
    known = list(dict.fromkeys(size for size in sizes if size is not None))
    size = f" ({', '.join([*(f'{one:,}' for one in known[:-1]), counted(known[-1], 'example')])})" if known else ""
    return f"{task_title(group)} {score_title(score)}{size}"


def score_rows(record: Record) -> list[ScoreRow]:
    """Return a row for each score of each task, the main score first; for a grid, with the settings chosen on dev.

    Unfinished fine-tunings are left out.
    """
    rows = []
    for group, finetunings in record.groups.items():
        finished = [finetuning for finetuning in chosen_on_dev(finetunings) if finetuning.finished]
        if not finished:
            continue
        primary = finished[0].result["primary"]
        for score in sorted(finished[0].result["scores"], key=lambda name: (name != primary, name)):
            rows.append(_row(group, score, primary, finished))
    return rows


def shown_baselines(rows: Sequence[ScoreRow]) -> dict[str, str]:
    """Return the titles of the baselines that any of the rows has, by name."""
    return {name: title for name, title in BASELINE_TITLES.items() if any(name in row.baselines for row in rows)}


def without_published(rows: Sequence[ScoreRow]) -> list[str]:
    """Return a sentence for each reason to show no published scores, with the tasks that it concerns."""
    shown = "No published scores are shown for {}: "
    return _not_official(
        rows,
        f"{shown}their development sets are not the official ones.",
        f"{shown}whether their development sets are the official ones is not known.",
    )


def not_official(rows: Sequence[ScoreRow]) -> list[str]:
    """Return a sentence for the tasks whose development sets are not the official ones, and where that is not known."""
    return _not_official(
        rows,
        "The development sets are not the official ones for {}.",
        "Whether the development sets are the official ones is not known for {}.",
    )


def _not_official(rows: Sequence[ScoreRow], not_official: str, not_known: str) -> list[str]:
    """Return the sentences that apply, with the tasks; only tasks with an official development set count."""
    tasks: dict[bool | None, dict[str, None]] = {}
    for row in rows:
        if (row.group, row.score) in PUBLISHED_SCORES:
            tasks.setdefault(row.official, {})[task_title(row.group)] = None
    sentences = {False: not_official, None: not_known}
    return [text.format(", ".join(tasks[official])) for official, text in sentences.items() if official in tasks]


def seen_in_training(rows: Sequence[ScoreRow]) -> list[str]:
    """Return a sentence for each development set that has texts of training examples."""
    return [
        f"{task_title(row.group)}: {row.dev_in_train:,} of the {row.dev_examples:,} examples of the development set "
        "have the texts of a training example."
        for row in rows
        if row.primary and row.dev_in_train
    ]


def scores_by_step(records: Sequence[Record]) -> dict[str, list[tuple[int, Spread]]]:
    """Return the main score of each task by the step of pretraining, for runs that start from checkpoints of one phase.

    The run of the phase itself counts with the step that it published. Each line is of equal settings of fine-tuning;
    the fine-tunings of several runs from one step are taken together. Keys name the task and, where there are several,
    the phase and the runs; lines of a single step are left out.
    """
    phases = {phase.fingerprint: phase for record in records for phase in record.phases if phase.finished}
    lines: dict[tuple[str, str, str], dict[int, dict[str, float]]] = {}  # the scores of a step by fingerprint
    runs: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        for group, all_of_group in record.groups.items():
            finetunings = [one for one in all_of_group if one.start == "pretrained"]
            chosen = [one for one in chosen_on_dev(finetunings) if one.finished]
            initial = (chosen[0].recipe.get("initial_weights") or {}) if chosen else {}
            if (phase := phases.get(initial.get("phase", ""))) is None:
                continue
            step = initial.get("step", phase.recipe.get("published_step", phase.recipe["settings"]["steps"]))
            primary = chosen[0].result["primary"]
            # Of the whole grid, as far as it has started.
            settings = {canonical_json(one.recipe["settings"]) for one in finetunings if one.recipe}
            key = (f"{task_title(group)} {score_title(primary)}", phase.fingerprint, " ".join(sorted(settings)))
            scores = {one.fingerprint: one.result["scores"][primary] for one in chosen}
            lines.setdefault(key, {}).setdefault(int(step), {}).update(scores)
            runs.setdefault(key, []).append(record.name)
    lines = {key: points for key, points in lines.items() if len(points) > 1}
    several = len({phase for _, phase, _ in lines}) > 1
    titles = {(title, phase, settings): f"{title} of {phase}" if several else title for title, phase, settings in lines}
    repeated = Counter(titles.values())
    return {
        f"{titles[key]} ({', '.join(runs[key])})" if repeated[titles[key]] > 1 else titles[key]: [
            (step, Spread(tuple(scores.values()))) for step, scores in sorted(points.items())
        ]
        for key, points in lines.items()
    }


def _row(group: str, score: str, primary: str, finished: Sequence[Finetuning]) -> ScoreRow:
    pretrained, random_weights = [], dict[float, list[float]]()
    for finetuning in finished:
        value = finetuning.result["scores"][score]
        if finetuning.start == "random":
            random_weights.setdefault(finetuning.result["learning_rate"], []).append(value)
        else:
            pretrained.append(value)
    baselines = finished[0].result.get("baselines", {}) if score == primary else {}
    official = is_official(group, score, finished[0].result)
    return ScoreRow(
        group=group,
        score=score,
        primary=score == primary,
        pretrained=Spread(tuple(pretrained)) if pretrained else None,
        random_weights={rate: Spread(tuple(values)) for rate, values in sorted(random_weights.items())},
        official=official,
        published=PUBLISHED_SCORES.get((group, score)) if official else None,
        dev_examples=number_of_examples(finished[0].result, score),
        dev_in_train=number_in_train(finished[0].result, score),
        dev_digest=finished[0].result.get("digests", {}).get("dev") if score == primary else None,
        baselines={name: float(value) for name, value in sorted(baselines.items()) if value is not None},
        p_values={
            name: max(one.result[f"p_value_{name}"] for one in started)
            for name in baselines
            if (started := [one for one in finished if one.start == "pretrained" and f"p_value_{name}" in one.result])
        },
    )


def unfinished_stages(run: Record) -> str:
    """Describe the unfinished stages of a run, whose scores may be of a part of the seeds; empty for a finished run."""
    left = [
        f"{phase.name} (at step {number(phase.journal[-1].step)})" if phase.journal else phase.name
        for phase in run.phases
        if not phase.finished
    ]
    left += unfinished_tasks(run).values()
    return ", ".join(left if run.dataset.finished else ["the dataset", *left])


def unfinished_tasks(run: Record) -> dict[str, str]:
    """Return the titles of the tasks with unfinished fine-tunings, with the number of these, by the task's group."""
    left = {}
    for group, finetunings in run.groups.items():
        if missing := sum(not finetuning.finished for finetuning in finetunings):
            left[group] = f"{task_title(group)} ({missing} of {counted(len(finetunings), 'fine-tuning')} missing)"
    return left
