"""The recipes for Japanese, Thai and Latgalian, with less of everything, on real text of these languages."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
import yaml
from snakemake_runs import ROOT, copy_workflow, run_snakemake

sys.path.insert(0, str(ROOT / "tests/e2e"))
import real_input

pytestmark = pytest.mark.slow
MODEL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def documents_of(test_data: Path, language: str) -> list[str]:
    return (test_data / f"multilingual/{language}.txt").read_text().strip().split("\n\n")


def trained(folder: Path, config: dict[str, Any]) -> tuple[dict[str, Any], Path]:
    """Run a recipe with less text, a small network and few steps; return its data card and its exported model."""
    ((name, run),) = config["runs"].items()
    run["model"] = MODEL
    run["phases"] = {"phase1": {**run["phases"]["phase1"], "global_batch_size": 8, "steps": 3, "precision": "fp32"}}
    (dataset,) = config["datasets"].values()
    dataset["shards"] = 1
    config["sequence_lengths"] = [128]
    (folder / "small.yaml").write_text(yaml.safe_dump(config))
    made = folder / f"results/runs/{name}"
    run_snakemake(folder, "pretrain", "--profile", "profiles/local", "--configfile", "small.yaml")
    points = [json.loads(line)["metrics"] for line in (made / "phase1/metrics.jsonl").read_text().splitlines()]
    assert any("train/loss" in point for point in points)
    card, export = json.loads((made / "dataset/dataset.json").read_text()), made / "export"
    return card, export


def recipe(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / f"config/{name}.yaml").read_text())
    return config


def test_japanese(tmp_path: Path, test_data: Path) -> None:
    folder, config = copy_workflow(tmp_path / "japanese"), recipe("japanese")
    texts = folder / "resources/japanese"
    texts.mkdir(parents=True)
    japanese = [text.replace("\n", "") for text in documents_of(test_data, "ja")]
    for number, text in enumerate([*japanese, *documents_of(test_data, "en")[:5]]):
        (texts / f"{number:03d}.txt").write_text(text)
    dataset = config["datasets"]["japanese"]
    dataset["sample"] = {"documents": 300}
    dataset["tokenizer"]["vocab_size"] = 3000
    card, export = trained(folder, config)
    (corpus,) = card["corpora"]
    assert corpus["dropped"]["language_en"] == 5
    assert corpus["documents"] == 300
    assert corpus["removed"]["sampled_out"] > 20
    assert corpus["kept"] == 300 + sum(corpus["removed"].values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    text = japanese[0]
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]).replace("[UNK]", "") in text
    assert card["unknown_characters"] < 0.05 * card["characters"]


def test_thai(tmp_path: Path, test_data: Path) -> None:
    folder, config = copy_workflow(tmp_path / "thai"), recipe("thai")
    texts = folder / "resources/thai"
    texts.mkdir(parents=True)
    thai = documents_of(test_data, "th")
    (texts / "all.txt").write_text("\n\n".join(thai) + "\n")
    dataset = config["datasets"]["thai"]
    dataset["tokenizer"]["vocab_size"] = 2000
    card, export = trained(folder, config)
    assert card["corpora"][0]["read"] == len(thai)
    assert card["unknown_characters"] < 0.001 * card["characters"]
    assert card["stripped_characters"] == 0
    # Less than half a token a character: words are found, not letters.
    assert card["text_tokens"] < 0.5 * card["characters"]
    sentence = max(thai[0].split("\n"), key=len)
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    ids = tokenizer(sentence, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == " ".join(sentence.split())


def test_latgalian(tmp_path: Path, test_data: Path) -> None:
    folder, config = copy_workflow(tmp_path / "latgalian"), recipe("latgalian")
    real_input.make_mirror(test_data, folder / "mirror")
    config |= {"contact": "test@example.org", "mirrors": ["mirror"]}
    config["corpora"]["wikipedia"]["dump"] = real_input.DUMP
    dataset = config["datasets"]["latgalian"]
    dataset["tokenizer"]["vocab_size"] = 2000
    card, export = trained(folder, config)
    (corpus,) = card["corpora"]
    others = {reason: count for reason, count in corpus["dropped"].items() if reason.startswith("language_")}
    assert 0 < sum(others.values()) < 0.1 * corpus["kept"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    # Marks of letters stay.
    assert tokenizer.decode(
        tokenizer("Latgolys kulturys viesture, aļ ā", add_special_tokens=False)["input_ids"]
    ).endswith("ā")
