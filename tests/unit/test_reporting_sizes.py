"""The size of a task's development set, wherever one of its scores is shown: a small set makes a wide error."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from synthetic_runs import write, write_run

from bertline.finetuning.card import model_card
from bertline.reporting.page import write_report
from bertline.reporting.scores import score_rows
from bertline.reporting.terminal import summary
from bertline.results.records import read_record
from bertline.tracking.run_tree import lay_out

DEV, MISMATCHED = 1_234, 1_357


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("squad_v1", "cola"))
    for path in Path("results/finetunings").glob("*/metrics.json"):
        metrics = json.loads(path.read_text())
        examples = {"train": 2000, "dev": DEV, "dev_mismatched": MISMATCHED}
        scores = metrics["scores"]
        if metrics["task"] == "cola":
            scores = {**scores, "accuracy_mismatched": 70.0}
        write(path, {**metrics, "examples": examples, "scores": scores})
    return record


def table(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_a_score_is_of_the_set_that_it_was_computed_on(record: Path) -> None:
    sizes = {(row.group, row.score): row.dev_examples for row in score_rows(read_record(record))}
    assert sizes[("squad_v1", "f1")] == sizes[("glue/cola", "matthews")] == DEV
    assert sizes[("glue/cola", "accuracy_mismatched")] == MISMATCHED


def test_of_a_ranking_the_queries_are_counted(record: Path) -> None:
    for path in Path("results/finetunings").glob("*/metrics.json"):
        write(path, {**json.loads(path.read_text()), "examples": {"dev_queries": 43}})
    assert {row.dev_examples for row in score_rows(read_record(record))} == {43}


def test_sizes_are_in_the_summary_on_the_terminal(record: Path) -> None:
    lines = summary([record]).splitlines()
    assert [line.split()[3] for line in lines if line.startswith("SQuAD 1.1 F1")] == ["1,234"]
    assert [line.split()[3] for line in lines if line.startswith("CoLA Matthews")] == ["1,234"]
    assert "dev set: its number of examples." in " ".join(lines)


def test_sizes_are_in_every_table_and_figure_of_the_report(record: Path) -> None:
    other = Path("results/runs/other/record.json")
    content = json.loads(record.read_text())
    write(other, {**content, "run": "other", "fingerprint": "e" * 16, "config": {**content["config"], "seed": 1}})
    page = write_report([record, other], Path("report")).read_text()
    # Side by side; the scores of each run; their kept models.
    assert re.search(r">SQuAD 1\.1 F1 \(1,234 examples\)</th>", page)
    assert page.count('>SQuAD 1.1</th><td class="n">1,234</td>') == 2
    kept = re.findall(r">SQuAD 1\.1</th><td>pretrained</td>.*?</tr>", page, re.DOTALL)
    assert len(kept) == 2
    assert all('<td class="n">1,234</td>' in row for row in kept)
    # Of a figure: its labels, and the text that describes it.
    assert "SQuAD 1.1 F1 (1,234 examples): pretrained" in page
    assert "1,234 examples" in re.sub("<[^>]+>|\n", " ", Path("report/figures/demo/scores.svg").read_text())
    for name in ("scores", "summary"):
        sizes = {(row["task"], row["score"]): row["dev_examples"] for row in table(f"report/tables/demo/{name}.csv")}
        assert sizes[("squad_v1", "f1")] == str(DEV)
        assert sizes[("glue/cola", "accuracy_mismatched")] == str(MISMATCHED)


def test_runs_whose_sets_differ_in_size_are_not_compared_under_one_size(record: Path) -> None:
    content = json.loads(record.read_text())
    smaller = []
    for entry in content["finetunings"]:
        folder = Path(f"{entry['path']}-smaller")
        folder.mkdir()
        for file in Path(entry["path"]).iterdir():
            if file.is_file():
                (folder / file.name).write_bytes(file.read_bytes())
        metrics = json.loads((folder / "metrics.json").read_text())
        write(folder / "metrics.json", {**metrics, "examples": {"dev": 99}})
        smaller.append({**entry, "path": str(folder)})
    other = Path("results/runs/other/record.json")
    write(other, {**content, "run": "other", "fingerprint": "e" * 16, "finetunings": smaller})
    page = write_report([record, other], Path("report")).read_text()
    assert ">SQuAD 1.1 F1 (1,234, 99 examples); not comparable: the development sets are others</th>" in page


def test_sizes_are_in_the_model_cards(record: Path) -> None:
    write_report([record], Path("report"))
    card = Path("report/model-cards/demo.md").read_text()
    assert "| SQuAD 1.1 | 1,234 | F1 |" in card
    assert re.search(r"\| CoLA \| 1,357 \| accuracy.*mismatched", card)
    (folder, *_) = Path("results/finetunings").glob("cola-pretrained*")
    metrics = json.loads((folder / "metrics.json").read_text())
    recipe = json.loads((folder / "recipe.json").read_text())
    card = model_card(recipe, metrics, "sequence")
    assert "## Scores on the development set (1,234 examples), in percent" in card


def test_sizes_are_tags_of_the_runs_in_mlflow_that_have_scores(record: Path) -> None:
    run = lay_out(read_record(record))
    assert run.tags["bertline.dev_examples"] == "squad_v1 1234, glue/cola 1234"
    task = next(child for child in run.children if child.name == "squad_v1")
    assert {entry.tags["bertline.dev_examples"] for entry in (task, *task.children)} == {"squad_v1 1234"}
