"""What jobs get of a plan as files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bertline.files import read_json
from bertline.planning.plan import Plan
from bertline.planning.recipes import recipe_path, write_recipes

PHASE, FINETUNING, DATASET, RUN = "a" * 16, "b" * 16, "c" * 16, "d" * 16


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(tmp_path)
    plan = Plan({"experiment": "e", "sequence_lengths": [128]}, {"$defs": {"files": {}}}, Path("models"))
    plan.corpora["books-1"] = {"name": "books", "settings": {"source": "files", "licence": "none"}}
    entry = {"name": "small", "settings": {"shards": 2}, "corpora": ["books-1"]}
    plan.datasets[DATASET] = {**entry, "fingerprint_without_lengths": "e" * 16}
    plan.phases[PHASE] = {"fingerprint": PHASE, "settings": {"steps": 1}}
    settings = {"learning_rate": 1e-5}
    plan.finetunings[FINETUNING] = {"task": "cola", "seed": 1, "start": "pretrained", "settings": settings}
    finetunings, phases = {"glue/cola/seed1": FINETUNING}, {"phase1": PHASE}
    run = {"name": "first", "fingerprint": RUN, "dataset": DATASET, "phases": phases, "finetunings": finetunings}
    plan.runs["first"] = {**run, "kept": {}, "skipped": {}, "config": {"description": "in words"}}
    return plan


def test_every_phase_finetuning_dataset_and_run_has_its_file(plan: Plan) -> None:
    write_recipes(plan)
    assert read_json(recipe_path(PHASE)) == plan.phases[PHASE]
    assert read_json(recipe_path(FINETUNING)) == plan.finetunings[FINETUNING]
    assert read_json(recipe_path(DATASET))["sources"]["books"]["licence"] == "none"
    assert read_json(recipe_path(RUN))["finetunings"][0]["fingerprint"] == FINETUNING


def test_a_submission_has_a_file_with_its_thousands_of_finetunings(plan: Plan) -> None:
    write_recipes(plan)
    assert not Path(recipe_path(f"{RUN}-submission")).exists()  # nothing predicts the test sets
    keys = {f"glue/cola/seed{seed}": f"{seed:016x}" for seed in range(2, 3002)}
    for key in keys.values():
        settings = {"learning_rate": 1e-5, "predict_test": True}
        entry = {"fingerprint": key, "task": "cola", "seed": 1, "start": "pretrained", "settings": settings}
        plan.finetunings[key] = entry
    plan.runs["first"]["finetunings"] |= keys
    write_recipes(plan)
    assert read_json(recipe_path(f"{RUN}-submission")) == {"finetunings": list(keys.values())}


def test_a_file_is_written_again_only_when_its_content_changed_or_was_lost(plan: Plan) -> None:
    write_recipes(plan)
    for key in (PHASE, FINETUNING, DATASET, RUN):
        os.utime(recipe_path(key), (1, 1))
    plan.runs["first"]["config"]["description"] = "in other words"
    Path(recipe_path(PHASE)).write_text("")  # as after a power cut
    write_recipes(plan)
    kept = [key for key in (PHASE, FINETUNING, DATASET, RUN) if os.stat(recipe_path(key)).st_mtime == 1]
    assert kept == [FINETUNING, DATASET]
    assert json.loads(Path(recipe_path(PHASE)).read_text()) == plan.phases[PHASE]
    assert read_json(recipe_path(RUN))["description"] == "in other words"
