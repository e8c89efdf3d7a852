"""Fine-tunings in the plan: grids, and settings without effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_helpers import CONFIG, ROOT, changed, inputs, make_files, plan_of, with_tasks
from roberta_folder import train_vocabulary

from bertline.console import BertlineError
from bertline.fingerprint import STAGE_VERSIONS

assert inputs  # the fixture


@pytest.mark.parametrize(
    "settings",
    [
        {"max_sequence_length": 128},
        {"doc_stride": 317},
        {"max_sequence_length": 64, "max_query_length": 16, "doc_stride": 45},
    ],
)
def test_windows_of_a_context_that_would_not_overlap_are_one_line(settings: dict) -> None:
    stride = settings.get("doc_stride", 128)
    with pytest.raises(
        BertlineError,
        match=rf"^configuration: runs\.first\.finetune\.squad_v1\.doc_stride: given {stride}, but .* one below",
    ):
        plan_of(changed(runs__first__finetune={"squad_v1": settings}))
    assert plan_of(changed(runs__first__finetune={"squad_v1": {**settings, "doc_stride": 44}})).finetunings


def test_windows_overlap_next_to_the_separators_of_the_dataset_s_tokenizer() -> None:
    """RoBERTa's puts two of them between two texts, so a window has one token less of the context."""
    train_vocabulary().save_pretrained("roberta")
    config = changed(
        runs__first__finetune={"squad_v1": {"max_sequence_length": 64, "max_query_length": 16, "doc_stride": 44}},
        datasets__both__tokenizer={"file": "roberta/tokenizer.json"},
    )
    with pytest.raises(BertlineError, match=r"squad_v1\.doc_stride: given 44, .* has 44 of the context"):
        plan_of(config)


RANKING = {
    "m": {
        "collection": "c",
        "train": {"queries": "q", "triples": "t"},
        "dev": {"queries": "q", "candidates": "c", "qrels": "r"},
    }
}


def test_a_ranking_needs_room_for_one_token_of_a_passage() -> None:
    """max_query_length includes two special tokens: [CLS] 12 tokens [SEP] 1 token [SEP] are 16."""
    settings = {"max_query_length": 14, "max_sequence_length": 16}
    assert plan_of(with_tasks({"ranking": RANKING}, {"ranking": {"m": settings}})).runs
    with pytest.raises(
        BertlineError,
        match=r"^configuration: runs\.first\.finetune\.ranking\.m\.max_query_length: given 15, .* for a passage in",
    ):
        plan_of(with_tasks({"ranking": RANKING}, {"ranking": {"m": settings | {"max_query_length": 15}}}))


def test_every_point_of_a_grid_is_a_separate_fine_tuning_and_the_same_when_requested_by_itself() -> None:
    grid = {"learning_rate": [3e-5, 5e-5], "batch_size": [16, 32]}
    squad = CONFIG["evaluation"]
    plan = plan_of(with_tasks(squad, {"squad_v1": {"grid": grid, "seeds": 2, "random_weights": [1e-3]}}))
    run = plan.runs["first"]["finetunings"]
    points = [f"learning_rate-{rate}/batch_size-{size}" for rate in ("3e-05", "5e-05") for size in (16, 32)]
    assert list(run) == [
        *(f"squad_v1/{point}/seed{seed}" for point in points for seed in (1, 2)),
        *(f"squad_v1/random-weights-0.001/seed{seed}" for seed in (1, 2)),
    ]
    entry = plan.finetunings[run["squad_v1/learning_rate-5e-05/batch_size-16/seed2"]]
    assert (entry["settings"]["learning_rate"], entry["settings"]["batch_size"], entry["seed"]) == (5e-5, 16, 2)
    alone = plan_of(with_tasks(squad, {"squad_v1": {"learning_rate": 5e-5, "batch_size": 16, "seeds": 2}}))
    key = alone.runs["first"]["finetunings"]["squad_v1/seed2"]
    assert alone.finetunings[key] == entry


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"workers": 4},
            "runs.first.finetune.squad_v1.workers: given 4, but synchronise 'true' does not use it; leave it out, or "
            "choose synchronise false",
        ),
        (
            {"synchronise": False, "learning_rate_scaling": "sqrt", "base_batch_size": 8},
            "runs.first.finetune.squad_v1.learning_rate_scaling: given 'sqrt', but synchronise 'false' does not use it",
        ),
        ({"learning_rate_scaling": "sqrt"}, "runs.first.finetune.squad_v1.base_batch_size: missing"),
        ({"base_batch_size": 8}, "runs.first.finetune.squad_v1.base_batch_size: given 8, but learning_rate_scaling"),
        (
            {"learning_rate": 1e-3, "grid": {"learning_rate": [1e-5]}, "random_weights": [1e-4]},
            "runs.first.finetune.squad_v1.learning_rate: given 0.001, but grid.learning_rate replaces it; leave",
        ),
        (
            {"batch_size": 8, "grid": {"batch_size": [16]}},
            "runs.first.finetune.squad_v1.batch_size: given 8, but grid.batch_size replaces it; leave one out",
        ),
        (
            {"grid": {"learning_rate": [1e-5, 1.0000001e-5]}},
            "runs.first.finetune.squad_v1.grid.learning_rate: given 1e-05 and 1.0000001e-05, whose results would both "
            "be named 1e-05",
        ),
        (
            {"random_weights": [1e-4, 1.0000001e-4]},
            "runs.first.finetune.squad_v1.random_weights: given 0.0001 and 0.00010000001, whose results would both be",
        ),
    ],
)
def test_a_setting_of_a_fine_tuning_without_effect_is_one_line(settings: dict, message: str) -> None:
    evaluation = {"squad_v1": {"train": "a", "dev": "b"}}
    with pytest.raises(BertlineError) as caught:
        plan_of(with_tasks(evaluation, {"squad_v1": settings}))
    assert message in str(caught.value)


def test_what_random_weights_use_next_to_a_grid_is_accepted() -> None:
    settings = {"batch_size": 8, "grid": {"batch_size": [16]}, "random_weights": [1e-4]}
    plan = plan_of(with_tasks(CONFIG["evaluation"], {"squad_v1": settings}))
    assert sorted(entry["settings"]["batch_size"] for entry in plan.finetunings.values()) == [8, 16]


@pytest.mark.parametrize("train", [{"queries": "q", "triples": "t"}, {"tfrecords": "t"}])
def test_negatives_are_refused_where_none_are_drawn(train: dict) -> None:
    dev = {"queries": "q", "candidates": "c", "qrels": "r"}
    evaluation = {"ranking": {"m": {"collection": "c", "train": train, "dev": dev}}}
    with pytest.raises(
        BertlineError,
        match=r"^configuration: runs\.first\.finetune\.ranking\.m\.negatives: given 20, but .*train\.qrels",
    ):
        plan_of(with_tasks(evaluation, {"ranking": {"m": {"negatives": 20}}}))


@pytest.mark.parametrize(("negatives", "is_renamed"), [(1, False), (2, True)])
def test_the_version_of_negatives_renames_only_trainings_with_several(
    monkeypatch: pytest.MonkeyPatch, negatives: int, is_renamed: bool
) -> None:
    for name in ("c", "q", "r"):
        Path(name).write_text("1\tone\n")
    lists = {"queries": "q", "qrels": "r", "candidates": "c"}
    evaluation = {"ranking": {"m": {"collection": "c", "train": lists, "dev": lists}}}
    config = with_tasks(evaluation, {"ranking": {"m": {"negatives": negatives}}})
    before = plan_of(config).finetunings.keys()
    assert before
    monkeypatch.setitem(STAGE_VERSIONS, "negatives", 0)
    assert (plan_of(config).finetunings.keys() != before) == is_renamed


@pytest.mark.parametrize(
    ("precision", "is_renamed"), [("fp32", False), ("tf32", False), ("bf16", True), ("fp16", True)]
)
def test_the_version_of_half_precision_alters_no_other_fine_tuning(
    monkeypatch: pytest.MonkeyPatch, precision: str, is_renamed: bool
) -> None:
    config = with_tasks(CONFIG["evaluation"], {"squad_v1": {"precision": precision}})
    before = plan_of(config).finetunings.keys()
    monkeypatch.setitem(STAGE_VERSIONS, "half_precision", 0)
    assert (plan_of(config).finetunings.keys() != before) == is_renamed


@pytest.mark.parametrize(
    ("descriptions", "said"), [(("one", "other"), ""), (("one", "other", "one"), ""), (("one", "one"), "one")]
)
def test_the_card_of_a_fine_tuning_that_runs_share_has_no_description_of_only_one_of_them(
    descriptions: tuple[str, ...], said: str
) -> None:
    run = CONFIG["runs"]["first"]
    runs = {f"run{number}": {**run, "description": text} for number, text in enumerate(descriptions)}
    plan = plan_of(changed(runs=runs))
    assert len(plan.finetunings) == 4  # as of one run
    assert {recipe["description"] for recipe in plan.finetunings.values()} == {said}


def test_a_collection_is_tokenized_again_for_other_settings_next_to_a_vocabulary() -> None:
    """Of external weights with a vocab.txt; the default settings are those of a folder without any."""
    make_files("c.tsv", "q.tsv", "t.tsv", "l.tsv", "r.tsv", "theirs/model.safetensors")
    network = json.loads((ROOT / "config/models/bert-tiny.json").read_text())
    Path("theirs/config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 5, **network}))
    Path("theirs/vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    dev = {"queries": "q.tsv", "candidates": "l.tsv", "qrels": "r.tsv"}
    ranking = {"m": {"collection": "c.tsv", "train": {"queries": "q.tsv", "triples": "t.tsv"}, "dev": dev}}
    config = {"evaluation": {"ranking": ranking}, "runs": {"theirs": {"pretrained": "theirs"}}}
    config["runs"]["theirs"]["finetune"] = {"ranking": {"m": {}}}
    keys = [*plan_of(config).collections]
    assert len(keys) == 1
    for settings in (
        {"do_lower_case": True, "model_max_length": 9},
        {"do_lower_case": False},
        {"strip_accents": False},
    ):
        Path("theirs/tokenizer_config.json").write_text(json.dumps(settings))
        keys += plan_of(config).collections
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
