"""The choice among fine-tunings: the best model stays, the others are deleted unless another choice needs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertline.console import BertlineError
from bertline.files import Recipe
from bertline.planning.plan import Plan
from bertline.planning.pruning import prunable
from bertline.results import kept
from bertline.results.kept import keep_models, missing_models


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def finish(name: str, score: float, *, with_model: bool = True) -> None:
    folder = Path("results/finetunings", name)
    (folder / "huggingface").mkdir(parents=True)
    (folder / "huggingface/model.safetensors").write_text("weights")
    if not with_model:
        (folder / "huggingface/model.safetensors").unlink()
        (folder / "huggingface").rmdir()
    for file in ("metrics.jsonl", "recipe.json"):
        (folder / file).write_text("{}")
    (folder / "metrics.json").write_text(json.dumps({"scores": {"f1": score, "accuracy": 0}, "primary": "f1"}))


def choice_of(*finetunings: str, keep: str = "best", name: str = "one", **shared: list[str]) -> Recipe:
    return Recipe({"fingerprint": name, "keep": keep, "finetunings": list(finetunings), "shared": shared})


def models() -> set[str]:
    return {path.parent.name for path in Path("results/finetunings").glob("*/huggingface")}


def test_the_best_stays_and_the_first_of_equals() -> None:
    for name, score in {"a": 50.0, "b": 70.0, "c": 70.0}.items():
        finish(name, score)
    keep_models(choice_of("a", "b", "c"))
    assert models() == {"b"}
    assert Path("results/kept/one/model/model.safetensors").read_text() == "weights"
    choice = json.loads(Path("results/kept/one/choice.json").read_text())
    assert choice == {"best": "b", "kept": ["b"], "scores": {"a": 50.0, "b": 70.0, "c": 70.0}}
    assert not missing_models(choice_of("a", "b", "c"))


def test_all_or_none_stay_on_request() -> None:
    finish("a", 50)
    finish("b", 60)
    keep_models(choice_of("a", "b", keep="all"))
    assert models() == {"a", "b"}
    keep_models(choice_of("a", "b", keep="none", name="two"))
    assert models() == {"a", "b"}  # the first choice keeps them
    finish("c", 10)
    keep_models(choice_of("c", keep="none", name="three"))
    assert models() == {"a", "b"}
    assert not Path("results/kept/three/model").exists()


def test_a_model_stays_until_the_last_choice_in_which_it_takes_part() -> None:
    for name, score in {"a": 50.0, "b": 60.0, "c": 10.0}.items():
        finish(name, score)
    keep_models(choice_of("a", "b", a=["two"]))
    assert models() == {"a", "b", "c"}
    keep_models(choice_of("a", "c", name="two", a=["one"]))
    assert models() == {"a", "b"}


def test_a_model_that_a_choice_finishing_at_the_same_time_keeps_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, score in {"a": 50.0, "b": 60.0, "c": 90.0}.items():
        finish(name, score)
    one = choice_of("a", "b", "c", a=["two"], b=["two"])
    two = choice_of("a", "b", name="two", a=["one"], b=["one"])
    waiting = [two]

    def let_the_other_finish(read: Callable[..., Any]) -> Callable[..., Any]:
        """Make the other choice right after the first time that something is read."""

        def read_and_wait(*given: Any) -> Any:
            found = read(*given)
            if waiting:
                keep_models(waiting.pop())
            return found

        return read_and_wait

    monkeypatch.setattr(kept, "kept_by_any", let_the_other_finish(kept.kept_by_any))
    monkeypatch.setattr(kept, "read_choice", let_the_other_finish(kept.read_choice))
    keep_models(one)
    assert not waiting
    assert models() >= {"b", "c"}
    assert Path("results/kept/two/model/model.safetensors").exists()


def test_a_deleted_model_that_wins_is_one_line_and_requested_again() -> None:
    finish("a", 50, with_model=False)
    finish("b", 60)
    finish("c", 70, with_model=False)
    recipe = choice_of("a", "b", "c")
    assert missing_models(recipe) == [Path("results/finetunings/c/huggingface")]
    with pytest.raises(BertlineError, match=r"finetunings/c/huggingface does not exist: .* run `snakemake finetune`"):
        keep_models(recipe)
    assert models() == {"b"}
    assert not Path("results/kept/one").exists()


def test_an_unfinished_fine_tuning_is_one_line() -> None:
    finish("a", 50)
    with pytest.raises(BertlineError, match="finetunings/b is not finished; ask snakemake for `finetune`"):
        keep_models(choice_of("a", "b"))


def test_what_no_choice_keeps_is_prunable_once_every_choice_is_made(tmp_path: Path) -> None:
    for name, score in {"a": 50.0, "b": 60.0}.items():
        finish(name, score)
    plan = Plan({}, {}, Path())
    plan.kept["one"] = choice_of("a", "b")
    assert prunable(plan) == []
    keep_models(choice_of("a", "b", a=["never made"]))
    assert [entry.path for entry in prunable(plan)] == [Path("results/finetunings/a/huggingface")]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=6), st.integers(0, 5))
def test_a_choice_after_the_missing_models_are_trained_always_finds_the_best(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, bool]], finished: int
) -> None:
    """Whichever of them are finished, whichever models were deleted before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("choice"))
        names = [f"seed{index}" for index in range(len(entries))]
        for name, (score, with_model) in list(zip(names, entries, strict=True))[:finished]:
            finish(name, score, with_model=with_model)
        recipe = choice_of(*names)
        for model in missing_models(recipe):
            model.mkdir()
        for name, (score, _) in list(zip(names, entries, strict=True))[finished:]:
            finish(name, score)
        keep_models(recipe)
        best = max(range(len(entries)), key=lambda index: entries[index][0])
        assert models() == {names[best]}
