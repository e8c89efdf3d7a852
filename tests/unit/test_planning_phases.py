"""Phases in the plan: their fingerprints, where they start, and what they take over."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from plan_helpers import CONFIG, PHASE, ROOT, changed, finished_dataset, inputs, plan_of

from bertline.console import BertlineError
from bertline.files import write_json
from bertline.fingerprint import STAGE_VERSIONS
from bertline.planning.names import write_links
from bertline.planning.plan import Plan
from bertline.planning.resolve import RESERVED_NAMES

assert inputs  # the fixture


def phases_of(plan: Plan, run: str) -> list[dict]:
    return [plan.phases[key] for key in plan.runs[run]["phases"].values()]


def test_a_phase_with_the_data_of_an_earlier_one_continues_in_it_under_a_fingerprint_of_its_own() -> None:
    """Of the same dataset, sequence length and seed; otherwise it would see the same samples again."""
    other = {**PHASE, "sequence_length": 512, "carry_over": "weights"}
    phases = {"a": PHASE, "b": {**PHASE, "carry_over": "weights"}, "c": other, "d": PHASE, "e": other}
    a, b, c, d, e = phases_of(plan_of(changed(runs__first__phases=phases)), "first")
    found = [phase.get("continues_data_of") for phase in (a, b, c, d, e)]
    assert found == [None, a["fingerprint"], None, b["fingerprint"], c["fingerprint"]]


def test_a_phase_with_other_weights_of_corpora_gets_another_order_and_masks() -> None:
    """In the same order of visits, most of its samples would come again with the masks that they had."""
    plain, books, wiki = ({**PHASE, "corpus_weights": weights} for weights in ({}, {"books": 2.0}, {"wikipedia": 0.5}))
    phases = {"a": plain, "b": books, "c": wiki, "d": books, "e": plain, "f": {**wiki, "carry_over": "weights"}}
    found = phases_of(plan_of(changed(runs__first__phases=phases)), "first")
    assert [phase.get("data_order") for phase in found] == [None, 1, 2, 1, None, 2]
    keys = [phase["fingerprint"] for phase in found]
    assert [phase.get("continues_data_of") for phase in found] == [None, None, None, keys[1], keys[0], keys[2]]
    longer = {"a": plain, "b": books, "c": {**books, "carry_over": "everything"}}
    assert phases_of(plan_of(changed(runs__first__phases=longer)), "first")[2]["data_order"] == 1


@pytest.mark.parametrize("change", [{"corpus_weights": {"books": 2.0}}, {"sequence_length": 512}])
def test_everything_is_carried_over_only_to_the_same_data(change: dict) -> None:
    phases = {"a": PHASE, "b": {**PHASE, "carry_over": "everything", **change}}
    with pytest.raises(BertlineError, match=r"phases\.b\.carry_over: given everything, but dataset, sequence length"):
        plan_of(changed(runs__first__phases=phases))


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({}, True),
        ({"carry_over": "weights"}, True),
        ({"sequence_length": 512}, False),
    ],
)
def test_only_phases_that_continue_in_the_data_have_a_new_fingerprint(
    change: dict, affected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = changed(runs__first__phases__phase2={**PHASE, **change})
    continued = plan_of(config)
    monkeypatch.setattr("bertline.planning.phases.phases_with_same_samples", lambda *given: [])
    assert (plan_of(config).phases.keys() != continued.phases.keys()) == affected


def test_each_carry_over_from_a_phase_is_another_result_and_elsewhere_it_has_no_effect() -> None:
    values = ("weights", "weights+moments", "everything")
    Path("weights").mkdir()
    network = json.loads((ROOT / "config/models/bert-tiny.json").read_text())
    Path("weights/config.json").write_text(json.dumps({"vocab_size": 100, **network}))
    Path("weights/model.safetensors").write_text("{}")
    first, second, external = set(), set(), set()
    for value in values:
        phase = {**PHASE, "carry_over": value}
        keys = plan_of(changed(runs__first__phases={"a": PHASE, "b": phase})).runs["first"]["phases"]
        second.add(keys["b"])
        first |= set(plan_of(changed(runs__first__phases={"a": phase})).runs["first"]["phases"].values())
        phase["initial_weights"] = {"directory": "weights"}
        external |= set(plan_of(changed(runs__first__phases={"a": phase})).runs["first"]["phases"].values())
    assert [len(first), len(second), len(external)] == [1, 3, 1]


@pytest.mark.parametrize(("optimizer", "is_renamed"), [("lamb", True), ("adamw", False), ("muon", False)])
def test_the_version_of_lamb_renames_only_phases_with_lamb(
    monkeypatch: pytest.MonkeyPatch, optimizer: str, is_renamed: bool
) -> None:
    config = changed(runs__first__phases={"a": {**PHASE, "optimizer": optimizer}})
    before = plan_of(config).phases.keys()
    monkeypatch.setitem(STAGE_VERSIONS, "lamb", 0)
    assert (plan_of(config).phases.keys() != before) == is_renamed


def test_data_of_another_run_with_another_seed_is_not_continued() -> None:
    start = {"initial_weights": {"run": "first", "phase": "phase1"}}
    for seed, affected in ((2, False), (CONFIG["runs"]["first"].get("seed", 1), True)):
        run = {**CONFIG["runs"]["first"], "seed": seed, "phases": {"phase1": {**PHASE, **start}}}
        plan = plan_of(changed(runs__second=run, runs__first__seed=1))
        assert ("continues_data_of" in phases_of(plan, "second")[0]) == affected


def test_weights_from_another_run_are_resolved_in_any_order() -> None:
    config = changed()
    follower = {"phase1": {**PHASE, "steps": 3, "initial_weights": {"run": "first", "phase": "phase1"}}}
    config["runs"] = {
        "follower": {"dataset": "both", "model": "bert-tiny", "phases": follower},
        "first": config["runs"]["first"],
    }
    plan = plan_of(config)
    phase = plan.phases[plan.runs["follower"]["phases"]["phase1"]]
    assert phase["initial_weights"] == {"phase": plan.runs["first"]["phases"]["phase1"]}


def test_an_unknown_phase_of_another_run_is_one_line_also_beside_a_run_without_phases() -> None:
    config = changed(runs__first__phases={"phase1": {**PHASE, "initial_weights": {"run": "other", "phase": "none"}}})
    config["runs"]["theirs"] = {"pretrained": "theirs", "finetune": {}}
    config["runs"]["other"] = {"dataset": "both", "model": "bert-tiny", "phases": {"phase1": PHASE}}
    with pytest.raises(BertlineError, match="given other none, allowed are the phases of other runs: other phase1;"):
        plan_of(config)


def test_runs_that_start_from_each_other_are_refused() -> None:
    config = changed()
    for name, other in (("a", "b"), ("b", "a")):
        start = {"phase1": {**PHASE, "initial_weights": {"run": other, "phase": "phase1"}}}
        config["runs"][name] = {"dataset": "both", "model": "bert-tiny", "phases": start}
    with pytest.raises(BertlineError, match="start from each other"):
        plan_of(config)


def test_a_phase_does_not_take_the_place_of_another_link() -> None:
    plan = plan_of(CONFIG)
    write_links(plan, existing_only=False)
    beside = {path.name for path in Path("results/runs/first").iterdir()} - set(CONFIG["runs"]["first"]["phases"])
    assert beside <= RESERVED_NAMES
    for name in beside:
        with pytest.raises(BertlineError, match=f"runs.first.phases: a phase cannot be called '{name}'"):
            plan_of(changed(runs__first__phases={name: PHASE}))


def test_weights_without_their_configuration_are_reported(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/model.safetensors").write_bytes(b"weights")
    phase = {**PHASE, "initial_weights": {"directory": "theirs"}}
    (problem,) = plan_of(changed(runs__first__phases__phase1=phase)).problems
    key = "configuration: runs.first.phases.phase1.initial_weights.directory"
    assert problem == f"{key}: no file matches 'theirs/config.json'; put it there or change the key"


def test_a_phase_cannot_take_the_moments_of_another_optimizer() -> None:
    phases = {"phase1": {**PHASE, "optimizer": "lamb"}, "phase2": {**PHASE, "optimizer": "adamw"}}
    with pytest.raises(BertlineError, match=r"phases\.phase2\.carry_over: given weights\+moments, but .* adamw"):
        plan_of(changed(runs__first__phases=phases))
    phases["phase2"]["carry_over"] = "weights"
    plan_of(changed(runs__first__phases=phases))


@pytest.mark.parametrize(
    ("optimizer", "sides", "fits"),
    [("soap", (64, 20), False), ("soap", (20, 64), False), ("shampoo", (20, 64), False), ("shampoo", (64, 20), True)],
)
def test_a_phase_takes_the_moments_of_factors_of_the_same_sides(optimizer: str, sides: list[int], fits: bool) -> None:
    """Shampoo's moments are the same without some of the factors."""
    first, second = ({**PHASE, "optimizer": optimizer, optimizer: {"largest_side": side}} for side in sides)
    config = changed(runs__first__phases={"phase1": first, "phase2": second})
    if not fits:
        message = f"phases.phase2.{optimizer}.largest_side: given {sides[1]}, but {sides[0]} in the phase before"
        with pytest.raises(BertlineError, match=re.escape(message)):
            plan_of(config)
        second["carry_over"] = "weights"
    plan_of(config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"runs__first__model": {"hidden_size": 128, "num_attention_heads": 2, "vocab_size": 512}},
            "runs.first.phases.phase1: the model's vocab_size is 512, and the tokenizer has at most 500 entries",
        ),
        (
            {"datasets__both__tokenizer": {"file": "tokenizer.json", "lowercase": False}},
            "datasets.both.tokenizer.lowercase: given False, but a tokenizer.json contains this setting; leave it out",
        ),
        (
            {"corpora__books": {"source": "files", "paths": ["books/*.txt"], "encoding": "utf-99"}},
            "corpora.books.encoding: the encoding 'utf-99' is unknown; give one such as utf-8",
        ),
        (
            {"corpora__books": {"source": "files", "paths": ["books/*.txt"], "separator": "\f"}},
            "corpora.books.separator: '\\x0c' is white space, which does not count; give a line with a visible mark, "
            'or "\\n" for empty lines',
        ),
        (
            {"corpora__books": {"source": "files", "paths": ["books/*.txt"], "separator": "a\nb"}},
            "corpora.books.separator: 'a\\nb' has a line break; give a line with a visible mark, or",
        ),
    ],
)
def test_what_a_job_would_refuse_is_refused_when_planning(change: dict, message: str) -> None:
    with pytest.raises(BertlineError, match=re.escape(message)):
        plan_of(changed(**change))


def test_a_phase_cannot_start_from_another_network() -> None:
    phase = {**PHASE, "initial_weights": {"run": "first", "phase": "phase1"}}
    other = {"dataset": "both", "model": "bert-mini", "phases": {"phase1": phase}}
    with pytest.raises(BertlineError, match=r"phase1\.initial_weights: .*hidden_size is 128 there and 256 here"):
        plan_of(changed(runs__other=other))
    plan_of(changed(runs__other={**other, "model": "bert-tiny"}))


@pytest.mark.parametrize(
    ("theirs", "ours", "fits"),
    [
        ({"train": "wordpiece"}, {"train": "wordpiece", "lowercase": False}, False),
        ({"train": "wordpiece"}, {"train": "wordpiece", "strip_accents": None}, False),
        ({"train": "wordpiece"}, {"train": "bpe"}, False),
        ({"train": "wordpiece", "vocab_size": 600}, {"train": "wordpiece"}, True),  # if the text has fewer words
        ({"file": "one.txt"}, {"file": "same.txt"}, True),
        ({"file": "one.txt"}, {"file": "other.txt"}, False),
        ({"file": "one.txt"}, {"file": "one.txt", "lowercase": False}, False),
        ({"file": "one.txt"}, {"train": "wordpiece"}, True),  # the file may be that of the trained one
    ],
)
def test_a_phase_starts_from_weights_of_the_same_tokenizer(theirs: dict, ours: dict, fits: bool) -> None:
    for name, words in (("one", "a"), ("same", "a"), ("other", "b")):
        Path(f"{name}.txt").write_text(f"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{words}\n")
    theirs, ours = ({"vocab_size": 500, **given} if "train" in given else given for given in (theirs, ours))
    both = CONFIG["datasets"]["both"]
    config = changed(
        datasets={"both": {**both, "tokenizer": theirs}, "second": {**both, "shards": 3, "tokenizer": ours}}
    )
    phase = {**PHASE, "initial_weights": {"run": "first", "phase": "phase1"}}
    config["runs"]["other"] = {"dataset": "second", "model": "bert-tiny", "phases": {"phase1": phase}}
    if fits:
        plan = plan_of(config)
        for run, digest in (("first", "0"), ("other", "1")):  # but they turned out to differ
            key = plan.phases[plan.runs[run]["phases"]["phase1"]]["dataset"]
            write_json(plan.dataset_file(key, "dataset.json"), {"tokenizer": {"sha256": digest}})
    line = r"other\.phases\.phase1\.initial_weights: the phase's dataset both and second have different tokenizers"
    with pytest.raises(BertlineError, match=line):
        plan_of(config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sequence_length": 512}, "sequence_length: given 512, allowed are the lengths of the finished dataset: 128"),
        ({"corpus_weights": {"wiki": 2}}, "corpus_weights: given 'wiki', allowed are the dataset's corpora: books"),
        ({"corpus_weights": {"books": 2}}, None),
    ],
)
def test_a_phase_needs_what_a_finished_dataset_has(tmp_path: Path, settings: dict, message: str | None) -> None:
    config = finished_dataset(tmp_path / "theirs", static_masks=False)
    config["runs"]["theirs"]["phases"]["phase1"] = {**PHASE, **settings}
    if message is None:
        plan_of(config)
        return
    with pytest.raises(BertlineError, match=re.escape(message)):
        plan_of(config)
