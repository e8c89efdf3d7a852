"""What a plan says has changed since the last record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_helpers import CONFIG, PHASE, ROOT, changed, inputs, plan_of

from bertline.files import write_json
from bertline.planning.changes import changes
from bertline.planning.plan import Plan, record

assert inputs  # the fixture


def write_record_and_card(plan: Plan) -> None:
    """Write what a run of CONFIG leaves."""
    ((key, dataset),) = plan.built_datasets.items()
    corpora = [{"name": name, "settings": settings} for name, settings in CONFIG["corpora"].items()]
    card = {"settings": dataset["settings"], "corpora": corpora, "sequence_lengths": {"128": {}, "512": {}}}
    write_json(plan.dataset_file(key, "dataset.json"), card)
    fingerprint = plan.runs["first"]["fingerprint"]
    written = Path(f"results/runs/first/record-{fingerprint}.json")
    write_json(written, record(plan, "first"))
    written.with_name("record.json").symlink_to(written.name)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"runs__first__finetune__squad_v1__seeds": 3}, [["runs.first.finetune.squad_v1.seeds", "2", "3"]]),
        ({"datasets__both__shards": 7}, [["datasets.both.shards", "2", "7"]]),
        ({"corpora__books__separator": "***"}, [["corpora.books.separator", "-", "***"]]),
        ({"runs__first__description": "in cards"}, [["runs.first.description", "-", "in cards"]]),
        ({"runs__first__model_card": {"language": ["en"]}}, [["runs.first.model_card.language", "-", '["en"]']]),
        ({"runs__first__finetune": {}}, [["runs.first.finetune.squad_v1", "in the run", "-"]]),
        ({"runs__first__phases__phase3": PHASE}, [["runs.first.phases.phase3", "-", "in the run"]]),
        ({"experiment": "another"}, [["experiment", "bertline", "another"]]),
        ({"sequence_lengths": [128, 256, 512]}, [["sequence_lengths", "[128, 512]", "[128, 256, 512]"]]),
    ],
    ids=str,
)
def test_a_plan_shows_what_has_changed_since_the_last_record(change: dict, expected: list) -> None:
    write_record_and_card(plan_of(CONFIG))
    assert changes(plan_of(changed(**change))) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("books/one.txt", ["corpora.books: another input file, or the version of a stage"]),
        ("vocab.txt", ["datasets.both: another input file, or the version of a stage"]),
        ("weights/model.safetensors", ["runs.first.phases.phase1: initial weights, or the version of a stage"]),
        (
            "dev.json",
            ["runs.first.finetune: evaluation data of squad_v1, initial weights, or the version of a stage"],
        ),
    ],
)
def test_a_changed_file_is_no_changed_setting_and_its_stage_is_named(file: str, expected: list[str]) -> None:
    Path("vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    Path("weights").mkdir()
    network = json.loads((ROOT / "config/models/bert-tiny.json").read_text())
    Path("weights/config.json").write_text(json.dumps({"vocab_size": 6, **network}))
    Path("weights/model.safetensors").write_text("{}")
    config = changed(datasets__both__tokenizer={"file": "vocab.txt"})
    config["runs"]["first"]["phases"]["phase1"]["initial_weights"] = {"directory": "weights"}
    assert changes(plan_of(config)) == []  # there is no record yet
    write_record_and_card(plan_of(config))
    assert changes(plan_of(config)) == []
    # The vocabulary keeps its size, which is that of the weights.
    Path(file).write_text(Path(file).read_text().removesuffix("a\n") + "b\n")
    assert changes(plan_of(config)) == [[what, "", ""] for what in expected]


def test_a_task_whose_data_went_away_or_came_back_is_named() -> None:
    config = changed(evaluation__squad_v2=CONFIG["evaluation"]["squad_v1"], runs__first__finetune__squad_v2={})
    write_record_and_card(plan_of(config))
    Path("dev.json").rename("moved.json")
    moved, task = plan_of(config), "runs.first.finetune.squad_v"
    assert changes(moved) == [[f"{task}{version} is left out: its data is missing", "", ""] for version in (1, 2)]
    Path("results/runs/first/record.json").unlink()
    write_record_and_card(moved)
    assert changes(moved) == []
    Path("moved.json").rename("dev.json")
    assert changes(plan_of(config)) == [
        [f"{task}{version} was left out: its data was missing", "", ""] for version in (1, 2)
    ]
