"""From a configuration to fingerprints: what is shared, what is new, what stays."""

from __future__ import annotations

import copy

import pytest
from plan_helpers import CONFIG, PHASE, changed, inputs, plan_of, with_tasks

from bertline.console import BertlineError
from bertline.files import write_json
from bertline.planning.plan import record
from bertline.planning.recipes import digest_of_record

assert inputs  # the fixture

TABLE = {"kind": "classification", "train": "train.json", "dev": "dev.json", "texts": ["text"], "label": "label"}
TABLES = {f"table{number}": TABLE for number in range(33)}


def test_changing_back_gives_the_old_fingerprints() -> None:
    assert plan_of(CONFIG).runs == plan_of(copy.deepcopy(CONFIG)).runs


def test_a_default_spelled_out_changes_nothing() -> None:
    spelled = changed(runs__first__phases__phase1={**PHASE, "weight_decay": 0.01, "masking": {"probability": 0.15}})
    assert plan_of(spelled).phases.keys() == plan_of(CONFIG).phases.keys()


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
            {"datasets__both__tokenizer": {"train": "bpe", "vocab_size": 260}},
            "datasets.both.tokenizer.vocab_size: given 260, allowed is at least 261",
        ),
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


@pytest.mark.parametrize("names", [("both", "again"), ("again", "both")])
def test_a_finished_dataset_that_the_configuration_makes_is_still_made_by_the_graph(names: tuple[str, str]) -> None:
    ((key, made),) = plan_of(CONFIG).datasets.items()
    card = {"fingerprint": key, "sequence_lengths": {"128": {}, "512": {}}, "corpora": []}
    write_json(f"results/datasets/{key}/dataset.json", card)
    entries = {"both": CONFIG["datasets"]["both"], "again": {"path": f"results/datasets/{key}"}}
    config = changed(datasets={name: entries[name] for name in names})
    config["runs"]["second"] = {**config["runs"]["first"], "dataset": "again"}
    plan = plan_of(config)
    assert plan.built_datasets == {key: made}
    assert plan.runs["second"]["phases"] == plan.runs["first"]["phases"]
