"""Whole phases of a very small modern network: masked words alone, whatever the dataset holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer, train
from transformers import AutoModelForMaskedLM, AutoTokenizer

from bertline.files import read_json, write_json
from bertline.training.publishing import export_phase

MODEL = {
    "architecture": "modern",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}


def modern_recipe(**changes: Any) -> dict[str, Any]:
    return {**recipe(**changes), "model": MODEL}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset")


@pytest.fixture(scope="module")
def finished(card: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("finished") / "phase"
    train(modern_recipe(steps=40), card, output)
    return output


def test_a_phase_learns_masked_words_and_reports_no_pairs(finished: Path) -> None:
    points = [json.loads(line)["metrics"] for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert points[-1]["held_out/mlm_loss"] < points[0]["held_out/mlm_loss"] - 0.05
    assert points[-1]["train/loss"] == points[-1]["train/mlm_loss"]
    assert not [name for point in points for name in point if "pair" in name]
    assert read_json(finished / "recipe.json")["model"]["architecture"] == "modern"


def test_pairs_of_the_dataset_change_nothing(card: Path, finished: Path, tmp_path: Path) -> None:
    """The same samples in a dataset without pairs give the same weights."""
    without = read_json(card)
    without["settings"]["pair_objective"] = "none"
    write_json(card.parent / "without_pairs.json", without)
    train(modern_recipe(steps=40), card.parent / "without_pairs.json", tmp_path / "phase")
    expected, found = (load_file(folder / "model.safetensors") for folder in (finished, tmp_path / "phase"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_second_phase_continues_from_the_first(card: Path, finished: Path, tmp_path: Path) -> None:
    given = {
        **modern_recipe(steps=1, learning_rate=1e-3, schedule="constant", warmup=0),
        "fingerprint": "b" * 16,
        "initial_weights": {"phase": "a" * 16},
    }
    messages = train(given, card, tmp_path / "next", initial_weights=finished).log.read_text()
    assert "random values" not in messages
    before, after = (load_file(folder / "model.safetensors") for folder in (finished, tmp_path / "next"))
    name = "encoder.layers.1.gated_intermediate.weight"
    assert 0 < (after[name] - before[name]).abs().max() < 0.02


def test_a_finished_phase_is_exported_and_starts_another(card: Path, finished: Path, tmp_path: Path) -> None:
    export_phase(finished, card.parent / "tokenizer.json", tmp_path / "export")
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "export")
    assert type(theirs).__name__ == "ModernBertForMaskedLM"
    encoded = AutoTokenizer.from_pretrained(tmp_path / "export")("word1 word2", return_tensors="pt")
    assert theirs(**encoded).logits.shape == (1, 4, 75)
    given = {**modern_recipe(steps=1), "initial_weights": {"directory": str(tmp_path / "export")}}
    assert "random values" not in train(given, card, tmp_path / "phase").log.read_text()


def test_weights_of_the_other_architecture_are_refused_in_one_line(card: Path, finished: Path, tmp_path: Path) -> None:
    given = {**recipe(steps=1), "fingerprint": "b" * 16, "initial_weights": {"phase": "a" * 16}}
    trainer = Trainer(given, card, tmp_path / "phase", initial_weights=finished)
    assert trainer.finish() == 1
    assert "is missing; start from weights of the same model" in trainer.log.read_text()
    assert "Traceback" not in trainer.log.read_text()
