"""From a configuration to fingerprints: what is shared, what is new, what stays."""

from __future__ import annotations

import copy
import dataclasses
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from fault_counts import TIMES, drawing
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from test_corpus_damage import mutate

from bertline.console import BertlineError
from bertline.files import read_json, write_json
from bertline.fingerprint import STAGE_VERSIONS, fingerprint
from bertline.modeling import activations
from bertline.modeling.network_config import ACTIVATIONS, CONFIGURATIONS, config_from_dict
from bertline.planning.changes import changes
from bertline.planning.names import write_links
from bertline.planning.patterns import find_files, fixed_part
from bertline.planning.plan import Plan, record, report_fingerprint
from bertline.planning.plan_file import plan_file, plan_of_job, write_plan_file
from bertline.planning.recipes import digest_of_record
from bertline.planning.resolve import RESERVED_NAMES, make_plan
from bertline.planning.target_states import target_states
from bertline.results import paths
from bertline.settings.configuration import load_schema

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

TABLE = {"kind": "classification", "train": "train.json", "dev": "dev.json", "texts": ["text"], "label": "label"}
TABLES = {f"table{number}": TABLE for number in range(33)}


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


def test_a_changed_tokenizer_makes_a_new_dataset_but_no_new_corpus() -> None:
    before = plan_of(CONFIG)
    after = plan_of(changed(datasets__both__tokenizer={"train": "wordpiece", "vocab_size": 600}))
    assert before.corpora.keys() == after.corpora.keys()
    assert not before.datasets.keys() & after.datasets.keys()
    assert not before.phases.keys() & after.phases.keys()
    assert not before.finetunings.keys() & after.finetunings.keys()


def test_a_sample_makes_a_new_dataset_but_no_new_corpus() -> None:
    before = plan_of(CONFIG)
    for sample in ({"documents": 1e5}, {"books": {"bytes": 1e6}}):
        after = plan_of(changed(datasets__both__sample=sample))
        assert before.corpora.keys() == after.corpora.keys()
        assert not before.datasets.keys() & after.datasets.keys()
    with pytest.raises(BertlineError, match=r"datasets\.both\.sample: given 'book', allowed are .*: wikipedia, books"):
        plan_of(changed(datasets__both__sample={"book": {"bytes": 1e6}}))
    with pytest.raises(BertlineError, match=r"datasets\.both\.sample: .*'pages'"):
        plan_of(changed(datasets__both__sample={"pages": 5}))


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


def test_data_of_another_run_with_another_seed_is_not_continued() -> None:
    start = {"initial_weights": {"run": "first", "phase": "phase1"}}
    for seed, affected in ((2, False), (CONFIG["runs"]["first"].get("seed", 1), True)):
        run = {**CONFIG["runs"]["first"], "seed": seed, "phases": {"phase1": {**PHASE, **start}}}
        plan = plan_of(changed(runs__second=run, runs__first__seed=1))
        assert ("continues_data_of" in phases_of(plan, "second")[0]) == affected


@pytest.mark.parametrize("identified", [{}, {"language_identification": {"keep": "ltg"}}])
def test_english_stop_words_are_not_looked_for_in_other_languages(identified: dict) -> None:
    name = "books" if identified else "wikipedia"
    filtered = {**CONFIG["corpora"][name], "cleaning": ["gopher_quality"], **identified}
    with pytest.raises(
        BertlineError, match=rf"corpora\.{name}\.cleaning: .* English .* the language is ltg; set stop_words"
    ):
        plan_of(changed(**{f"corpora__{name}": filtered}))
    plan_of(changed(**{f"corpora__{name}": {**filtered, "stop_words": ["i", "ir"]}}))
    with pytest.raises(BertlineError, match=rf"configuration: corpora\.{name}\.stop_words: given 'i ir', which is"):
        plan_of(changed(**{f"corpora__{name}": {**filtered, "stop_words": ["i ir"]}}))


@pytest.mark.parametrize("words", [["i", "ir"], []])
def test_stop_words_that_nothing_looks_for_are_one_line(words: list[str]) -> None:
    line = r"configuration: corpora\.books\.stop_words: given, but only gopher_quality uses them"
    with pytest.raises(BertlineError, match=line):
        plan_of(changed(corpora__books__stop_words=words))
    default = load_schema(ROOT / "config/config.schema.yaml")["$defs"]["stop_words"]["default"]
    assert plan_of(changed(corpora__books__stop_words=default)).corpora == plan_of(CONFIG).corpora


@pytest.mark.parametrize("column", ["text", "id", "title", "url"])
def test_a_column_of_files_without_columns_is_one_line(column: str) -> None:
    Path("books/more.tar").write_bytes(b"")  # of an archive, only texts are read
    line = rf"configuration: corpora\.books\.{column}: given 'body', but none of the files is a table with columns"
    url = {"url": "https://host/one.txt", "sha256": hashlib.sha256(b"One book.").hexdigest()}
    for files in ({"paths": ["books/*.txt"]}, {"paths": ["books/*"]}, {"urls": [url]}):
        with pytest.raises(BertlineError, match=line):
            corpora_of(**{column: "body"}, **files)
    assert corpora_of(text="text", paths=["books/*.txt"])
    assert corpora_of(**{column: "body"}, paths=["absent/*.jsonl", "books/*.txt"])
    Path("books/two.CSV.gz").write_bytes(b"")
    assert corpora_of(**{column: "body"}, paths=["books/*"])


def test_the_file_of_a_tokenizer_is_no_pattern() -> None:
    Path("vocab.txt").write_text("[PAD]\n")
    plans = [plan_of(changed(datasets__both__tokenizer={"file": name})) for name in ("vocab.txt", "vocab*")]
    line = "configuration: datasets.both.tokenizer.file: vocab* does not exist; put the file there or change the key"
    assert [plan.problems for plan in plans] == [[], [line]]


def test_changing_back_gives_the_old_fingerprints() -> None:
    assert plan_of(CONFIG).runs == plan_of(copy.deepcopy(CONFIG)).runs


def test_a_default_spelled_out_changes_nothing() -> None:
    spelled = changed(runs__first__phases__phase1={**PHASE, "weight_decay": 0.01, "masking": {"probability": 0.15}})
    assert plan_of(spelled).phases.keys() == plan_of(CONFIG).phases.keys()


@pytest.mark.parametrize("model", ["bert-tiny", "bert-mini", "bert-small", "bert-medium", "bert-base", "bert-large"])
def test_the_default_architecture_does_not_change_fingerprints(model: str) -> None:
    described = read_json(ROOT / f"config/models/{model}.json")
    plans = [
        plan_of(changed(runs__first__model=given))
        for given in (model, described, {"architecture": "bert", **described})
    ]
    assert all(phase["model"] == described for plan in plans for phase in plan.phases.values())
    assert plans[0].phases.keys() == plans[1].phases.keys() == plans[2].phases.keys()


@pytest.mark.parametrize("model", ["modern-mini", "modern-base", "modern-large"])
def test_another_architecture_is_another_model(model: str) -> None:
    described = read_json(ROOT / f"config/models/{model}.json")
    shape = {key: described[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    plans = [plan_of(changed(runs__first__model=given)) for given in (model, shape)]
    assert not plans[0].phases.keys() & plans[1].phases.keys()
    config = config_from_dict({**next(iter(plans[0].phases.values()))["model"], "vocab_size": 500})
    assert config.to_dict() == {**described, "vocab_size": 500}


def test_an_architecture_that_does_not_exist_is_named() -> None:
    with pytest.raises(BertlineError, match=r"runs\.first\.model\.architecture: given 'new', allowed .* bert, modern"):
        plan_of(changed(runs__first__model={"architecture": "new"}))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"hidden_sise": 128}, "runs.first.model: unknown key 'hidden_sise'; did you mean 'hidden_size'?"),
        ({"hidden_size": 128.0}, "runs.first.model.hidden_size: given 128.0, allowed is a whole number; write 128"),
        ({"hidden_size": 100}, "runs.first.model: hidden_size 100 is not a multiple of num_attention_heads 12"),
        ({"hidden_act": "swish"}, "runs.first.model.hidden_act: given 'swish', allowed is one of gelu, gelu_new, relu"),
        (
            {"architecture": "modern", "hidden_act": "gelu"},
            "unknown key 'hidden_act'; did you mean 'hidden_act",
        ),
        ({"num_hidden_layers": 1001}, "runs.first.model: num_hidden_layers: given 1001, allowed are 1 to 1000"),
        (
            {"architecture": "modern", "hidden_size": 36},
            "runs.first.model: hidden_size 36 divided by num_attention_heads 12 is odd, and rotary positions",
        ),
        ({"max_position_embeddings": 256}, "phase2.sequence_length: given 512, allowed is at most the model's max_pos"),
    ],
)
def test_a_network_that_cannot_be_is_refused_before_anything_runs(model: dict, message: str) -> None:
    with pytest.raises(BertlineError, match=re.escape(message)):
        plan_of(changed(runs__first__model=model))


def test_the_schema_of_a_network_has_the_arguments_of_its_class() -> None:
    schema = load_schema(ROOT / "config/config.schema.yaml")
    for name, network in CONFIGURATIONS.items():
        fields = {field.name: field for field in dataclasses.fields(network)}
        assert set(schema["$defs"][f"{name}_network"]["properties"]) == {"architecture", *fields}
    assert schema["$defs"]["activation"]["enum"] == list(ACTIVATIONS) == list(activations.ACTIVATIONS)


def test_fine_tuning_on_longer_text_than_the_network_reads_is_refused() -> None:
    with pytest.raises(BertlineError, match=r"finetune\.squad_v1\.max_sequence_length: given 1024, allowed is at most"):
        plan_of(changed(runs__first__finetune={"squad_v1": {"max_sequence_length": 1024}}))
    with pytest.raises(BertlineError, match=r"finetune\.squad_v1\.max_query_length: given 64, which leaves no room"):
        plan_of(changed(runs__first__finetune={"squad_v1": {"max_sequence_length": 64}}))


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


def test_a_second_run_shares_its_common_parts() -> None:
    config = changed()
    config["runs"]["second"] = copy.deepcopy(config["runs"]["first"])
    config["runs"]["second"]["phases"]["phase2"]["learning_rate"] = 0.002
    plan = plan_of(config)
    first, second = plan.runs["first"], plan.runs["second"]
    assert first["dataset"] == second["dataset"]
    assert first["phases"]["phase1"] == second["phases"]["phase1"]
    assert first["phases"]["phase2"] != second["phases"]["phase2"]
    random = [name for name in first["finetunings"] if "random" in name]
    assert [first["finetunings"][name] for name in random] == [second["finetunings"][name] for name in random]
    assert plan_of(CONFIG).runs["first"]["fingerprint"] == first["fingerprint"]


def test_changed_content_of_a_book_makes_a_new_corpus() -> None:
    before = plan_of(CONFIG)
    Path("books/one.txt").write_text("Another book.")
    after = plan_of(CONFIG)
    assert len(before.corpora.keys() & after.corpora.keys()) == 1
    assert not before.datasets.keys() & after.datasets.keys()


def test_left_out_documents_make_a_new_dataset_of_the_same_corpora() -> None:
    def datasets(**settings: str) -> set[str]:
        both = {**CONFIG["datasets"]["both"], **settings}  # type: ignore[dict-item]
        plan = plan_of(changed(datasets__both=both))
        assert plan.corpora.keys() == plan_of(CONFIG).corpora.keys()
        return set(plan.datasets)

    plain = datasets()
    kinds = [
        plain,
        datasets(duplicates="exact"),
        datasets(duplicates="near"),
        datasets(evaluation_overlap="drop"),
        datasets(duplicates="near", evaluation_overlap="drop"),
    ]
    assert len(set.union(*kinds)) == 5
    assert datasets(duplicates="keep", evaluation_overlap="ignore") == plain
    # Reporting is for the card alone. What is dropped depends on the evaluation sets.
    assert datasets(evaluation_overlap="report") == plain
    Path("dev.json").write_text('{"data": []}')
    assert datasets(evaluation_overlap="drop") != kinds[3]
    assert datasets(evaluation_overlap="report") == plain


def test_every_evaluation_set_is_compared_with_but_no_training_set() -> None:
    Path("glue/RTE").mkdir(parents=True)
    Path("glue/MNLI").mkdir()
    for name in ("RTE/train.tsv", "RTE/dev.tsv", "RTE/test.tsv", "MNLI/dev_matched.tsv", "MNLI/dev_mismatched.tsv"):
        Path("glue", name).write_text(name)
    config = changed(datasets__both__evaluation_overlap="report")
    config["evaluation"]["glue"] = "glue"
    evaluation = plan_of(config).evaluation
    assert evaluation is not None
    assert evaluation["sets"] == {
        "squad_v1": ["dev.json"],
        "glue/mnli": ["glue/MNLI/dev_matched.tsv", "glue/MNLI/dev_mismatched.tsv"],
        "glue/rte": ["glue/RTE/dev.tsv", "glue/RTE/test.tsv"],
    }
    names = {part: f"{part}.csv" for part in ("train", "dev", "test")}
    for name in [*names.values(), *(f"parquet/rte/{part}-00000-of-00001.parquet" for part in ("train", "test"))]:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    Path("parquet/rte/validation-00000-of-00001.parquet").write_text("dev")
    table = {"kind": "classification", "texts": ["text"], "label": "label", **names}
    config["evaluation"] |= {"glue": "parquet", "boolq": names, "tables": {"boolq": {**table, "test": "other.csv"}}}
    Path("other.csv").write_text("other")
    evaluation = plan_of(config).evaluation
    assert evaluation is not None
    assert evaluation["sets"] == {
        "squad_v1": ["dev.json"],
        "boolq": ["dev.csv", "test.csv"],
        "glue/rte": [f"parquet/rte/{part}-00000-of-00001.parquet" for part in ("validation", "test")],
        "table/boolq": ["dev.csv", "other.csv"],
    }
    Path("other.csv").write_text("changed")
    assert plan_of(config).evaluation["fingerprint"] != evaluation["fingerprint"]
    config["evaluation"] = {"glue": {"cola": {"url": "https://example.org/CoLA.zip"}}}
    config["runs"]["first"]["finetune"] = {}
    plan = plan_of(config)
    assert plan.evaluation is not None
    path = f"resources/evaluation/{fingerprint({'url': 'https://example.org/CoLA.zip'})}/CoLA/dev.tsv"
    assert plan.evaluation["sets"] == {"glue/cola": [path]}
    assert plan.downloads == {path: {"url": "https://example.org/CoLA.zip", "member": "CoLA/dev.tsv"}}
    assert plan_of(CONFIG).evaluation is None


def test_a_licence_alters_no_corpus_and_cleaning_does() -> None:
    before = plan_of(CONFIG).corpora.keys()
    assert plan_of(changed(corpora__books__licence="public domain")).corpora.keys() == before
    assert plan_of(changed(corpora__wikipedia__cleaning=["headings"])).corpora.keys() != before
    assert plan_of(changed(corpora__wikipedia__sentences="unicode")).corpora.keys() != before


def test_the_extractor_alters_a_corpus_and_so_does_the_version_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_of(CONFIG).corpora.keys()
    assert plan_of(changed(corpora__wikipedia__extractor="bertline")).corpora.keys() == before
    assert plan_of(changed(corpora__wikipedia__list_items="sentences")).corpora.keys() == before
    assert plan_of(changed(corpora__wikipedia__tables="text")).corpora.keys() != before
    assert plan_of(changed(corpora__wikipedia__list_items="all")).corpora.keys() != before
    theirs = changed(corpora__wikipedia__extractor="wikiextractor")
    of_theirs = plan_of(theirs).corpora.keys()
    assert len(of_theirs & before) == len(before) - 1
    monkeypatch.setitem(STAGE_VERSIONS, "extraction", 0)
    assert plan_of(theirs).corpora.keys() == of_theirs
    assert len(plan_of(CONFIG).corpora.keys() & before) == len(before) - 1


def test_the_version_of_plain_text_alters_no_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_of(CONFIG).corpora
    monkeypatch.setitem(STAGE_VERSIONS, "plain_text", 0)
    after = plan_of(CONFIG).corpora
    assert {before[key]["name"] for key in before.keys() - after.keys()} == {"books"}


def test_the_description_the_cards_and_the_experiment_alter_no_result() -> None:
    card = {"license": "apache-2.0", "language": ["lv", "ltg"]}
    before = plan_of(CONFIG)
    after = plan_of(changed(runs__first__description="why", runs__first__model_card=card, experiment="other"))
    assert after.phases.keys() == before.phases.keys()
    assert after.finetunings.keys() == before.finetunings.keys()
    assert record(after, "first")["model_card"] == card
    assert digest_of_record(after, "first") != digest_of_record(before, "first")
    with pytest.raises(BertlineError, match=r"runs\.first\.model_card\.license: .*Apache"):
        plan_of(changed(runs__first__model_card={"license": "Apache 2.0"}))


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runs__first__dataset": "none"}, "runs.first.dataset: given 'none', allowed are"),
        ({"runs__first__model": "bert-huge"}, "runs.first.model: given 'bert-huge', allowed are bert-base"),
        ({"datasets__both__corpora": ["news"]}, "datasets.both.corpora: given 'news', allowed are"),
        ({"runs__first__phases": {"p": {**PHASE, "sequence_length": 64}}}, "sequence_length: given 64, allowed are"),
        ({"evaluation": {}}, "evaluation.squad_v1: missing"),
        ({"mirrors": ["https://dumps.wikimedia.org"]}, "the key 'contact' is missing"),
        ({"datasets__both": {"path": "elsewhere"}}, "elsewhere/dataset.json does not exist"),
        (
            {"datasets__both__evaluation_overlap": "drop", "evaluation": {}, "runs__first__finetune": {}},
            "evaluation: missing, but a dataset sets evaluation_overlap",
        ),
        (
            {"corpora__wikipedia__templates": {"x": 1}, "corpora__wikipedia__extractor": "wikiextractor"},
            "corpora.wikipedia.templates: given '{'x': 1}', but wikiextractor keeps no templates; leave one of the two",
        ),
        (
            {"corpora__wikipedia__list_items": "all", "corpora__wikipedia__extractor": "wikiextractor"},
            "corpora.wikipedia.list_items: given 'all', but wikiextractor keeps no list items; leave one of the two",
        ),
        (
            {"corpora__wikipedia__tables": "text", "corpora__wikipedia__extractor": "wikiextractor"},
            "corpora.wikipedia.tables: given 'text', but wikiextractor keeps no tables; leave one of the two out",
        ),
        (
            {"corpora__wikipedia__paths": ["a.xml"]},
            "corpora.wikipedia.dump: given '20260101', but paths name the files; leave one of the two out",
        ),
        (
            {"corpora__wikipedia__salvage": True},
            "corpora.wikipedia.salvage: given 'True', but it is for files named by paths; leave one of the two out",
        ),
        (
            {"corpora__wikipedia": {"source": "wikimedia", "paths": ["books/one.txt"]}},
            "one.txt does not have the name of a dump",
        ),
        ({"corpora__wikipedia": {"source": "wikimedia", "language": "ltg"}}, "the key 'dump' is missing"),
        (
            {"corpora__books": {"source": "gutenberg", "books": [11]}},
            "the key 'contact' is missing; corpora.books downloads from mirrors of Project Gutenberg",
        ),
        (
            {"corpora__books__format": "leipzig"},
            "corpora.books.sentences: given 'punkt', but the Leipzig corpora have one sentence per line; set sentences",
        ),
        (
            {
                "corpora__books": {
                    "source": "files",
                    "urls": [{"url": f"https://h/{n}/a.txt", "sha256": "0" * 64} for n in "12"],
                }
            },
            "corpora.books.urls: two files would be called 'a.txt'",
        ),
        (
            {"corpora__books": {"source": "files", "urls": [{"url": "https://h/a.txt", "sha256": "0" * 64}]}},
            "corpora.books.urls: the sha256 of 'a.txt' repeats '0'; put in the file's",
        ),
        (
            {"corpora__books": {"source": "files", "urls": [{"url": "https://h/a.txt"}]}},
            "corpora.books.urls.0: the key 'sha256' is missing",
        ),
        (
            {
                "corpora__books": {
                    "source": "files",
                    "paths": ["books/*"],
                    "urls": [{"url": "https://h/a", "sha256": "0" * 64}],
                }
            },
            "corpora.books.urls: given with paths; leave one of the two out",
        ),
        (
            {"corpora__books__sentences": "unicode", "corpora__books__punkt": "model"},
            "corpora.books.punkt: given 'model', but sentences is unicode",
        ),
        (
            {"corpora__books__sentences": "sentencex"},
            "corpora.books: sentences is sentencex, and sentence_language is missing",
        ),
        (
            {"corpora__books__sentence_language": "de"},
            "corpora.books: sentences is punkt, and sentence_language is 'de'",
        ),
        (
            {"datasets__both__corpora": [f"corpus{number}" for number in range(257)]},
            "allowed is a list with at most 256 entries",
        ),
        (
            {"datasets__both__evaluation_overlap": "report", "evaluation__tables": TABLES},
            "evaluation: 34 sets are given, allowed are 32",
        ),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line(settings: dict, message: str) -> None:
    with pytest.raises(BertlineError) as caught:
        plan_of(changed(**settings))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


DUMP = b"<mediawiki><siteinfo></siteinfo></mediawiki>"


def corpus_of(settings: dict, **others: object) -> dict:
    return next(
        iter(plan_of(changed(corpora={"c": settings}, datasets__both__corpora=["c"], **others)).corpora.values())
    )


def test_a_dump_that_is_here_needs_no_contact_and_is_identified_by_its_content() -> None:
    for folder, names in (("a", ["w10.xml.bz2", "w9.xml.bz2"]), ("b", ["x1.xml", "x2.xml"])):
        Path(folder).mkdir()
        for number, name in enumerate(sorted(names, key=len)):
            Path(folder, name).write_bytes(DUMP + b"%d" % number)
    online = {"mirrors": ["https://dumps.wikimedia.org"]}
    here = corpus_of({"source": "wikimedia", "paths": ["a/*"], "language": "ltg"}, **online)
    assert [file["file"] for file in here["listing"]["parts"].values()] == ["a/w9.xml.bz2", "a/w10.xml.bz2"]
    assert "wiki" not in here
    assert corpus_of({"source": "wikimedia", "paths": ["b/*"]})["key"] == here["key"]
    assert corpus_of({"source": "wikimedia", "paths": ["a/*"], "salvage": True})["key"] != here["key"]
    assert plan_of(changed(corpora__wikipedia={"source": "wikimedia", "paths": ["none.xml"]})).problems == [
        "configuration: corpora.wikipedia.paths: no file matches 'none.xml'; put it there or change the key"
    ]


def test_the_parts_of_a_large_dump_are_found_by_their_official_names() -> None:
    names = ["w1.xml-p1p9.bz2", "w2.xml-p10p99.bz2"]
    for name in names:
        Path(name).write_bytes(DUMP)
    parts = corpus_of({"source": "wikimedia", "paths": ["w*.xml-p*.bz2"]})["listing"]["parts"]
    assert [part["file"] for part in parts.values()] == names


def test_a_url_that_is_of_no_text_by_its_name_is_refused_before_it_is_downloaded() -> None:
    url = {"url": "https://host/one.pdf", "sha256": hashlib.sha256(b"One book.").hexdigest()}
    with pytest.raises(BertlineError, match=r"https://host/one\.pdf is no plain text by its name; convert it"):
        corpora_of(urls=[url])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("w1.xml-p1p9.bz2", "is XML, not plain text; of a wiki's dump use `source: wikimedia`"),
        ("a.warc.wet.gz", "is of a web crawl, not plain text; use `source: warc`"),
        ("a.PDF", "is no plain text by its name; convert it to .txt or .html, or leave it out"),
    ],
)
def test_a_file_that_is_no_text_by_its_name_is_refused_when_planning(name: str, message: str) -> None:
    Path("books", name).write_text("a")
    with pytest.raises(BertlineError, match=re.escape(f"books/{name} {message}")):
        corpora_of(paths=["books/*"])
    assert corpora_of(paths=["books/*.txt"])


def test_of_an_unpacked_leipzig_corpus_only_the_sentences_are_read() -> None:
    kinds = ("sentences", "words", "sources", "inv_so", "inv_w", "co_n", "co_s")
    for name in (*(f"deu/deu_news-{kind}.txt" for kind in kinds), "deu/own.txt", "deu/deu_news-more.zip"):
        Path("books", name).parent.mkdir(exist_ok=True)
        Path("books", name).write_text("1\tOne.\n")
    asked = {"format": "leipzig", "sentences": "lines"}
    found = corpora_of(paths=["books/deu/*"], **asked)["books"]["parts"]["part-00000"]
    assert [Path(file).name for file in found] == ["deu_news-more.zip", "deu_news-sentences.txt", "own.txt"]
    assert (
        len(corpora_of(paths=["books/deu/*.txt"], sentences="lines")["books"]["parts"]["part-00000"]) == len(kinds) + 1
    )
    Path("books/deu/deu_news-sentences.txt").unlink()
    assert len(corpora_of(paths=["books/deu/*.txt"], **asked)["books"]["parts"]["part-00000"]) == len(kinds)


def test_files_to_download_are_the_corpus_that_they_are_when_they_are_here() -> None:
    here = corpus_of({"source": "files", "paths": ["books/*.txt"]})
    url = {"url": "https://host/one.txt", "sha256": hashlib.sha256(b"One book.").hexdigest()}
    plan = plan_of(changed(corpora={"c": {"source": "files", "urls": [url]}}, datasets__both__corpora=["c"]))
    (corpus,) = plan.corpora.values()
    assert corpus["key"] == here["key"]
    assert corpus["parts"] == {"part-00000": [f"resources/texts/{url['sha256']}/./one.txt"]}
    assert plan.downloads[f"resources/texts/{url['sha256']}/one.txt"] == url
    assert plan.problems == []


def test_gutenberg_s_books_are_downloads_by_number_with_checksums_if_given() -> None:
    books = {"source": "gutenberg", "books": [84, 11]}
    contact = {"contact": "me@university.edu"}
    plan = plan_of(changed(corpora={"c": books}, datasets__both__corpora=["c"], **contact))
    (corpus,) = plan.corpora.values()
    assert corpus["parts"] == {"part-00000": ["resources/gutenberg/11.txt", "resources/gutenberg/84.txt"]}
    assert plan.downloads["resources/gutenberg/11.txt"] == {}
    assert corpus_of({**books, "books": [11, 84]}, **contact)["key"] == corpus["key"]
    sums = {book: hashlib.sha256(book.encode()).hexdigest() for book in ("11", "84")}
    Path("sums").write_text("".join(f"{digest}  {book}.txt\n" for book, digest in sums.items()))
    plan = plan_of(changed(corpora={"c": {**books, "sha256": "sums"}}, datasets__both__corpora=["c"], **contact))
    assert plan.downloads["resources/gutenberg/84.txt"] == {"sha256": sums["84"]}
    assert set(plan.corpora) != {corpus["key"]}
    with pytest.raises(BertlineError, match=r"books: sums has no checksum of book 12; add it"):
        corpus_of({**books, "books": [12], "sha256": "sums"}, **contact)
    Path("resources/gutenberg").mkdir(parents=True)
    Path("resources/gutenberg/84.txt").write_text("another")
    with pytest.raises(BertlineError, match=r"84\.txt has another checksum than sums states; delete it"):
        corpus_of({**books, "sha256": "sums"}, **contact)


def test_absent_inputs_are_problems_of_a_real_run_only() -> None:
    Path("books/one.txt").unlink()
    assert plan_of(CONFIG).problems == [
        "configuration: corpora.books.paths: no file matches 'books/*.txt'; put it there or change the key"
    ]


def test_a_folder_in_place_of_files_is_reported_as_such() -> None:
    (problem,) = plan_of(changed(corpora__books__paths=["books"])).problems
    assert problem.endswith("no file matches 'books'; it is a folder: name its files, such as 'books/*'")


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("books/r [final].txt", "brackets are wildcards: write 'books/r [[]final].txt' for those in a name"),
        ("books [2]/*.txt", "brackets are wildcards: write 'books [[]2]/*.txt' for those in a name"),
        ("books [2]", "it is a folder: name its files, such as 'books [[]2]/*'"),
        ("~/*.txt", "~ is not expanded: write '/home/me/*.txt'"),
        ("books/[no].txt", "put it there or change the key"),
    ],
)
def test_a_pattern_that_means_something_else_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch, pattern: str, advice: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    Path("books/r [final].txt").touch()
    Path("books [2]").mkdir()
    Path("books [2]/a.txt").touch()
    (problem,) = plan_of(changed(corpora__books__paths=[pattern])).problems
    assert problem == f"configuration: corpora.books.paths: no file matches '{pattern}'; {advice}"


def test_links_that_lead_nowhere_are_problems() -> None:
    for name in ("two.txt", "three.txt"):
        Path("books", name).symlink_to(f"gone/{name}")
    for pattern in ("books/*.txt", "books/**/*.txt"):
        plan = plan_of(changed(corpora__books__paths=[pattern]))
        assert plan.problems == [
            "configuration: corpora.books.paths: books/three.txt is a link to gone/three.txt, which does not exist, "
            "and 1 more lead nowhere; put it there, or remove the link"
        ]
    (problem,) = plan_of(changed(corpora__books__paths=["books/two.txt"])).problems
    assert problem.endswith(
        "books/two.txt is a link to gone/two.txt, which does not exist; put it there, or remove the link"
    )


def test_two_links_to_a_folder_above_are_not_followed(no_hang: Callable[[], None]) -> None:
    """Python's glob follows each 40 times, in any order."""
    for name in ("l1", "l2", "deep/l3"):
        Path("books", name).parent.mkdir(exist_ok=True)
        Path("books", name).symlink_to(Path("books").absolute())
    no_hang()
    Path("books/deep/other.txt").touch()
    assert find_files("books/**/o*") == (["books/deep/other.txt", "books/one.txt"], [])
    assert find_files("books/**/*/**/o*") == (["books/deep/other.txt"], [])


NAMES = st.sampled_from(["a", "b.txt", ".h", "x[1].txt", "é.TXT", "a?b"])
WILDCARDS = st.sampled_from(
    ["**", "*", "*.txt", ".*", "?", "[!a]*", "x[[]1].txt", "é*", "**a", "a", ".h", "b.txt", ".."]
)


@settings(deadline=None, max_examples=150)
@example(files=[], link=("b.txt", "s"), pattern=["b.txt", "*"])
@given(
    files=st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=8),
    link=st.tuples(NAMES, st.sampled_from(["s", "o", "s/a"])),
    pattern=st.lists(WILDCARDS, min_size=1, max_size=4).filter(lambda parts: parts.count("**") < 3),
)
def test_patterns_mean_what_they_mean_for_glob(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], link: tuple[str, str], pattern: list[str]
) -> None:
    assume(link[1] != "s" or pattern.count("**") < 2)  # glob follows a loop 40 times for each
    folder = tmp_path_factory.mktemp("tree")
    for file in (["s", "o.txt"], ["o", "b.txt"], ["o", "a", "c.txt"], *(["s", *parts] for parts in files)):
        path = folder.joinpath(*file)
        with suppress(OSError):  # a file is in the place of a folder, or the other way round
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    with suppress(OSError):
        (folder / "s" / link[0]).symlink_to(folder / link[1])
    given = f"{folder}/s/{'/'.join(pattern)}"
    expected = {
        str(path)
        for path in map(Path, glob.glob(given, recursive=True))
        if path.is_file() and not leads_back(path.parent, fixed_part(given))  # a link that is named is followed
        # A file is no folder, although glob finds "file/**".
        if pattern[-1] != "**" or len(pattern) == 1 or not path.match("/".join(pattern[:-1]))
    }
    found = {path for path in find_files(given)[0] if path in expected or pattern[-1] != "**"}
    assert found == expected


def leads_back(folder: Path, start: Path) -> bool:
    above = [one for one in (folder, *folder.parents) if one.is_relative_to(start) and one.name != ".."]
    return len({os.path.realpath(parent) for parent in above}) < len(above)


@pytest.mark.parametrize(("contact", "problems"), [("you@university.edu", 1), ("me@university.edu", 0)])
def test_the_contact_of_the_example_is_not_sent_to_wikimedia(contact: str, problems: int) -> None:
    found = plan_of({**CONFIG, "contact": contact, "mirrors": ["https://dumps.wikimedia.org"]}).problems
    assert [problem.startswith("configuration: contact: still you@") for problem in found] == [True] * problems
    assert plan_of({**CONFIG, "contact": contact}).problems == []


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
    ("precisions", "carry_over", "affected"),
    [
        (("fp16", "fp16"), "everything", True),
        (("fp16", "fp16"), "weights+moments", False),
        (("bf16", "fp16"), "everything", False),
        (("bf16", "bf16"), "everything", False),
    ],
)
def test_only_phases_that_take_over_a_loss_scale_have_a_new_fingerprint(
    precisions: list[str], carry_over: str, affected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ({**PHASE, "precision": precision} for precision in precisions)
    config = changed(runs__first__phases={"a": first, "b": {**second, "carry_over": carry_over}})
    now = plan_of(config)
    monkeypatch.setattr("bertline.planning.phases._continues_loss_scale", lambda *given: False)
    assert (plan_of(config).phases.keys() != now.phases.keys()) == affected


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


def finished_dataset(path: Path, *, static_masks: bool) -> dict:
    """A configuration with nothing but somebody's finished dataset."""
    card = {"fingerprint": "e" * 16, "static_masks": static_masks, "sequence_lengths": {"128": {}}}
    write_json(path / "dataset.json", {**card, "corpora": [{"name": "books"}]})
    runs = {"theirs": {"dataset": "theirs", "model": "bert-tiny", "phases": {"phase1": PHASE}}}
    return {"datasets": {"theirs": {"path": str(path)}}, "runs": runs}


def test_a_finished_dataset_needs_no_corpora(tmp_path: Path) -> None:
    plan = plan_of(finished_dataset(tmp_path / "theirs", static_masks=True))
    assert plan.corpora == {}
    assert plan.dataset_folder("e" * 16) == "theirs"  # as it is in this folder, which may move


@pytest.mark.parametrize("static_masks", [False, True])
def test_masking_is_not_a_setting_for_a_dataset_that_is_masked_already(tmp_path: Path, static_masks: bool) -> None:
    config = finished_dataset(tmp_path / "theirs", static_masks=static_masks)
    config["runs"]["theirs"]["phases"]["phase1"] = {**PHASE, "masking": {"max_predictions": 20}}
    if not static_masks:
        plan_of(config)
        return
    with pytest.raises(BertlineError) as caught:
        plan_of(config)
    assert str(caught.value) == (
        "configuration: runs.theirs.phases.phase1.masking: given {'max_predictions': 20}, but the dataset's samples "
        "were masked before and keep their masks; leave it out"
    )


@pytest.mark.parametrize("change", [{}, {"short_sequence_probability": 0.1}, {"pair_objective": "next_sentence"}])
def test_passes_that_would_all_make_the_same_samples_are_one_line(change: dict[str, Any]) -> None:
    """Without pairs, only the samples that are shorter by chance differ between passes."""
    settings = {"passes": 3, "pair_objective": "none", "short_sequence_probability": 0, **change}
    config = changed(datasets__both={**CONFIG["datasets"]["both"], **settings})
    if change:
        plan_of(config)
        return
    with pytest.raises(BertlineError, match=r"datasets\.both\.passes: given 3, but .* make the same samples; leave it"):
        plan_of(config)


def corpora_of(**books: object) -> dict[str, dict]:
    plan = plan_of(changed(corpora__books={"source": "files", **books}))
    return {entry["name"]: {**entry, "key": key} for key, entry in plan.corpora.items()}


def test_the_location_of_a_folder_of_texts_alters_nothing(tmp_path: Path) -> None:
    Path("elsewhere/sub").mkdir(parents=True)
    Path("elsewhere/sub/one.txt").write_text("One book.")
    here = corpora_of(paths=["books/*.txt"])["books"]
    there = corpora_of(paths=[f"{tmp_path}/elsewhere/sub/*.txt"])["books"]
    assert here["key"] == there["key"]
    assert here["parts"] == {"part-00000": ["books/./one.txt"]}
    deeper = corpora_of(paths=["elsewhere/**/*.txt"])["books"]
    assert deeper["parts"] == {"part-00000": ["elsewhere/./sub/one.txt"]}
    assert deeper["key"] != here["key"]


def test_a_file_that_two_patterns_name_is_read_once_and_two_of_one_name_are_refused() -> None:
    assert corpora_of(paths=["books/*.txt", "books/one.txt"])["books"]["parts"] == {"part-00000": ["books/./one.txt"]}
    Path("more").mkdir()
    Path("more/one.txt").write_text("Another book.")
    with pytest.raises(BertlineError, match=r"books/one\.txt and more/one\.txt would both be called 'one\.txt'"):
        corpora_of(paths=["books/*.txt", "more/*.txt"])


def test_many_small_files_make_the_same_parts_wherever_they_are() -> None:
    for number in range(2500):
        Path(f"books/a-rather-long-name-of-a-file-{number:05d}.txt").touch()
    here = corpora_of(paths=["books/*.txt"])["books"]
    assert sum(map(len, here["parts"].values())) == 2501
    elsewhere = Path("a-long-name-of-a-folder" * 5)
    Path("books").rename(elsewhere)
    there = corpora_of(paths=[f"{elsewhere}/*.txt"])["books"]
    assert there["key"] == here["key"]
    names = [[[Path(file).name for file in files] for files in corpus["parts"].values()] for corpus in (here, there)]
    assert names[0] == names[1]
    assert len(names[0]) > 1


def test_a_dataset_of_the_hub_needs_a_pinned_revision() -> None:
    books = {"source": "huggingface", "dataset": "some/books", "split": "train", "parts": 3}
    with pytest.raises(BertlineError, match="the key 'revision' is missing"):
        plan_of(changed(corpora__books=books))
    for moving in ("main", "v1.0", "abc1234"):
        with pytest.raises(BertlineError, match=r"corpora\.books\.revision: given .*, allowed is text matching"):
            plan_of(changed(corpora__books={**books, "revision": moving}))
    plan = plan_of(changed(corpora__books={**books, "revision": "0" * 40}))
    other = plan_of(changed(corpora__books={**books, "revision": "1" * 40}))
    assert list(plan.corpora[plan.corpus_of_name["books"]]["parts"]) == ["part-00000", "part-00001", "part-00002"]
    assert plan.corpus_of_name["books"] != other.corpus_of_name["books"]


def test_links_lead_from_names_to_folders_and_follow_the_configuration() -> None:
    plan = plan_of(CONFIG)
    write_links(plan, existing_only=False)
    run = plan.runs["first"]
    assert Path("results/runs/first/phase1").resolve() == Path("results/phases", run["phases"]["phase1"]).resolve()
    assert Path("results/runs/first/squad_v1/seed2").is_symlink()
    other = plan_of(changed(runs__first__seed=7))
    write_links(other, existing_only=True)
    assert Path("results/runs/first/phase1").readlink().name == run["phases"]["phase1"]
    write_links(other, existing_only=False)
    assert Path("results/runs/first/phase1").readlink().name == other.runs["first"]["phases"]["phase1"]


def test_a_name_of_a_training_has_its_state() -> None:
    plan = plan_of(CONFIG)
    steps, folder = PHASE["steps"], Path("results/phases", plan.runs["first"]["phases"]["phase1"])

    def state() -> str:
        return dict(target_states(plan, "first/phase1"))["results/runs/first/phase1"]

    assert state() == "planned"
    lock = folder / paths.LOCK
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"pid": 7, "host": "gpu1", "process_started": 0, "job": "12"}))
    assert state() == "trains: no step is saved"
    (folder / paths.DURABLE).write_text('{"step": 3}')
    assert state() == f"trains: step 3 of {steps} is saved"
    os.utime(lock, (0, 0))  # no heartbeat
    assert state() == f"started: step 3 of {steps} is saved"


def test_the_latest_report_is_the_last_one_that_exists() -> None:
    made, planned = plan_of(CONFIG), plan_of(changed(runs__first__seed=7))
    page = Path("results/report", report_fingerprint(made), "index.html")
    page.parent.mkdir(parents=True)
    page.touch()
    for plan in (made, planned):
        write_links(plan, existing_only=False)
        assert Path("results/report/latest/index.html").resolve() == page.resolve()


def test_the_record_names_every_part_of_a_run() -> None:
    described = record(plan_of(CONFIG), "first")
    assert [phase["name"] for phase in described["phases"]] == ["phase1", "phase2"]
    assert [finetuning["name"] for finetuning in described["finetunings"]] == [
        "squad_v1/seed1",
        "squad_v1/seed2",
        "squad_v1/random-weights-0.001/seed1",
        "squad_v1/random-weights-0.001/seed2",
    ]


def test_a_name_in_the_registry_alters_neither_fingerprint_nor_record() -> None:
    before, after = plan_of(CONFIG), plan_of(changed(runs__first__register="river-bert"))
    assert record(before, "first") == record(after, "first")
    with pytest.raises(BertlineError, match=r"^configuration: runs\.first\.register: given 'a/b', allowed is text"):
        plan_of(changed(runs__first__register="a/b"))


def test_a_setting_without_effect_is_one_line_naming_its_key() -> None:
    config = changed(runs__first__phases__phase2={**PHASE, "schedule": "linear", "decay": 0.2})
    with pytest.raises(BertlineError, match=r"^configuration: runs\.first\.phases\.phase2\.decay: given 0\.2, but"):
        plan_of(config)
    config = changed(runs__first__phases__phase2={**PHASE, "batch_size_warmup": {"from": 9, "steps": 3}})
    with pytest.raises(BertlineError, match=r"runs\.first\.phases\.phase2\.batch_size_warmup\.from: given 9"):
        plan_of(config)


# Fine-tunings


def with_tasks(evaluation: dict, finetune: dict) -> dict:
    return changed(evaluation=evaluation, runs__first__finetune=finetune)


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


def make_files(*paths: str) -> None:
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(path)


MNLI = ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv", "test_matched.tsv", "test_mismatched.tsv")


def test_a_folder_of_glue_is_in_the_official_layout_or_in_that_of_the_hub() -> None:
    make_files(*(f"glue/MNLI/{name}" for name in MNLI), "glue/diagnostic/diagnostic.tsv")
    splits = ("train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched")
    make_files(*(f"hub/mnli/{name}-00000-of-00001.parquet" for name in splits))
    make_files("hub/ax/test-00000-of-00001.parquet")
    for folder, names in (("glue", MNLI), ("hub", [f"{split}-00000-of-00001.parquet" for split in splits])):
        for tests, kept in ((False, 3), (True, 5)):
            plan = plan_of(with_tasks({"glue": folder}, {"glue": {"mnli": {"predict_test": tests}}}))
            (entry,) = plan.finetunings.values()
            files = entry["data"]
            assert list(files)[:3] == ["train", "dev", "dev_mismatched"]
            assert [Path(path).name for path in files.values()][:kept] == list(names)[:kept]
            assert ("diagnostic" in files) == tests
            assert not plan.problems


SPLITS = ("train", "dev")
DATA_OF_THREE = {
    "squad_v1": {"train": "train.json", "dev": "dev.json"},
    "glue": "glue",
    "tables": {"mine": {"kind": "tagging", "train": "train.conll", "dev": "dev.conll", "word": 0, "tag": -1}},
}
THREE_TASKS = {"squad_v1": {"seeds": 2}, "glue": {"rte": {}, "cola": {}}, "tables": {"mine": {}}}


@pytest.mark.parametrize(
    ("gone", "task", "line"),
    [
        ("dev.json", "squad_v1", "squad_v1 is left out: evaluation.squad_v1.dev: dev.json does not exist"),
        ("glue/RTE/dev.tsv", "glue/rte", "glue.rte is left out: evaluation.glue: glue/RTE/dev.tsv does not exist"),
        ("train.conll", "table/mine", "tables.mine is left out: evaluation.tables.mine.train: train.conll does not"),
    ],
)
def test_a_task_without_a_file_is_left_out_with_one_line_and_the_others_are_not(
    gone: str, task: str, line: str
) -> None:
    make_files(*(f"glue/{task}/{name}.tsv" for task in ("RTE", "CoLA") for name in SPLITS))
    for name in ("train", "dev"):
        Path(f"{name}.conll").write_text("We O\n")
    whole = plan_of(with_tasks(DATA_OF_THREE, THREE_TASKS))
    assert not whole.skipped
    Path(gone).unlink()
    plan = plan_of(with_tasks(DATA_OF_THREE, THREE_TASKS))
    assert not plan.problems
    ((key, told),) = plan.skipped.items()
    assert key == ("first", task)
    assert told.startswith(f"runs.first.finetune.{line}")
    assert told.endswith("; put the file there or change the key")
    left = {key: entry for key, entry in whole.finetunings.items() if entry["data"]["dev"] != gone}
    left = {key: entry for key, entry in left.items() if entry["data"]["train"] != gone}
    assert plan.finetunings == left
    assert plan.phases == whole.phases
    assert record(plan, "first")["skipped"] == [told]
    assert plan.runs["first"]["fingerprint"] != whole.runs["first"]["fingerprint"]


def test_several_absent_files_of_a_task_are_one_line_and_so_is_a_folder() -> None:
    make_files("glue/CoLA/train.tsv", "glue/CoLA/dev.tsv/by-mistake")
    plan = plan_of(with_tasks({"glue": "glue"}, {"glue": {"cola": {"predict_test": True}}}))
    (line,) = plan.skipped.values()
    assert line.endswith("glue/CoLA/dev.tsv is a folder; put the file there or change the key (and 1 more)")
    assert not plan.finetunings


def test_nothing_is_trained_on_documents_that_an_absent_file_would_drop() -> None:
    make_files(*(f"glue/CoLA/{name}.tsv" for name in SPLITS))
    config = with_tasks({"glue": "glue"}, {"glue": {"cola": {}, "rte": {}}})
    # Its record and its parameters in MLflow name the task, so it is not the run that never asked for it.
    without = plan_of(with_tasks({"glue": "glue"}, {"glue": {"cola": {}}}))
    assert plan_of(config).finetunings == without.finetunings
    assert plan_of(config).runs["first"]["fingerprint"] != without.runs["first"]["fingerprint"]
    for overlap, problems in (("report", 0), ("drop", 1)):
        config["datasets"]["both"]["evaluation_overlap"] = overlap
        plan = plan_of(config)
        assert (len(plan.problems), len(plan.warnings)) == (problems, 1 - problems)


def test_a_set_that_documents_are_compared_with_may_be_absent_where_that_is_only_reported() -> None:
    make_files("glue/CoLA/train.tsv", "glue/CoLA/dev.tsv")
    Path("dev.json").unlink()
    evaluation = {"squad_v1": {"train": "train.json", "dev": "dev.json"}, "glue": "glue"}
    config = with_tasks(evaluation, {"glue": {"cola": {}}})
    config["datasets"]["both"]["evaluation_overlap"] = "report"
    plan = plan_of(config)
    told = "configuration: evaluation: dev.json does not exist, so no document is compared with squad_v1; put it there"
    assert plan.warnings == [f"{told} or change the key"]
    assert list(plan.evaluation["sets"]) == ["glue/cola"]
    assert not plan.problems
    shutil.rmtree("glue")
    assert len(plan_of(config).problems) == 3  # nothing is left to compare with: SQuAD, GLUE, and CoLA as a task


def test_glue_of_the_hub_is_downloaded_at_its_revision() -> None:
    revision = "0123456789abcdef" * 2 + "01234567"
    source = {"dataset": "nyu-mll/glue", "revision": revision}
    plan = plan_of(with_tasks({"glue": source}, {"glue": {"rte": {}}}))
    assert plan.downloads == {
        f"resources/evaluation/{fingerprint(source)}/rte/{split}-00000-of-00001.parquet": {
            "url": f"https://huggingface.co/datasets/nyu-mll/glue/resolve/{revision}/rte/{split}-00000-of-00001.parquet"
        }
        for split in ("train", "validation")
    }
    other = plan_of(with_tasks({"glue": {**source, "revision": revision[::-1]}}, {"glue": {"rte": {}}}))
    assert not plan.finetunings.keys() & other.finetunings.keys()


def test_archives_give_their_members_and_the_diagnostic_set_is_a_file_of_its_own() -> None:
    archive, ax = {"url": "https://host/MNLI.zip"}, {"url": "https://host/AX.tsv"}
    finetune = {"glue": {"mnli": {"predict_test": True}}}
    plan = plan_of(with_tasks({"glue": {"mnli": archive, "diagnostic": ax}}, finetune))
    members = {path: source.get("member") for path, source in plan.downloads.items()}
    assert members == {
        **{f"resources/evaluation/{fingerprint(archive)}/MNLI/{name}": f"MNLI/{name}" for name in MNLI},
        f"resources/evaluation/{fingerprint(ax)}/diagnostic/diagnostic.tsv": None,
    }
    with pytest.raises(BertlineError, match=r"evaluation\.glue\.diagnostic: missing, but .* mnli with predict_test"):
        plan_of(with_tasks({"glue": {"mnli": archive}}, finetune))


def test_a_custom_table_is_identified_by_its_description_and_its_content() -> None:
    make_files("a/train.csv", "a/dev.csv")
    for name in ("train", "dev"):
        Path(f"a/{name}.csv").write_text("t,u,l\none,two,x\n")
    table = {"kind": "classification", "train": "a/train.csv", "dev": "a/dev.csv", "texts": ["t"], "label": "l"}

    def planned(description: dict) -> dict:
        plan = plan_of(with_tasks({"tables": {"mine": description}}, {"tables": {"mine": {"epochs": 5}}}))
        assert list(plan.runs["first"]["finetunings"]) == ["table/mine/seed1"]
        return plan.finetunings

    (entry,) = planned(table).values()
    assert entry["table"] == {"kind": "classification", "texts": ["t"], "label": "l"}
    assert (entry["task"], entry["settings"]["epochs"]) == ("table/mine", 5)
    others = [{**table, "texts": ["t", "u"]}, {**table, "labels": ["x", "y"]}]
    assert all(planned(other).keys() != planned(table).keys() for other in others)
    before = planned(table).keys()
    Path("a/dev.csv").write_text("t,u,l\nthree,four,x\n")
    assert planned(table).keys() != before


TEXTS = {"kind": "classification", "train": "a", "dev": "b", "texts": ["t"], "label": "l"}


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({**TEXTS, "metrics": ["pearson"]}, "metrics: given 'pearson', allowed for classification are accuracy, f1"),
        (
            {**TEXTS, "kind": "regression", "metrics": ["accuracy"]},
            "metrics: given 'accuracy', allowed for regression are pearson, spearman",
        ),
        ({**TEXTS, "kind": "regression", "labels": ["x", "y"]}, "labels: given x, y, but kind regression has numbers"),
        ({**TEXTS, "texts": ["t", "t"]}, "texts: given 't' twice"),
        ({**TEXTS, "texts": ["t", "l"]}, "label: given 'l', which is also one of texts"),
        ({"kind": "tagging", "train": "a", "dev": "b", "tag": 0}, "tag: given 0, which is also the column of the word"),
    ],
)
def test_a_table_that_contradicts_itself_is_one_line_when_planned(table: dict, line: str) -> None:
    with pytest.raises(BertlineError) as caught:
        plan_of(with_tasks({"tables": {"mine": table}}, {"tables": {"mine": {}}}))
    assert str(caught.value).startswith(f"configuration: evaluation.tables.mine.{line}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dev", "columns", "line"),
    [
        ("We O\n", {"tag": 7}, "a/train.conll: line 1: 2 columns, words are in column 0 and tags in 7"),
        ("We O\n", {"tag": -2}, "a/train.conll: line 1: 2 columns, words are in column 0 and tags in -2"),
        ("We\n", {}, "a/dev.conll: line 1: 1 columns, words are in column 0 and tags in -1"),
        ("\n", {}, "a/dev.conll contains no sentence"),
    ],
)
def test_a_tagger_without_a_column_is_left_out_before_anything_is_trained(dev: str, columns: dict, line: str) -> None:
    make_files("a/train.conll", "a/dev.conll", "a/test.conll")
    Path("a/train.conll").write_text("We O\n\nmet\n")
    Path("a/dev.conll").write_text(dev)
    Path("a/test.conll").write_text("We\n")
    files = {name: f"a/{name}.conll" for name in ("train", "dev", "test")}
    table = {"kind": "tagging", **files, **columns}
    plan = plan_of(with_tasks({"tables": {"mine": table}}, {"tables": {"mine": {"predict_test": True}}}))
    (told,) = plan.skipped.values()
    assert told.startswith(f"runs.first.finetune.tables.mine is left out: {line}")
    Path("a/dev.conll").write_text("We O\n")
    table = {"kind": "tagging", **files}
    assert plan_of(with_tasks({"tables": {"mine": table}}, {"tables": {"mine": {"predict_test": True}}})).finetunings


def test_equal_labels_are_one_line_when_planned() -> None:
    table = {"kind": "classification", "train": "a", "dev": "b", "texts": ["t"], "label": "l", "labels": [1, "1"]}
    with pytest.raises(
        BertlineError, match=r"^configuration: evaluation\.tables\.mine\.labels: given '1' more than once"
    ):
        plan_of(with_tasks({"tables": {"mine": table}}, {"tables": {"mine": {}}}))


@pytest.mark.parametrize(
    ("dev", "label", "line"),
    [
        ("t,l\none,x\n", "verdict", "a/train.csv: line 1: no column 'verdict', it has t, l; correct the task's texts"),
        ("", "l", "a/dev.csv: line 1: no column 't', it is empty; correct"),
        ("t,l\none\n", "l", "a/dev.csv: line 2: no column 'l', it has 1 of 2; correct or remove the line"),
        ("t,l\n\xe9t\xe9,x\n", "l", "a/dev.csv is not UTF-8"),
    ],
)
def test_a_table_without_a_column_is_left_out_before_anything_is_trained(dev: str, label: str, line: str) -> None:
    make_files("a/train.csv", "a/dev.csv")
    Path("a/train.csv").write_text("t,l\none,x\n")
    Path("a/dev.csv").write_text(dev, encoding="latin-1")
    table = {"kind": "classification", "train": "a/train.csv", "dev": "a/dev.csv", "texts": ["t"], "label": label}
    plan = plan_of(with_tasks({"tables": {"mine": table}}, {"tables": {"mine": {}}}))
    (told,) = plan.skipped.values()
    assert told.startswith(f"runs.first.finetune.tables.mine is left out: {line}")
    assert not plan.finetunings


@pytest.mark.parametrize(
    ("evaluation", "finetune", "message"),
    [
        ({}, {"tables": {"mine": {}}}, "evaluation.tables.mine: missing, but runs.first.finetune asks for table/mine"),
        ({"glue": {"dataset": "nyu-mll/glue"}}, {"glue": {"rte": {}}}, "evaluation.glue"),
        (
            {"tables": {"mine": {"kind": "tagging", "train": "a", "dev": "b"}}},
            {"tables": {"mine": {"predict_test": True}}},
            "evaluation.tables.mine.test: missing, but predict_test asks for it",
        ),
        (
            {"tables": {"mine": {"kind": "regression", "train": "a", "dev": "b", "texts": ["t"]}}},
            {"tables": {"mine": {}}},
            "evaluation.tables.mine: the key 'label' is missing",
        ),
        (
            {"tables": {"mine": {"kind": "tagging", "train": "a", "dev": "b", "texts": ["t"]}}},
            {"tables": {"mine": {}}},
            "evaluation.tables.mine: unknown key 'texts'",
        ),
    ],
)
def test_a_task_without_its_data_is_one_line(evaluation: dict, finetune: dict, message: str) -> None:
    with pytest.raises(BertlineError) as caught:
        plan_of(with_tasks(evaluation, finetune))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def urls_by_place(plan: Plan) -> dict[str, str]:
    """The URLs of downloads, by their paths below the fingerprints."""
    return {path.split("/", 3)[3]: source["url"] for path, source in plan.downloads.items()}


def test_tables_whose_files_have_one_name_are_downloaded_apart() -> None:
    def table(name: str) -> dict:
        host = f"https://example.org/{name}"
        files = {split: {"url": f"{host}/{split}/data.csv"} for split in ("train", "dev")}
        return {"kind": "classification", **files, "texts": ["text"], "label": "label"}

    config = changed(runs__first__finetune={"tables": {"a.b": {}, "c": {}}})
    config["evaluation"] = {"tables": {name: table(name) for name in ("a.b", "c")}}
    plan = plan_of(config)
    assert urls_by_place(plan) == {
        f"tables/{name}/{split}/data.csv": f"https://example.org/{name}/{split}/data.csv"
        for name in ("a.b", "c")
        for split in ("train", "dev")
    }


def test_urls_that_end_with_one_name_are_downloaded_apart() -> None:
    def urls(task: str) -> dict:
        return {split: {"url": f"https://example.org/{task}/{split}/data.json"} for split in ("train", "dev")}

    config = changed(runs__first__finetune={"squad_v1": {}, "squad_v2": {}})
    config["evaluation"] = {task: urls(task) for task in ("squad_v1", "squad_v2")}
    config["datasets"]["both"]["evaluation_overlap"] = "report"
    plan = plan_of(config)
    places = [f"{task}/{split}/data.json" for task in ("squad_v1", "squad_v2") for split in ("train", "dev")]
    assert urls_by_place(plan) == {place: f"https://example.org/{place}" for place in places}
    for entry in plan.finetunings.values():
        found = {split: plan.downloads[path]["url"] for split, path in entry["data"].items()}
        assert found == {split: f"https://example.org/{entry['task']}/{split}/data.json" for split in ("train", "dev")}


@pytest.mark.parametrize(
    ("evaluation", "finetune", "change"),
    [
        ({"squad_v1": {"train": "train.json", "dev": {"url": "https://host/a/dev.json"}}}, {"squad_v1": {}}, "dev"),
        ({"boolq": {"url": "https://host/a.zip"}}, {"boolq": {}}, None),
        ({"glue": {"cola": {"url": "https://host/a.zip"}}}, {"glue": {"cola": {}}}, "cola"),
    ],
)
def test_a_changed_source_is_downloaded_to_another_path(evaluation: dict, finetune: dict, change: str | None) -> None:
    before, (given,) = plan_of(with_tasks(evaluation, finetune)).downloads, evaluation.values()
    source = given if change is None else given[change]
    source["url"] = source["url"].replace("/a", "/b")
    other_url = plan_of(with_tasks(evaluation, finetune)).downloads
    source["sha256"] = hashlib.sha256(b"other").hexdigest()
    other_digest = plan_of(with_tasks(evaluation, finetune)).downloads
    assert before
    assert len({*before, *other_url, *other_digest}) == 3 * len(before)


def test_the_makefile_has_the_path_at_which_squad_is_downloaded() -> None:
    dev = yaml.safe_load((ROOT / "config/config.yaml").read_text())["evaluation"]["squad_v1"]["dev"]
    plan = plan_of(with_tasks({"squad_v1": {"train": "train.json", "dev": dev}}, {"squad_v1": {}}))
    (path,) = plan.downloads
    assert f"SQUAD ?= {path}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("url", ["https://x/..", "https://x/a/.", "https://x/a/"])
def test_a_url_whose_last_part_is_not_a_file_name_is_one_line(url: str) -> None:
    with pytest.raises(BertlineError, match=r"evaluation\.squad_v1\.train\.url") as caught:
        plan_of(with_tasks({"squad_v1": {"train": {"url": url}, "dev": "dev.json"}}, {"squad_v1": {}}))
    assert "\n" not in str(caught.value)


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


def test_settings_of_the_defaults_change_no_fingerprint() -> None:
    evaluation = {"squad_v1": {"train": {"url": "https://a.org/a.json"}, "dev": {"url": "https://a.org/b.json"}}}
    plain, written, other = (
        set(plan_of(with_tasks(evaluation, {"squad_v1": settings})).finetunings)
        for settings in (
            {},
            {"synchronise": True, "workers": 2, "learning_rate_scaling": "none"},
            {"synchronise": False},
        )
    )
    assert plain == written
    assert not plain & other


def test_jobs_read_the_plan_of_the_start_without_a_look_at_the_inputs() -> None:
    schema, models = ROOT / "config/config.schema.yaml", ROOT / "config/models"
    config = changed(runs__second={"pretrained": "results/runs/first/phase1@step-10", "finetune": {}})
    plan = plan_of(config)
    write_plan_file(plan, config, schema)
    Path("books/one.txt").unlink()
    read = plan_of_job(config, schema, models)
    assert read == plan
    assert list(read.finetunings) == list(plan.finetunings)
    assert read.checkpoints
    plan_file(config, schema).write_text("{")
    assert plan_of_job(config, schema, models).problems
    assert plan_of_job(changed(datasets__both__shards=3), schema, models).problems


@pytest.mark.fault(row="inputs")
def test_a_damaged_plan_of_the_start_is_made_again(record_property: Any) -> None:
    schema, models = ROOT / "config/config.schema.yaml", ROOT / "config/models"
    config = changed(runs__second={"pretrained": "results/runs/first/phase1@step-10", "finetune": {}})
    plan = plan_of(config)
    write_plan_file(plan, config, schema)
    path, draw = plan_file(config, schema), drawing("plan of the start")
    content = path.read_bytes()
    body = content.partition(b"\n")[2]
    whole = [b"", b"[]", b'{"checkpoints": []}', b"[" * 100_000, body, b"0" * 64 + b"\n" + body]
    Path("books/one.txt").unlink()  # what is made again has a problem
    for damaged in [*whole, *(mutate(content, draw) for _ in range(20 * TIMES))]:
        path.write_bytes(damaged)
        assert damaged == content or plan_of_job(config, schema, models).problems
    record_property("faults", len(whole) + 20 * TIMES)


def test_shards_of_a_size_are_those_of_the_number() -> None:
    Path("books/two.txt.gz").write_bytes(b"x" * 1000)  # counts three times
    Path("books/one.txt").write_text("x" * 2000)
    corpora = {"books": {"source": "files", "paths": ["books/*"]}}
    made, numbered = (
        plan_of(changed(corpora=corpora, datasets__both__corpora=["books"], datasets__both__shards=shards))
        for shards in ({"megabytes": 0.002}, 3)
    )
    assert made.datasets == numbered.datasets
    assert list(made.phases) == list(numbered.phases)
    assert next(iter(made.datasets.values()))["shards"] == ["00000", "00001", "00002", "held_out"]


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"megabytes": 1}, "datasets.both.shards: the size of wikipedia is not known before it is downloaded"),
        ({"megabytes": 0}, "datasets.both.shards.megabytes: given 0"),
        ({}, "megabytes"),
        (0, "datasets.both.shards: given 0"),
    ],
)
def test_a_size_of_shards_that_cannot_be_kept_is_one_line(shards: object, message: str) -> None:
    with pytest.raises(BertlineError, match=re.escape(message)):
        plan_of(changed(datasets__both__shards=shards))


def test_too_many_shards_are_one_line() -> None:
    corpora = {"books": {"source": "files", "paths": ["books/*"]}}
    with pytest.raises(BertlineError, match=r"make \d+ shards, at most 99999 are allowed; raise it"):
        plan_of(
            changed(corpora=corpora, datasets__both__corpora=["books"], datasets__both__shards={"megabytes": 1e-11})
        )


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
        ({"runs__first__description": "alters no result"}, []),
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
    with Path(file).open("a") as changed_file:
        changed_file.write("b\n")
    assert changes(plan_of(config)) == [[what, "", ""] for what in expected]
