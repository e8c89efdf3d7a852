"""A long journal is thinned for MLflow, and the choice does not change while it grows."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from synthetic_runs import write, write_run

from bertline.results.journal import JournalPoint
from bertline.results.records import Phase
from bertline.tracking import thinning
from bertline.tracking.store import track
from bertline.tracking.thinning import POINTS, thin

STEPS = 50_000


def line(step: int) -> JournalPoint:
    """Logged at every step; one metric comes late, one once, and a held-out loss every 70 steps."""
    metrics = {"train/loss": 9.0 - step / STEPS, "system/cpu_percent": 50.0}
    if step > STEPS // 2:
        metrics["train/late"] = 1.0
    if step == 1:
        metrics["train/micro_batch_tokens"] = 2048.0
    if step % 70 == 0:
        metrics["held_out/mlm_loss"] = 3.0
    return JournalPoint(step, step, metrics)


def phase(journal: list[JournalPoint], *, steps: int = STEPS, finished: bool = False) -> Phase:
    return Phase("phase1", "f", Path("phase1"), {"settings": {"steps": steps}}, journal, finished)


def chosen(training: Phase) -> list[tuple[int, str]]:
    lines = zip(training.journal, thin(training), strict=True)
    return [(line.step, key) for line, metrics in lines for key in metrics]


WHOLE = phase([line(step) for step in range(1, STEPS + 1)])


def test_a_long_journal_is_thinned_evenly_and_keeps_evaluations_and_both_ends() -> None:
    found = chosen(replace(WHOLE, finished=True))
    steps = [step for step, key in found if key == "train/loss"]
    assert POINTS <= len(steps) <= POINTS + 1
    assert (steps[0], steps[-1]) == (1, STEPS)
    assert max(after - before for before, after in itertools.pairwise(steps)) <= STEPS / POINTS
    counts = Counter(key for _, key in found)
    assert counts["held_out/mlm_loss"] == STEPS // 70
    assert counts["train/micro_batch_tokens"] == 1
    assert (STEPS // 2 + 1, "train/late") in found


def test_the_last_step_is_chosen_also_within_an_interval() -> None:
    steps = 45_000  # the last interval of 23 steps begins at 44,988
    found = chosen(phase([line(step) for step in range(1, steps + 1)], steps=steps))
    assert [step for step, key in found if key == "train/loss"][-2:] == [44_988, steps]


@pytest.mark.parametrize("length", [0, 1, 2, 25, 26, 69, 70, 1000, 24_999, 25_003, 49_999, 50_000])
def test_what_was_chosen_stays_chosen_while_the_journal_grows(length: int) -> None:
    before = chosen(phase(WHOLE.journal[:length]))
    for whole in (WHOLE, replace(WHOLE, finished=True)):
        assert chosen(whole)[: len(before)] == before


@pytest.mark.parametrize("steps", [45_000, 50_000, 112_590])
def test_what_was_chosen_before_a_training_is_finished_stays_chosen(steps: int) -> None:
    """Its journal is complete for a while before its recipe is."""
    journal = [line(step) for step in range(10, steps + 1, 10)]
    before = chosen(phase(journal, steps=steps))
    assert chosen(phase(journal, steps=steps, finished=True)) == before


@pytest.mark.parametrize(("steps", "every"), [(1000, 1), (POINTS, 1), (7038, 10), (200_000, 100)])
def test_a_journal_with_few_points_is_sent_whole(steps: int, every: int) -> None:
    journal = [line(step) for step in range(every, steps + 1, every)]
    assert chosen(phase(journal, steps=steps)) == [(one.step, key) for one in journal for key in one.metrics]


def test_a_journal_that_grows_is_sent_thinned_once_and_to_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(thinning, "POINTS", 90)
    steps, uri = 450, f"sqlite:///{tmp_path / 'mlflow.db'}"
    record = write_run(tmp_path, tasks=(), steps=steps, every=1)
    write(record, (content := json.loads(record.read_text())) | {"phases": content["phases"][:1]})
    folder = Path("results/phases/phase1")
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").rename("kept.jsonl")
    (folder / "checkpoints").mkdir()
    (folder / "recipe.json").rename(folder / "checkpoints/recipe.json")
    for step in (1, 2, 164, 166, 449):
        (folder / "checkpoints/journal.jsonl").write_text("".join(lines[:step]))
        write(folder / "checkpoints/durable.json", {"step": step})
        track([record], uri)
        assert track([record], uri)["sent"] == 0
    Path("kept.jsonl").rename(folder / "metrics.jsonl")
    (folder / "checkpoints/recipe.json").rename(folder / "recipe.json")
    assert track([record], uri)["sent"] > 0
    client = MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("bertline").experiment_id])
    (run,) = (run for run in runs if run.data.tags["bertline.stage"] == "phase1")
    histories = {key: [one.step for one in client.get_metric_history(run.info.run_id, key)] for key in run.data.metrics}
    assert histories["train/mlm_loss"] == [1, *range(5, steps + 1, 5)]
    assert histories["held_out/mlm_loss"] == [100, 200, 300, 400]
    (root,) = (run for run in runs if run.data.tags["bertline.stage"] == "run")
    losses = client.get_metric_history(root.info.run_id, "by_samples/mlm_loss")
    assert [one.step for one in losses] == [256 * step for step in histories["train/mlm_loss"]]
