"""A phase of config/roberta.yaml, made very small: trained, exported, and started again from the export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from synthetic_dataset import recipe, write_dataset
from training_processes import train
from transformers import AutoModelForMaskedLM, AutoTokenizer

from bertline.files import read_json
from bertline.settings.configuration import read_yaml
from bertline.training.publishing import export_phase

ROOT = Path(__file__).parents[2]


def small_recipe(**changes: Any) -> dict[str, Any]:
    """The recipe's phase for a few batches of the synthetic dataset, with more of a learning rate."""
    run = read_yaml(ROOT / "config/roberta.yaml")["runs"]["roberta-large"]
    small = {"sequence_length": 32, "global_batch_size": 16, "steps": 40, "learning_rate": 1e-2, "precision": "fp32"}
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    model = read_json(ROOT / f"config/models/{run['model']}.json") | sizes | {"max_position_embeddings": 64}
    return {**recipe(**run["phases"]["phase1"] | small | changes), "model": model}


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of ten words, which a network learns first."""
    return write_dataset(tmp_path_factory.mktemp("data") / "dataset", words=10)


@pytest.fixture(scope="module")
def finished(card: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("finished") / "phase"
    train(small_recipe(), card, output)
    return output


def test_a_phase_learns_masked_words_and_reports_no_pairs(finished: Path) -> None:
    points = [json.loads(line)["metrics"] for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert points[-1]["held_out/mlm_loss"] < points[0]["held_out/mlm_loss"] - 1
    assert points[-1]["train/loss"] == points[-1]["train/mlm_loss"]
    assert not [name for point in points for name in point if "pair" in name]
    assert read_json(finished / "recipe.json")["model"]["architecture"] == "roberta"


def test_a_finished_phase_is_exported_and_starts_another(card: Path, finished: Path, tmp_path: Path) -> None:
    export_phase(finished, card.parent / "tokenizer.json", tmp_path / "export")
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "export")
    assert type(theirs).__name__ == "RobertaForMaskedLM"
    encoded = AutoTokenizer.from_pretrained(tmp_path / "export")("word1 word2", return_tensors="pt")
    assert theirs(**encoded).logits.shape == (1, 4, 75)
    given = {**small_recipe(steps=1, warmup=0, learning_rate=1e-9), "fingerprint": "b" * 16}
    given["initial_weights"] = {"directory": str(tmp_path / "export")}
    assert "random values" not in train(given, card, tmp_path / "phase").log.read_text()
    before, after = (load_file(folder / "model.safetensors") for folder in (finished, tmp_path / "phase"))
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=1e-7)
