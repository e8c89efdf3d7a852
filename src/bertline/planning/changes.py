"""What differs between a plan and the last recipe of its runs, which explains why something runs again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from bertline.files import Json, one_line_damage, read_object
from bertline.planning.finetunings import key_of_task, tasks_of
from bertline.planning.plan import Plan, record
from bertline.results import paths
from bertline.results.describe import flatten
from bertline.results.records import record_in
from bertline.settings.configuration import definition, strip_defaults

ABSENT = "-"
OR_VERSION = "or the version of a stage"


def changes(plan: Plan) -> list[list[str]]:
    """Return a row for each setting that differs from its run's last record: its path, and its values then and now.

    A phase or a task that one of the two lacks is one row. Where no setting differs, a row says what else does: a
    corpus, a dataset, a phase or a task.
    """
    rows: list[list[str]] = []
    for name in plan.runs:
        last, now = record_in(Path(paths.RUN.format(run=name))), record(plan, name)
        if last is None:
            continue
        with one_line_damage(last):
            then = read_object(last, "fingerprint", "config")
            if then["fingerprint"] == now["fingerprint"]:
                rows += _differences(_of_cards(then), _of_cards(now), f"runs.{name}.")
                continue
            found = [
                *_differences({"experiment": then.get("experiment")}, {"experiment": now["experiment"]}, ""),
                *_of_run(then["config"], now["config"], f"runs.{name}."),
                *(_of_dataset(plan, then["dataset"], now["dataset"]) if then.get("dataset") and now["dataset"] else []),
            ]
            rows += found or [[what, "", ""] for what in _not_of_settings(plan, then, now)]
    return rows


def _of_cards(record: Json) -> Json:
    """Return the settings of a run that only cards and reports have, and no fingerprint."""
    return {key: record[key] for key in ("description", "model_card") if record.get(key)}


def _of_run(then: Json, now: Json, prefix: str) -> Iterator[list[str]]:
    """Yield the rows of a run's settings, without those of a phase or a task that one of the two lacks."""
    before, after = _parts(then), _parts(now)
    for part in sorted(before - after):
        yield [prefix + part, "in the run", ABSENT]
    for part in sorted(after - before):
        yield [prefix + part, ABSENT, "in the run"]
    whole = [f"{prefix}{part}." for part in before ^ after]
    for row in _differences(then, now, prefix):
        key = f"{row[0]}."
        if not any(key.startswith(part) or part.startswith(key) for part in whole):  # also `finetune` of no task
            yield row


def _parts(run: Json) -> set[str]:
    """Return the keys of a run's phases and tasks."""
    tasks = (key_of_task(task) for task, _ in tasks_of(run.get("finetune", {})))
    return {*(f"phases.{phase}" for phase in run.get("phases", ())), *(f"finetune.{task}" for task in tasks)}


def _not_of_settings(plan: Plan, then: Json, now: Json) -> list[str]:
    """Return what differs between two records of the same settings: tasks without data, and the first stage."""
    before, after = _left_out(then), _left_out(now)
    found = [
        *(f"{task} is left out: its data is missing" for task in sorted(after - before)),
        *(f"{task} was left out: its data was missing" for task in sorted(before - after)),
        *_of_stages(plan, then, now, {*before, *after}),
    ]
    return found or [f"runs.{now['run']}: {OR_VERSION.removeprefix('or ')}"]


def _left_out(record: Json) -> set[str]:
    """Return the keys of the tasks that are skipped because their data is missing."""
    return {line.partition(" is left out: ")[0] for line in record.get("skipped", ())}


def _of_stages(plan: Plan, then: Json, now: Json, left_out: Collection[str]) -> list[str]:
    """Return the first stage that differs; of fine-tunings all tasks but those that are or were left out."""
    if now["dataset"] and then["dataset"]["fingerprint"] != now["dataset"]["fingerprint"]:
        before = then["dataset"]["corpora"]
        corpora = [plan.corpora[key]["name"] for key in now["dataset"]["corpora"] if key not in before]
        if corpora:
            return [f"corpora.{corpus}: another input file, {OR_VERSION}" for corpus in corpora]
        return [f"datasets.{plan.datasets[now['dataset']['fingerprint']]['name']}: another input file, {OR_VERSION}"]
    where = f"runs.{now['run']}"
    for phase in _unlike(then["phases"], now["phases"]):
        return [f"{where}.phases.{phase['name']}: initial weights, {OR_VERSION}"]  # later ones begin with its weights
    tasks = dict.fromkeys(finetuning["task"] for finetuning in _unlike(then["finetunings"], now["finetunings"]))
    changed = [task for task in tasks if f"{where}.finetune.{key_of_task(task)}" not in left_out]
    return [f"{where}.finetune: evaluation data of {task}, initial weights, {OR_VERSION}" for task in changed]


def _unlike(then: list[Json], now: list[Json]) -> list[Json]:
    """Return the entries that are not among those of an earlier record."""
    before = {entry["fingerprint"] for entry in then}
    return [entry for entry in now if entry["fingerprint"] not in before]


def _of_dataset(plan: Plan, then: Json, now: Json) -> Iterator[list[str]]:
    card, entry = Path(then["path"], paths.CARD), plan.datasets[now["fingerprint"]]
    if then["fingerprint"] == now["fingerprint"] or "settings" not in entry or not card.exists():
        return
    with one_line_damage(card):
        described = read_object(card)
        lengths = [list(map(int, described["sequence_lengths"])), plan.config["sequence_lengths"]]
        then_and_now = [{"sequence_lengths": sorted(of_dataset)} for of_dataset in lengths]
        yield from _differences(then_and_now[0], then_and_now[1], "")
        yield from _differences(described.get("settings", {}), entry["settings"], f"datasets.{entry['name']}.")
        before = {corpus["name"]: corpus.get("settings", {}) for corpus in described["corpora"]}
    for corpus in (plan.corpora[key] for key in entry["corpora"]):
        # As cards have them, without defaults.
        chosen = strip_defaults(corpus["settings"], definition(plan.schema, corpus["settings"]["source"]), plan.schema)
        yield from _differences(before.get(corpus["name"], {}), chosen, f"corpora.{corpus['name']}.")


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str) -> Iterator[list[str]]:
    before, after = flatten(then, prefix), flatten(now, prefix)
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield [key, before.get(key, ABSENT), after.get(key, ABSENT)]
