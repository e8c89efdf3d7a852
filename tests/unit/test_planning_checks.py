"""Checks before the first job of a graph; tests/workflow has whole runs of Snakemake that they stop."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertline.console import BertlineError
from bertline.files import write_json
from bertline.planning import checks
from bertline.results import paths


def job(*output: str, inputs: tuple[str, ...] = (), rule: str = "train", dataset: str = "") -> Any:
    return SimpleNamespace(
        output=output,
        input=inputs,
        log=("logs/a/b.log",),
        rule=SimpleNamespace(name=rule),
        wildcards=SimpleNamespace(dataset=dataset),
    )


def plan(**entries: Any) -> Any:
    return SimpleNamespace(
        **({"problems": [], "runs": {}, "built_datasets": {}, "phases": {}, "finetunings": {}} | entries)
    )


def test_files_that_the_configuration_names_are_reported_once():
    here = plan(problems=["a is absent", "b is absent", "c is absent"])
    with pytest.raises(BertlineError, match=r"^a is absent \(and 2 more\)$"):
        checks.check_named_files(here)
    checks.check_named_files(here)


def test_outputs_whose_inputs_were_left_out_are_not_made_again():
    checks.check_inputs_left_out([job("x/model")], {"y/model": "y/dataset.json"})
    with pytest.raises(
        BertlineError, match=r"would delete x/model .* but x/dataset.json is absent; .* x/card x/model` once"
    ):
        checks.check_inputs_left_out([job("x/card", "x/model")], {"x/model": "x/dataset.json"})


def test_only_layouts_of_sentence_order_are_refused():
    settings = {"d-1": "sentence_order", "e-1": "next_sentence"}
    here = plan(
        built_datasets={
            key: {"name": key[0], "settings": {"pair_objective": objective}} for key, objective in settings.items()
        }
    )
    checks.check_layouts(here, [job("o", rule="export_nvidia", dataset="e-1"), job("o", dataset="d-1")])
    with pytest.raises(BertlineError, match=r"^o: datasets.d.pair_objective is sentence_order"):
        checks.check_layouts(here, [job("o", rule="export_gpauloski", dataset="d-1")])


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("results/runs/demo", "logs", "elsewhere"):
        Path(folder).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize("folder", ["results", "results/runs/demo", "logs", "elsewhere"])
def test_a_folder_that_is_written_must_allow_it(folders, monkeypatch, folder):
    """Root may write everywhere, so the answer of the system is replaced."""
    jobs, here = [job("elsewhere/new/file")], plan(runs={"demo": {}})
    checks.check_disk(here, jobs)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != Path(folder))
    with pytest.raises(BertlineError, match=f"^{folder} cannot be written"):
        checks.check_disk(here, jobs)


def test_an_input_from_the_future_is_refused(folders):
    Path("now").touch()
    checks.check_disk(plan(), [job("o", inputs=("now", "absent"))])
    os.utime("now", (time.time(), time.time() + 7200))
    with pytest.raises(BertlineError, match=r"^now is from a time 2.0 hours ahead"):
        checks.check_disk(plan(), [job("o", inputs=("now",))])


def test_what_is_still_to_be_made_is_named(folders):
    Path("made").touch()
    target = job(inputs=("made", "absent"))
    checks.check_made([job("made", inputs=("deleted since",))])
    with pytest.raises(BertlineError, match=r"^absent is still to be made"):
        checks.check_made([target])


def test_a_model_that_no_choice_keeps_is_not_to_be_made(folders):
    """Of a task with several seeds, Snakemake's jobs also make the models that are deleted in the end."""
    for key in ("best", "other", "undecided"):
        folder = Path(paths.FINETUNING.format(finetuning=key))
        folder.mkdir(parents=True)
        (folder / paths.SCORES).touch()
    jobs = {
        key: job(paths.FINETUNING_SCORES.format(finetuning=key), paths.FINETUNED_MODEL.format(finetuning=key))
        for key in ("best", "other", "undecided")
    }
    choice = {"best": "best", "kept": ["best"], "scores": {"best": 2, "other": 1}}
    write_json(paths.KEPT_CHOICE.format(kept="k"), choice)
    checks.check_made([jobs["other"]])
    for key in ("best", "undecided"):
        with pytest.raises(BertlineError, match=f"^results/finetunings/{key}/huggingface is still to be made"):
            checks.check_made([jobs["other"], jobs[key]])


def test_sizes_of_phases_and_tasks_that_no_run_has_are_named():
    site = SimpleNamespace(path="site.yaml", phases=dict.fromkeys(["default", "p", "q"]), finetunings={"sst2": {}})
    lines = list(checks.unused_sizes(plan(phases={"1": {"phase": "p"}}), site))  # type: ignore[arg-type]
    assert lines == [
        "site.yaml: phases.q: no run here has a phase of this name",
        "site.yaml: finetunings.sst2: no run here has this task; it has none",
    ]
