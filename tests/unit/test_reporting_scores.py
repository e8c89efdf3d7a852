"""Pretrained against random weights, and when a difference counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_runs import write_run

from bertline.reporting.scores import ScoreRow, Spread, score_rows
from bertline.results.records import Finetuning, chosen_on_dev, read_record


def row(pretrained: list[float], random_weights: dict[float, list[float]], baselines: dict[str, float]) -> ScoreRow:
    spreads = {rate: Spread(tuple(values)) for rate, values in random_weights.items()}
    return ScoreRow("squad_v1", "f1", True, Spread(tuple(pretrained)), spreads, baselines)


def test_the_better_learning_rate_has_the_higher_median_not_the_highest_seed() -> None:
    assert row([50.0], {1e-4: [30.0, 31.0, 32.0], 1e-3: [10.0, 20.0, 40.0]}, {}).better_rate == 1e-4


def test_of_equal_medians_the_smaller_learning_rate_is_the_better() -> None:
    assert row([50.0], {1e-3: [40.0], 1e-4: [40.0]}, {}).better_rate == 1e-4


def test_margin_is_between_the_medians_and_spread_is_the_wider_range() -> None:
    compared = row([60.0, 64.0, 62.0], {1e-4: [40.0, 47.0, 41.0]}, {})
    assert compared.margin == pytest.approx(21.0)
    assert compared.spread == pytest.approx(7.0)
    assert compared.helps is True


def test_a_margin_within_the_spread_does_not_count_as_help() -> None:
    assert row([60.0, 64.0, 62.0], {1e-4: [54.0, 61.0, 57.0]}, {}).helps is False
    at_the_spread = row([60.0, 61.0], {1e-4: [59.0, 60.0]}, {})
    assert (at_the_spread.margin, at_the_spread.spread, at_the_spread.helps) == (1.0, 1.0, False)


def test_a_score_at_a_baseline_does_not_count_as_help() -> None:
    assert row([60.0, 61.0, 62.0], {1e-4: [40.0, 41.0, 42.0]}, {"majority": 61.0}).helps is False


@pytest.mark.parametrize(
    ("pretrained", "random_weights"), [([80.0], [50.0]), ([80.0], [50.0, 51.0]), ([80.0, 81.0], [50.0])]
)
def test_a_single_seed_does_not_show_that_pretraining_helps(
    pretrained: list[float], random_weights: list[float]
) -> None:
    compared = row(pretrained, {1e-4: random_weights}, {})
    assert compared.margin is not None
    assert (compared.spread, compared.helps) == (None, None)


def test_without_random_weights_nothing_is_claimed() -> None:
    alone = row([60.0], {}, {"majority": 10.0})
    assert (alone.better_rate, alone.margin, alone.spread, alone.helps) == (None, None, None, None)


def test_rows_have_every_seed_and_baselines_are_at_the_main_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = score_rows(read_record(write_run(tmp_path, tasks=("squad_v1", "rte"))))
    assert [(one.group, one.score, one.primary) for one in rows] == [
        ("squad_v1", "f1", True),
        ("squad_v1", "exact_match", False),
        ("glue/rte", "accuracy", True),
    ]
    assert rows[0].pretrained is not None
    assert sorted(rows[0].pretrained.values) == pytest.approx([78.7, 79.4, 80.1])
    assert {rate: len(spread.values) for rate, spread in rows[0].random_weights.items()} == {5e-4: 3, 2e-3: 3}
    assert rows[0].baselines == {"majority": 3.2, "copy_position": 11.5}
    assert rows[1].baselines == {}


def test_the_p_value_of_a_ranking_is_the_largest_of_its_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = read_record(write_run(tmp_path, tasks=("rte",)))
    values = {1: 0.01, 2: 0.2, 3: 0.03}
    finetunings = [
        replace(one, result=one.result | {"p_value_majority": values[one.seed] if one.start == "pretrained" else 0.9})
        for one in record.finetunings
    ]
    [only] = score_rows(replace(record, finetunings=finetunings))
    assert only.p_values == {"majority": 0.2}


def test_a_fine_tuning_that_is_not_finished_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("rte",))
    Path("results/finetunings/rte-pretrained-0.0005-2/metrics.json").unlink()
    [only] = score_rows(read_record(record))
    assert only.pretrained is not None
    assert len(only.pretrained.values) == 2


@pytest.mark.parametrize(
    ("values", "written"),
    [((70.04,), "70.0"), ((70.0, 72.0, 69.0), "70.0 (69.0..72.0)"), ((-1.25, 3.0), "0.9 (-1.2..3.0)")],
)
def test_spread_is_written_as_median_and_range(values: tuple[float, ...], written: str) -> None:
    assert str(Spread(values)) == written


def finetuning(name: str, score: float | None, start: str = "pretrained") -> Finetuning:
    result = {} if score is None else {"primary": "f1", "scores": {"f1": score}}
    return Finetuning(name, "", Path(), {}, [], score is not None, task="squad_v1", start=start, result=result)


def test_of_a_grid_the_settings_with_the_best_median_on_dev_are_chosen() -> None:
    grid = [
        *(finetuning(f"squad_v1/learning_rate-3e-05/seed{seed}", 70.0 + seed) for seed in (1, 2, 3)),
        *(finetuning(f"squad_v1/learning_rate-5e-05/seed{seed}", score) for seed, score in ((1, 60.0), (2, 99.0))),
        finetuning("squad_v1/learning_rate-5e-05/seed3", 61.0),
        finetuning("squad_v1/learning_rate-1e-04/seed1", None),
    ]
    random = [finetuning("squad_v1/random-weights-0.001/seed1", 90.0, "random")]
    assert chosen_on_dev([*grid, *random]) == [*grid[:3], *random]
    without_grid = [finetuning(f"squad_v1/seed{seed}", 50.0) for seed in (1, 2)]
    assert chosen_on_dev([*without_grid, *random]) == [*without_grid, *random]


def test_of_settings_that_score_the_same_on_dev_the_first_are_chosen() -> None:
    first, second = (
        [finetuning(f"squad_v1/learning_rate-{rate}/seed{seed}", score) for seed, score in ((1, 70.0), (2, 72.0))]
        for rate in ("3e-05", "5e-05")
    )
    assert chosen_on_dev([*first, *second]) == first
    assert chosen_on_dev([*second, *first]) == second
