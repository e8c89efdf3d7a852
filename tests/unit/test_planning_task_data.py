"""Data of the fine-tuning tasks in the plan: where it is, what is downloaded, and what is left out without it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml
from plan_helpers import ROOT, SPLITS, changed, inputs, make_files, plan_of, with_tasks

from bertline.console import BertlineError
from bertline.fingerprint import fingerprint
from bertline.planning.plan import Plan, record

assert inputs  # the fixture


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


def test_recipes_have_the_checksums_of_files_that_are_neither_downloaded_nor_made() -> None:
    make_files("c.tsv", "q.tsv", "l.tsv", "r.tsv", "t.tsv")
    dev = {"queries": "q.tsv", "candidates": "l.tsv", "qrels": {"url": "https://example.org/r.tsv", "sha256": "0" * 64}}
    ranking = {"m": {"collection": "c.tsv", "train": {"queries": "q.tsv", "triples": "t.tsv"}, "dev": dev}}
    plan = plan_of(with_tasks({"ranking": ranking}, {"ranking": {"m": {}}}))

    def checksums(*files: str) -> dict[str, str]:
        return {file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in files}

    (finetuning,), (collection,) = plan.finetunings.values(), plan.collections.values()
    assert finetuning["sha256"] == checksums("q.tsv", "l.tsv", "t.tsv")
    assert collection["sha256"] == checksums("c.tsv")
    downloaded = {"url": "https://example.org/c.tsv"}
    plan = plan_of(with_tasks({"ranking": {"m": {**ranking["m"], "collection": downloaded}}}, {"ranking": {"m": {}}}))
    assert next(iter(plan.collections.values()))["sha256"] == {}
    plan = plan_of(with_tasks({"glue": {"cola": {"url": "https://example.org/c.zip"}}}, {"glue": {"cola": {}}}))
    assert next(iter(plan.finetunings.values()))["sha256"] == {}


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
