"""Damaged files of a run are one line in the report, the summary and a publication, and the other runs are shown."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write, write_run

from bertline.console import BertlineError
from bertline.reporting import page
from bertline.reporting.hub import find_publication
from bertline.reporting.page import write_report
from bertline.reporting.terminal import summary
from bertline.results.records import read_record
from bertline.tracking.curves import write_curves

RECORD = Path("results/runs/demo/record-0123456789abcdef.json")
CARD = Path("results/datasets") / ("d" * 16) / "dataset.json"
SCORES = Path("results/finetunings/cola-pretrained-0.0005-1/metrics.json")
RECIPE = Path("results/phases/phase1/recipe.json")

Change = Callable[[Any], object]
LENGTH: Callable[[Any], Any] = lambda card: card["sequence_lengths"]["128"]  # noqa: E731


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two runs, of which the second has files of its own."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, tasks=("cola",), seeds=1)
    healthy = {**json.loads(RECORD.read_text()), "run": "healthy", "fingerprint": "f" * 16}
    moved = json.loads(json.dumps(healthy).replace('"results/', '"healthy/'))
    shutil.copytree("results", "healthy")
    moved["kept"] = {}
    other = Path("healthy/runs/demo/record-ffffffffffffffff.json")
    write(other, moved)
    return [RECORD, other]


def change(path: Path, how: Change) -> None:
    content = json.loads(path.read_text())
    how(content)
    write(path, content)


DAMAGES: list[tuple[Path, Change, str]] = [
    (CARD, lambda card: LENGTH(card).pop("samples"), "dataset.json"),
    (CARD, lambda card: LENGTH(card).pop("length_histogram"), "dataset.json"),
    (CARD, lambda card: LENGTH(card).update(samples="many"), "dataset.json"),
    (CARD, lambda card: card.update(evaluation_overlap="text"), "dataset.json"),
    (CARD, lambda card: card.update(corpora=[3]), "dataset.json"),
    (CARD, lambda card: card["corpora"][0].update(documents=None), "dataset.json"),
    (SCORES, lambda scores: scores.update(examples=None), "metrics.json"),
    (SCORES, lambda scores: scores.update(learning_rate=[]) or scores.update(examples=[1]), "metrics.json"),
    (RECIPE, lambda recipe: recipe["settings"].pop("steps"), "a recipe, a card or scores that "),
    (
        RECIPE.parent.with_name("phase2") / "recipe.json",
        lambda recipe: recipe.update(model=7),
        "a recipe, a card or scores that ",
    ),
    (RECIPE, lambda recipe: recipe["settings"].update(learning_rate={}), "a recipe, a card or scores that "),
    (RECORD, lambda record: record["finetunings"][0].update(task=[]), "record-0123456789abcdef.json"),
]


@pytest.mark.parametrize(("path", "how", "named"), DAMAGES)
def test_a_damaged_run_is_one_line_and_the_other_is_in_the_report(
    records: list[Path], path: Path, how: Change, named: str
) -> None:
    change(path, how)
    with pytest.raises(BertlineError) as raised:
        write_report(records, Path("report"))
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).endswith("report/incomplete.html shows the others")
    assert not Path("report/index.html").exists()  # what a failed job of snakemake left of it would be deleted
    shown = Path("report/incomplete.html").read_text()
    assert 'id="healthy"' in shown
    assert 'id="demo"' not in shown
    with pytest.raises(BertlineError, match=named.replace(".", "[.]")):
        write_report(records[:1], Path("alone"))
    assert not Path("alone/index.html").exists()


def test_a_complete_report_replaces_an_incomplete_one(records: list[Path]) -> None:
    change(RECORD, lambda record: record["finetunings"][0].update(task=[]))
    with pytest.raises(BertlineError):
        write_report(records, Path("report"))
    write_report(records[1:], Path("report"))
    assert Path("report/index.html").exists()
    assert not Path("report/incomplete.html").exists()


def test_a_disk_that_is_full_is_not_taken_for_damage(records: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(page, "write_text", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_report(records, Path("report"))


@pytest.mark.parametrize(
    ("path", "how"),
    [
        (SCORES, lambda scores: scores.update(examples=None)),
        (RECORD, lambda one: one["finetunings"][0].update(task=[])),
    ],
)
def test_a_damaged_run_is_one_line_and_the_other_is_in_the_summary(
    records: list[Path], path: Path, how: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    change(path, how)
    with pytest.raises(BertlineError, match="^[^\n]*/" + path.name + "[^\n]*$"):
        summary(records)
    assert capsys.readouterr().out.startswith("healthy\n")


def test_a_damaged_recipe_is_one_line_when_a_run_is_published(records: list[Path]) -> None:
    Path("results/runs/demo/record.json").symlink_to(RECORD.name)
    write(Path("results/phases/phase2/huggingface/model.safetensors"), {})
    change(RECIPE, lambda recipe: recipe["settings"].pop("steps"))
    with pytest.raises(BertlineError, match=r"^results/phases/phase1/recipe[.]json lacks the key 'steps'; .*$"):
        find_publication("demo")
    assert records


@pytest.mark.parametrize(
    "how",
    [
        lambda record: record.update(run="../../outside/x"),
        lambda record: record.update(run="a/b"),
        lambda record: record.update(run=""),
        lambda record: record.update(fingerprint="../../0123456789"),
        lambda record: record["phases"][0].update(name="../../../outside"),
        lambda record: record["phases"][0].update(name="/outside/x"),
        lambda record: record["finetunings"][0].update(task=".."),
        lambda record: record["finetunings"][0].update(name="glue/../../outside/seed1"),
        lambda record: record.update(kept={"../x": "kept-cola"}),
        lambda record: record.update(kept={"glue/cola": "../x"}),
    ],
)
def test_a_name_in_a_record_never_leads_out_of_the_results(records: list[Path], how: Change) -> None:
    change(RECORD, how)
    before = {path for path in Path().rglob("*") if not path.is_relative_to("inside")}
    line = "^[^\n]*/record-0123456789abcdef.json is damaged [(].*(is not a name of|has a slash)[^\n]*$"
    for read in (
        lambda: read_record(RECORD),
        lambda: write_curves([RECORD], Path("inside/curves")),
        lambda: write_report([RECORD], Path("inside/report")),
        lambda: summary([RECORD]),
    ):
        with pytest.raises(BertlineError, match=line):
            read()
    assert {path for path in Path().rglob("*") if not path.is_relative_to("inside")} == before
    assert records
