"""Evaluation sets with which documents are compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from plan_helpers import CONFIG, SPLITS, changed, inputs, make_files, plan_of, with_tasks

from bertline.fingerprint import fingerprint

assert inputs  # the fixture


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


@pytest.mark.parametrize("file", ["train.tsv", "dev.tsv", "test.tsv"])
def test_a_dataset_follows_the_files_of_glue_that_documents_are_compared_with(file: str) -> None:
    make_files(*(f"glue/CoLA/{name}.tsv" for name in (*SPLITS, "test")))
    config = with_tasks({"glue": "glue"}, {})
    config["datasets"]["both"]["evaluation_overlap"] = "drop"
    before = plan_of(config).datasets.keys()
    Path("glue/CoLA", file).write_text("changed")
    assert (plan_of(config).datasets.keys() == before) == (file == "train.tsv")


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
