"""The links in results/runs among the settings: they follow the configuration, so they mean what it makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_helpers import PHASE, changed, inputs, plan_of

from bertline.console import BertlineError

assert inputs  # the fixture
TASK = {"squad_v1": {"seeds": 1}}


@pytest.mark.parametrize(
    "name", ["results/runs/first/export", "./results/runs/first/export/", "results/runs/first/phase2", "absolute"]
)
def test_a_run_starts_from_the_final_model_of_another_before_it_exists(name: str) -> None:
    config = changed(runs__first__finetune=TASK)
    name = str(Path("results/runs/first/export").absolute()) if name == "absolute" else name
    config["runs"] = {"short": {"pretrained": name, "finetune": TASK}, **config["runs"]}
    plan = plan_of(config)
    assert plan.problems == []
    last = plan.runs["first"]["phases"]["phase2"]
    assert plan.runs["short"]["finetunings"] == plan.runs["first"]["finetunings"]
    ((_, key),) = plan.runs["short"]["finetunings"].items()
    assert plan.finetunings[key]["initial_weights"] == {"phase": last}
    config["runs"]["first"]["phases"]["phase2"]["learning_rate"] = 0.005
    assert plan_of(config).runs["short"]["finetunings"] != plan.runs["short"]["finetunings"]


def test_a_name_that_the_other_run_does_not_have_is_one_line() -> None:
    config = changed(runs__short={"pretrained": "results/runs/first/squad_v1", "finetune": {}})
    with pytest.raises(
        BertlineError, match=r"runs\.short\.pretrained: given 'squad_v1', allowed are the phases of first"
    ):
        plan_of(config)


def test_a_link_of_a_run_that_is_no_longer_in_the_configuration_is_a_folder() -> None:
    plan = plan_of(changed(runs__short={"pretrained": "results/runs/before/export", "finetune": {}}))
    assert any("results/runs/before/export/config.json" in problem for problem in plan.problems)


def test_a_phase_does_not_start_from_a_link_of_its_configuration() -> None:
    start = {"phase1": {**PHASE, "initial_weights": {"directory": "results/runs/first/export"}}}
    config = changed(runs__second={"dataset": "both", "model": "bert-tiny", "phases": start})
    line = (
        r"runs\.second\.phases\.phase1\.initial_weights\.directory: given results/runs/first/export, a link of this "
        r"configuration; write {run: first, phase: phase2}"
    )
    with pytest.raises(BertlineError, match=line):
        plan_of(config)


@pytest.mark.parametrize("spelling", ["results/runs/first/dataset", "./results/runs/first/dataset/", "absolute"])
def test_a_dataset_is_no_link_of_its_configuration_but_may_be_one_of_another(spelling: str) -> None:
    card = Path("results/datasets/0123456789abcdef/dataset.json")
    card.parent.mkdir(parents=True)
    card.write_text(json.dumps({"fingerprint": "0123456789abcdef", "sequence_lengths": {"128": {}}, "corpora": []}))
    for run in ("first", "before"):
        link = Path(f"results/runs/{run}/dataset")
        link.parent.mkdir(parents=True)
        link.symlink_to("../../datasets/0123456789abcdef")
    path = str(Path("results/runs/first/dataset").absolute()) if spelling == "absolute" else spelling
    with pytest.raises(
        BertlineError, match=r"datasets\.both\.path: given \S+, a link of this configuration, which follows"
    ):
        plan_of(changed(datasets__both={"path": path}, runs__first__phases={"phase1": PHASE}))
    plan = plan_of(
        changed(datasets__both={"path": path.replace("first", "before")}, runs__first__phases={"phase1": PHASE})
    )
    (dataset,) = plan.datasets
    assert plan.dataset_folder(dataset) == "results/runs/before/dataset"


def test_a_fine_tuned_model_of_this_configuration_is_no_folder_of_weights() -> None:
    for name in ("results/runs/first/glue/cola/model", str(Path("results/runs/first/squad_v1/model").absolute())):
        with pytest.raises(
            BertlineError, match=r"runs\.short\.pretrained: given \S+, a link of this configuration; all"
        ):
            plan_of(changed(runs__short={"pretrained": name, "finetune": {}}))
