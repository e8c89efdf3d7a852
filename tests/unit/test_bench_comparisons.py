"""The comparisons of bench/ that train several networks: their arguments, and how they divide the steps."""

from __future__ import annotations

import importlib
import json
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from cyclopts import CoercionError

from bertline.command_line import command_line
from bertline.console import BertlineError

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def precision(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, whose trainings have as losses the numbers of their steps, in bf16 and of other seeds 1 more."""
    monkeypatch.syspath_prepend(BENCH)
    module = importlib.import_module("precision")

    def train(recipe: dict[str, Any], *_: object) -> list[float]:
        more = recipe["seed"] - 1 + (recipe["settings"]["precision"] == "bf16")
        return [float(step + more) for step in range(1, recipe["settings"]["steps"] + 1)]

    monkeypatch.setattr(module, "train", train)
    monkeypatch.setattr(module, "open_training_data", lambda *_: None)
    # The real one sets variables of this process.
    monkeypatch.setattr(module, "group_of_one", lambda _: nullcontext(SimpleNamespace(device=torch.device("cpu"))))
    return module


def test_tenths_of_any_number_of_steps(precision: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    precision.main(Path("dataset.json"), steps=25, seeds=(1, 2), threads=1)
    *_, before, last, result = capsys.readouterr().out.splitlines()
    assert before.split()[:2] == ["22", "21.5"]
    assert last.split()[:2] == ["25", "24"]
    found = json.loads(result)
    assert found["last_tenth_nats"] == {"fp32, seed 1": 24, "bf16, seed 1": 25, "fp32, seed 2": 25, "bf16, seed 2": 26}
    assert found["bf16_minus_fp32"] == {"1": 1, "2": 1}
    assert found["deviation_between_seeds"] == pytest.approx(0.5**0.5, abs=1e-4)


def test_one_seed_has_no_deviation(precision: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    precision.main(Path("dataset.json"), steps=20, seeds=(1,), threads=1)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["deviation_between_seeds"] is None


def test_fewer_steps_than_tenths_are_refused_before_the_training(precision: ModuleType) -> None:
    with pytest.raises(BertlineError, match="--steps 9: give 10 or more"):
        precision.main(Path("dataset.json"), steps=9)


def test_an_unknown_optimizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCH)
    module = importlib.import_module("optimizers")
    app = command_line(module.main, "")
    with pytest.raises(CoercionError, match='Invalid value "lmab" for --only'):
        app.parse_args(["no.json", "--only", "lmab"])
    for name in module.VARIANTS:
        assert app.parse_args(["no.json", "--only", name, "adamw"])[1].arguments["only"] == (name, "adamw")
