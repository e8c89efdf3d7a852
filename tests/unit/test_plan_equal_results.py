"""Changes of a configuration that change no result: what was made under the old one is found under the new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_helpers import CONFIG, PHASE, changed, inputs, plan_of

from bertline.files import sha256_of_file, write_json
from bertline.fingerprint import STAGE_VERSIONS, fingerprint
from bertline.planning.plan import Plan
from bertline.planning.rankings import add_collection
from bertline.planning.recipes import digest_of_sources

assert inputs  # the fixture
GOPHER = {"cleaning": ["gopher_quality"]}


def without_dump(**corpus: object) -> dict:
    """The configuration with a corpus of files alone, which has these settings."""
    books = {"source": "files", "paths": ["books/*.txt"], **corpus}
    return changed(corpora={"books": books}, datasets__both__corpora=["books"])


def keys_of(plan: Plan) -> list[list[str]]:
    return [sorted(part) for part in (plan.corpora, plan.datasets, plan.phases, plan.finetunings, plan.kept)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"minimum_characters": 1}, {}),
        ({"encoding": "utf8"}, {"encoding": "UTF-8"}),
        ({"encoding": "UTF-8"}, {}),
        ({"encoding": "latin-1"}, {"encoding": "iso-8859-1"}),
        ({"encoding": ["utf-8", "latin1"]}, {"encoding": ["UTF8", "L1"]}),
        ({"language_identification": {"keep": "lv"}}, {"language_identification": {"keep": ["lv"]}}),
        ({"language_identification": {"keep": ["lt", "lv"]}}, {"language_identification": {"keep": ["lv", "lt"]}}),
        ({"unpack_ratio": 500}, {}),
        ({**GOPHER, "stop_words": ["Der", "UND", "der"]}, {**GOPHER, "stop_words": ["der", "und"]}),
        ({**GOPHER, "stop_words": ["The", "be", "to", "of", "and", "that", "have", "with"]}, GOPHER),
    ],
)
def test_a_corpus_does_not_depend_on_how_a_setting_is_written(one: dict, other: dict) -> None:
    assert keys_of(plan_of(without_dump(**one))) == keys_of(plan_of(without_dump(**other)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"encoding": "latin-1"}, {}),
        ({"encoding": ["utf-8", "latin-1"]}, {"encoding": "utf-8"}),
        ({"encoding": ["utf-8", "latin-1"]}, {"encoding": ["utf-8", "cp1252"]}),
        ({"language_identification": {"keep": ["lt", "lv"]}}, {"language_identification": {"keep": "lv"}}),
        ({**GOPHER, "stop_words": ["der", "und"]}, {**GOPHER, "stop_words": ["der", "die"]}),
        ({**GOPHER, "stop_words": []}, GOPHER),
    ],
)
def test_a_corpus_of_other_text_is_another(one: dict, other: dict) -> None:
    assert not plan_of(without_dump(**one)).corpora.keys() & plan_of(without_dump(**other)).corpora.keys()


def test_where_the_evaluation_sets_are_is_no_part_of_the_card_that_reports_the_overlap() -> None:
    def plan_with(dev: str) -> Plan:
        return plan_of(changed(datasets__both__evaluation_overlap="report", evaluation__squad_v1__dev=dev))

    def digests(plan: Plan) -> list[str]:
        return [digest_of_sources(plan, dataset) for dataset in plan.datasets]

    before = digests(plan_with("dev.json"))
    assert digests(plan_with(str(Path("dev.json").absolute()))) == before
    Path("dev.json").rename("moved.json")
    assert digests(plan_with("moved.json")) == before
    Path("moved.json").write_text('{"data": []}')
    assert digests(plan_with("moved.json")) != before


def test_how_a_table_is_scored_and_a_set_that_is_only_trained_on_leave_no_other_document_out() -> None:
    def plan_with(**settings: object) -> Plan:
        table = {"kind": "classification", "train": "train.json", "dev": "dev.json", "texts": ["a"], "label": "b"}
        evaluation = {**changed()["evaluation"], "tables": {"mine": table | settings}}
        return plan_of(changed(datasets__both__evaluation_overlap="drop", evaluation=evaluation))

    before = plan_with()
    scored = plan_with(metrics=["matthews"], labels=["no", "yes"], label="c", texts=["d"])
    assert keys_of(scored) == keys_of(before)
    Path("train.json").write_text("{ }")
    assert keys_of(plan_with())[:3] == keys_of(before)[:3]
    Path("dev.json").write_text("{ }")
    assert keys_of(plan_with())[1] != keys_of(before)[1]


@pytest.mark.parametrize(
    ("evaluation", "finetune"),
    [
        ({"squad_v1": {"train": "train.json", "dev": {}}}, {"squad_v1": {}}),
        ({"boolq": {}}, {"boolq": {}}),
        ({"glue": {"mnli": {}, "diagnostic": {}}}, {"glue": {"mnli": {"predict_test": True}}}),
    ],
)
def test_a_pinned_download_from_a_mirror_is_the_same_data(evaluation: dict, finetune: dict) -> None:
    def keys(host: str, **pinned: str) -> list[list[str]]:
        source = {"url": f"https://{host}/data.zip", **pinned}

        def filled(value: object) -> object:
            return {key: filled(part) for key, part in value.items()} or source if isinstance(value, dict) else value

        config = changed(evaluation=filled(evaluation), runs__first__finetune=finetune)
        return keys_of(
            plan_of(config | {"datasets": {"both": {**config["datasets"]["both"], "evaluation_overlap": "drop"}}})
        )

    assert keys("one", sha256="a" * 64) == keys("other", sha256="a" * 64)
    for other in (keys("one", sha256="b" * 64), keys("one")):
        assert not set(other[1]) & set(keys("one", sha256="a" * 64)[1])
        assert not set(other[3]) & set(keys("one", sha256="a" * 64)[3])
    assert keys("one") != keys("other")


def test_a_pinned_download_is_the_same_data_as_the_file_on_disk() -> None:
    pinned = {"url": "https://host/dev.json", "sha256": sha256_of_file("dev.json")}
    assert keys_of(plan_of(changed(evaluation__squad_v1__dev=pinned))) == keys_of(plan_of(changed()))


def test_of_a_salvaged_dump_the_limit_of_unpacking_decides_what_is_read() -> None:
    Path("dump.xml.gz").write_bytes(b"\x1f\x8b")

    def corpora(**settings: object) -> set[str]:
        wiki = {"source": "wikimedia", "paths": ["dump.xml.gz"], **settings}
        return set(plan_of(changed(corpora={"wiki": wiki}, datasets__both__corpora=["wiki"])).corpora)

    assert corpora(unpack_ratio=500) == corpora()
    assert corpora(unpack_ratio=500, salvage=True) != corpora(salvage=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"warmup": 4}, {"warmup": 4.0}),
        ({"corpus_weights": {"books": 2}}, {"corpus_weights": {"books": 2.0}}),
        ({"corpus_weights": {"books": 2, "wikipedia": 1}}, {"corpus_weights": {"books": 2}}),
        ({"corpus_weights": {"books": 1.0}}, {}),
        ({"corpus_weights": {"books": {"tokens": 1.0e6}}}, {"corpus_weights": {"books": {"tokens": 1_000_000}}}),
        ({"schedule_steps": PHASE["steps"]}, {}),
    ],
)
def test_a_phase_does_not_depend_on_how_a_setting_is_written(one: dict, other: dict) -> None:
    with_one, with_other = (
        plan_of(changed(runs__first__phases={"phase1": {**PHASE, **settings}})) for settings in (one, other)
    )
    assert keys_of(with_one) == keys_of(with_other)
    (phase,), (other_phase,) = with_one.phases.values(), with_other.phases.values()
    assert phase["settings"] == other_phase["settings"]


def test_a_schedule_of_another_length_is_another_phase() -> None:
    def phases(steps: int | None) -> set[str]:
        return set(plan_of(changed(runs__first__phases={"phase1": {**PHASE, "schedule_steps": steps}})).phases)

    assert not phases(PHASE["steps"] + 1) & phases(None)


def test_results_of_settings_in_the_usual_spelling_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.fingerprint.STAGE_VERSIONS", dict.fromkeys(STAGE_VERSIONS, 1))
    phase = {**PHASE, "optimizer": "adamw"}
    plan = plan_of(
        changed(
            corpora__books={**CONFIG["corpora"]["books"], **GOPHER, "stop_words": ["und", "der"]},
            runs__first__phases={"phase1": phase, "phase2": {**phase, "schedule_steps": 20}},
            runs__first__finetune__squad_v1={
                "seeds": 2,
                "grid": {"learning_rate": [2e-5, 3e-5], "batch_size": [8, 16]},
                "random_weights": [1e-4, 1e-3],
            },
        )
    )
    corpora, datasets, phases, finetunings, kept = map(fingerprint, keys_of(plan))
    assert (corpora, datasets) == ("286f132eabda13d8", "34a370d24985a6d5")
    assert (phases, finetunings, kept) == ("5e26845f90f4ecff", "663bcd8fdef1b2a7", "8033baca8b400db4")


def test_phases_and_random_starts_do_not_depend_on_other_sequence_lengths() -> None:
    one, other = plan_of(changed(sequence_lengths=[128, 512])), plan_of(changed(sequence_lengths=[64, 128, 512]))
    assert not one.datasets.keys() & other.datasets.keys()
    assert keys_of(plan_of(changed(sequence_lengths=[512, 128]))) == keys_of(one)
    assert keys_of(one)[2:] == keys_of(other)[2:]
    (dataset,) = other.datasets
    assert {phase["dataset"] for phase in other.phases.values()} == {dataset}


def test_a_finished_dataset_trains_the_same_phases_as_its_configuration_with_another_length() -> None:
    plan = plan_of(changed())
    ((key, entry),) = plan.datasets.items()
    card = {"fingerprint": key, "fingerprint_without_lengths": entry["fingerprint_without_lengths"]}
    corpora = [{"name": name} for name in ("wikipedia", "books")]
    write_json("finished/dataset.json", card | {"sequence_lengths": {"128": {}, "512": {}}, "corpora": corpora})
    given = changed(sequence_lengths=[128], datasets={"both": {"path": "finished"}})
    assert keys_of(plan_of(given))[2:] == keys_of(plan)[2:]


def test_a_tokenized_collection_does_not_depend_on_the_sequence_lengths() -> None:
    content = {"source": "passages.tsv", "content": "0" * 16, "tfrecords": False, "tokenizer": None}
    plans = [plan_of(changed(sequence_lengths=lengths)) for lengths in ([128, 512], [64, 128, 512])]
    folders = {add_collection(plan, **content, dataset=next(iter(plan.datasets))) for plan in plans}
    assert len(folders) == 1


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53), st.text())
def test_equal_numbers_have_equal_fingerprints_and_others_have_not(number: float, key: str) -> None:
    as_other = int(number) if isinstance(number, float) and number.is_integer() else float(number)
    assert fingerprint({key: [number, {key: number}]}) == fingerprint({key: [as_other, {key: as_other}]})
    assert fingerprint({key: number}) != fingerprint({key: number + 1 or 0.5}) or number + 1 == number
    assert fingerprint({key: True}) != fingerprint({key: 1})
