"""A configuration, its input files, and plans of changed ones, for tests of planning."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from bertline.files import write_json
from bertline.planning.plan import Plan
from bertline.planning.resolve import make_plan

ROOT = Path(__file__).parents[2]

PHASE = {"sequence_length": 128, "global_batch_size": 8, "steps": 10, "learning_rate": 0.001}
CONFIG = {
    "corpora": {
        "wikipedia": {"source": "wikimedia", "language": "ltg", "dump": "20260101"},
        "books": {"source": "files", "paths": ["books/*.txt"]},
    },
    "mirrors": ["mirror"],
    "datasets": {
        "both": {"corpora": ["wikipedia", "books"], "shards": 2, "tokenizer": {"train": "wordpiece", "vocab_size": 500}}
    },
    "evaluation": {"squad_v1": {"train": "train.json", "dev": "dev.json"}},
    "runs": {
        "first": {
            "dataset": "both",
            "model": "bert-tiny",
            "phases": {"phase1": PHASE, "phase2": {**PHASE, "sequence_length": 512}},
            "finetune": {"squad_v1": {"seeds": 2, "random_weights": [0.001]}},
        }
    },
}


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    (tmp_path / "books/one.txt").write_text("One book.")
    (tmp_path / "train.json").write_text("{}")
    (tmp_path / "dev.json").write_text("{}")


def plan_of(config: dict) -> Plan:
    return make_plan(config, ROOT / "config/config.schema.yaml", ROOT / "config/models")


def changed(**settings: object) -> dict:
    """CONFIG with keys such as runs__first__seed replaced."""
    config = copy.deepcopy(CONFIG)
    for key, value in settings.items():
        *parents, last = key.split("__")
        part = config
        for parent in parents:
            part = part[parent]
        part[last] = value
    return config


def finished_dataset(path: Path, *, static_masks: bool) -> dict:
    """A configuration with nothing but somebody's finished dataset."""
    card = {"fingerprint": "e" * 16, "static_masks": static_masks, "sequence_lengths": {"128": {}}}
    write_json(path / "dataset.json", {**card, "corpora": [{"name": "books"}]})
    runs = {"theirs": {"dataset": "theirs", "model": "bert-tiny", "phases": {"phase1": PHASE}}}
    return {"datasets": {"theirs": {"path": str(path)}}, "runs": runs}


def with_tasks(evaluation: dict, finetune: dict) -> dict:
    return changed(evaluation=evaluation, runs__first__finetune=finetune)


def make_files(*paths: str) -> None:
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(path)


SPLITS = ("train", "dev")
