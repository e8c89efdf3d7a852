"""The report page, its tables and figures, and the text at the end of a run."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from synthetic_runs import write, write_journal, write_run

from bertline.console import BertlineError
from bertline.reporting import figures
from bertline.reporting.data import document_lengths
from bertline.reporting.page import write_report
from bertline.reporting.terminal import summary
from bertline.results.journal import read_journal
from bertline.results.records import read_record
from bertline.tasks.registry import TASKS
from bertline.tracking.run_tree import lay_out

SCRIPTS = Path(__file__).parents[2] / "workflow" / "scripts"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(tmp_path)


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.all: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.all.append((tag, dict(attributes)))
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "data")]


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_page_needs_nothing_from_elsewhere(record: Path) -> None:
    page = write_report([record], Path("report"))
    elements = _Elements()
    elements.feed(page.read_text())
    assert not {"script", "link", "img", "iframe"} & set(elements.tags)
    assert all(address.startswith(("#", "../results/runs/")) for address in elements.addresses)
    assert not re.search(r"url\((?!#)|@import", page.read_text())


@pytest.mark.parametrize("runs", [1, 2])
def test_the_page_can_be_used_by_ear_and_by_keyboard(record: Path, runs: int) -> None:
    """What axe-core found once; tests/services/test_report_page.py runs it."""
    other = record.with_name("other.json")
    content = json.loads(record.read_text())
    write(other, {**content, "run": "other", "config": {**content["config"], "seed": 1}})
    elements = _Elements()
    elements.feed(write_report([record, other][:runs], Path("report")).read_text())
    assert ("html", {"lang": "en"}) in elements.all
    assert elements.tags.count("main") == elements.tags.count("h1") == 1
    levels = [int(tag[1]) for tag in elements.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(given.get("scope") in ("col", "row") for tag, given in elements.all if tag == "th")
    rows = [after for before, after in pairwise(elements.all) if before[0] == "tr"]
    assert [first for first in rows if first[0] != "th"] == [("td", {})] * 2 * (runs - 1)  # two empty corners
    scrolling = [given for _, given in elements.all if given.get("class") == "scroll"]
    assert len(scrolling) == elements.tags.count("table")
    assert all(given.get("tabindex") == "0" and given.get("aria-label") for given in scrolling)
    labels = [given["aria-label"] for given in scrolling]
    assert len(set(labels)) == len(labels)
    pictures = [given for tag, given in elements.all if tag == "svg"]
    assert pictures
    assert all(given.get("role") == "img" and given.get("aria-label") for given in pictures)


def test_the_page_shows_every_score_column_and_baseline(record: Path) -> None:
    text = re.sub(r"<[^>]+>", " ", write_report([record], Path("report")).read_text())
    text = re.sub(r"\s+", " ", text)
    scores = "F1 79.4 (78.7..80.1) 57.2 (56.1..58.3) at 5e-4 47.2 (46.3..48.1) at 0.002 3.2 11.5 +22.2 2.2 yes"
    assert f"SQuAD 1.1 400 {scores}" in text
    assert "phase1 200 " in text
    assert "2.900" in text  # the trigram model's loss
    reasons = "redirect 210, too short 90, other namespace 45, near duplicate 7, evaluation overlap 3"
    numbers = "41,000 88 at 128 1,300,000 at 512 CC BY-SA 4.0 and GFDL"
    assert f"wikipedia 2,255 1,900 355 {reasons} {numbers} books 40 40 0 – – –" in text
    assert "wikipedia headings 1,671 28,925 95" in text
    assert "SQuAD 1.1 3 wikipedia 3, books 0 wikipedia &lt;12&gt;" in text
    assert "LAMB, learning rate 0.006, warm-up over 28.43% of the steps" in text
    assert "2.13.0" in text


def test_the_page_shows_what_the_data_card_warns_of(record: Path) -> None:
    path = Path(read_record(record).dataset.path) / "dataset.json"
    write(path, json.loads(path.read_text()) | {"warnings": ["4 shards are <empty>; lower shards"]})
    assert (
        "Warning:</strong> 4 shards are &lt;empty&gt;; lower shards." in write_report([record], Path("r")).read_text()
    )


def test_the_same_inputs_give_the_same_bytes_whatever_the_hash_seed(record: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "report.py"), str(record), "--directory"]
    for seed in ("1", "2"):
        subprocess.run([*command, f"report-{seed}"], check=True, env=os.environ | {"PYTHONHASHSEED": seed})
    assert contents(Path("report-1")) == contents(Path("report-2"))


def test_figures_are_wellformed_and_tables_hold_the_numbers(record: Path) -> None:
    write_report([record], Path("report"))
    figures = sorted(path.name for path in Path("report/figures/demo").iterdir())
    assert figures == [
        "documents.svg",
        "lengths-128.svg",
        "lengths-512.svg",
        "loss-by-hours.svg",
        "loss-by-tokens.svg",
        "loss-of-phase1.svg",
        "loss-of-phase2.svg",
        "scores.svg",
        "throughput.svg",
    ]
    for name in figures:
        ElementTree.parse(f"report/figures/demo/{name}")  # noqa: S314 - our own file
    with open("report/tables/demo/scores.csv", newline="") as file:
        scores = list(csv.DictReader(file))
    assert len(scores) == 9 * 7  # nine fine-tunings of each of the seven scores
    with open("report/tables/demo/corpora.csv", newline="") as file:
        corpora = [line for line in csv.DictReader(file) if line["corpus"] == "wikipedia"]
    everything, *reasons = corpora
    assert int(everything["skipped"]) == sum(int(line["skipped"]) for line in reasons)
    assert int(everything["read"]) == int(everything["kept"]) + int(everything["skipped"])
    journal = [json.loads(line) for line in Path("results/phases/phase1/metrics.jsonl").read_text().splitlines()]
    with open("report/tables/demo/curve-of-phase1.csv", newline="") as file:
        curve = list(csv.DictReader(file))
    assert [float(line["train/mlm_loss"]) for line in curve] == [line["metrics"]["train/mlm_loss"] for line in journal]


@pytest.mark.parametrize("names", [("scores", "by-tokens"), ("summary", "by-hours"), ("cleaning", "overlap")])
def test_a_phase_of_any_name_takes_the_place_of_no_other_table_or_figure(record: Path, names: tuple[str, str]) -> None:
    write_report([record], Path("before"))
    content = json.loads(record.read_text())
    for phase, name in zip(content["phases"], names, strict=True):
        phase["name"] = name
    write(record, content)
    write_report([record], Path("report"))
    before, after = contents(Path("before")), contents(Path("report"))
    assert len(after) == len(before)
    for path in before:
        if path.startswith(("tables/", "figures/")) and "phase" not in path:
            assert after[path] == before[path], path


def test_what_the_report_before_wrote_is_removed_and_what_a_person_put_there_stays(record: Path) -> None:
    theirs = [Path("report", name) for name in ("notes.md", "figures/theirs.svg", "figures/demo/theirs.svg")]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
    other = record.with_name("other.json")
    content = json.loads(record.read_text())
    write(other, content | {"run": "other", "fingerprint": "f" * 16})
    write_report([record, other], Path("report"))
    assert Path("report/figures/held-out-losses.svg").exists()
    write(record, content | {"phases": [], "finetunings": [], "kept": {}})
    write_report([record], Path("report"))
    left = {str(path.relative_to("report")) for path in Path("report").rglob("*") if path not in theirs}
    assert left == {
        *("index.html", "files.json", "figures", "tables", "figures/demo", "tables/demo"),
        *(f"figures/demo/{name}.svg" for name in ("documents", "lengths-128", "lengths-512")),
        *(f"tables/demo/{name}.csv" for name in ("scores", "summary", "corpora", "cleaning", "overlap")),
    }
    assert all(path.read_text() == "theirs" for path in theirs)


def test_a_list_of_a_report_s_files_that_leads_out_of_its_folder_is_one_line(record: Path) -> None:
    write_report([record], Path("report"))
    Path("figures").mkdir()
    Path("figures/theirs.svg").touch()
    write(Path("report/files.json"), {"files": {"figures/../../figures/theirs.svg": ""}})
    with pytest.raises(
        BertlineError, match=r"^report/files\.json is damaged \(figures/\.\./\.\./figures/theirs\.svg is not"
    ):
        write_report([record], Path("report"))
    assert Path("figures/theirs.svg").exists()


def test_on_gpus_the_page_has_the_share_of_their_peak_and_what_the_training_cost(record: Path) -> None:
    """7.5 million tokens at 14,000 a second on 8 GPUs that drew 400 watts each."""
    for phase in Path("results/phases").iterdir():
        lines = [json.loads(line) for line in (phase / "metrics.jsonl").read_text().splitlines()]
        gpu = {"train/model_flops_utilization": 0.42, "system/gpu_percent": 97.0, "system/gpu_power_watts": 400.0}
        write_journal(phase / "metrics.jsonl", [{**line, "metrics": line["metrics"] | gpu} for line in lines])
        write(phase / "recipe.json", {**json.loads((phase / "recipe.json").read_text()), "world_size": 8})
    page = write_report([record], Path("report"))
    figure = Path("report/figures/demo/throughput.svg").read_text()
    assert ">percent of peak<" in figure
    assert ">tokens per second<" in figure
    for text in (as_text(page), Path("report/model-cards/demo.md").read_text()):
        hours, energy = re.search(r"took ([\d.]+) h, summed over the GPUs.* about ([\d.]+) kWh", text).groups()
        assert float(hours) == pytest.approx(8 * 7.5e6 / 14_000 / 3600, rel=0.05)
        assert float(energy) == pytest.approx(0.4 * 8 * 7.5e6 / 14_000 / 3600, rel=0.05)


NOT_OFFICIAL = "No published scores are shown for {}: their development sets are not the official ones."


def change_metrics(task: str, **changed: Any) -> None:
    for path in Path("results/finetunings").glob(f"{task}-*/metrics.json"):
        write(path, {**json.loads(path.read_text()), **changed})


def test_published_scores_are_shown_only_for_the_official_development_set(record: Path) -> None:
    change_metrics("squad_v1", digests=TASKS["squad_v1"].digests)
    text = as_text(write_report([record], Path("official")))
    assert "+22.2 2.2 yes 88.5 90.9" in text
    assert "CoLA 400 Matthews correlation 76.4 (75.7..77.1)" in text
    card = ModelCard.load("official/model-cards/demo.md")
    assert set(card.data.to_dict()) == {"library_name", "pipeline_tag", "tags", "metrics", "model-index"}
    (result,) = [one for one in card.data.eval_results if one.metric_type == "f1"]
    assert (result.dataset_name, result.dataset_type, result.metric_value) == ("SQuAD 1.1", "rajpurkar/squad", 79.4)
    assert NOT_OFFICIAL.format("CoLA, MRPC, RTE") in text
    assert "\nThe development sets are not the official ones for CoLA, MRPC, RTE.\n" in card.text
    assert "published" not in card.text


def test_a_set_as_large_as_the_official_one_is_not_official(record: Path) -> None:
    change_metrics("squad_v1", examples={"dev": 10570})
    change_metrics("cola", examples={"dev": 1043}, digests={})  # as versions before the digests wrote it
    text = as_text(write_report([record], Path("report")))
    assert "BERT-base, published" not in text
    assert NOT_OFFICIAL.format("SQuAD 1.1, MRPC, RTE") in text
    assert "shown for CoLA: whether their development sets are the official ones is not known." in text


def test_development_sets_with_texts_of_training_are_named(record: Path) -> None:
    note = "CoLA: 12 of the 400 examples of the development set have the texts of a training example."
    write_report([record], Path("without"))
    assert "training example" not in summary([record])
    change_metrics("cola", examples={"train": 2000, "dev": 400, "dev_in_train": 12})
    page = write_report([record], Path("report"))
    for text in (as_text(page), Path("report/model-cards/demo.md").read_text(), summary([record])):
        assert text.count(note) == 1


def test_the_model_card_is_one_that_the_hub_reads(record: Path) -> None:
    write_report([record], Path("report"))
    card = ModelCard.load("report/model-cards/demo.md")
    assert card.data.library_name == "transformers"
    assert card.data.eval_results is None  # the development sets are not the official ones
    assert set(card.data.to_dict()) == {"library_name", "pipeline_tag", "tags"}  # keys that the Hub documents
    assert "A tiny BERT on the generated sample." in card.text
    assert "| SQuAD 1.1 | 400 | F1 | 79.4 (78.7..80.1) | 57.2 (56.1..58.3) |" in card.text
    assert "chosen on these same sets: expect lower scores on new data." in card.text
    assert "The development sets are not the official ones for SQuAD 1.1, CoLA, MRPC, RTE." in card.text


def test_the_model_card_names_external_weights_by_their_digest_and_not_by_their_path(record: Path) -> None:
    path = Path("results/phases/phase1/recipe.json")
    initial = {"directory": "/home/me/theirs", "content": "b" * 16}
    write(path, json.loads(path.read_text()) | {"initial_weights": initial})
    write_report([record], Path("report"))
    card = Path("report/model-cards/demo.md").read_text()
    assert f"Starts from the weights in theirs (digest {'b' * 16})." in card
    assert "/home/me" not in card


def test_the_model_card_of_the_best_step_says_of_which_step_its_loss_is(record: Path) -> None:
    write_report([record], Path("last"))
    ended = "Ended with a held-out loss of {:.3f} nats per masked token after"
    losses = dict(zip(*read_record(record).phases[1].series("held_out/mlm_loss"), strict=True))
    assert ended.format(losses[100]) in Path("last/model-cards/demo.md").read_text()
    journal = Path("results/phases/phase2/metrics.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    lines[4]["metrics"]["held_out/mlm_loss"] = 1.25
    write_journal(journal, lines)
    recipe = Path("results/phases/phase2/recipe.json")
    write(recipe, {**json.loads(recipe.read_text()), "published_step": 50})
    write_report([record], Path("best"))
    card = Path("best/model-cards/demo.md").read_text()
    assert "The weights are those of step 50, with a held-out loss of 1.250 nats per masked token. Ended after" in card
    assert ended.format(1.25) not in card


@pytest.mark.parametrize("name", ["results", "differences", "scores", "main"])
def test_no_two_parts_of_a_page_have_the_same_id(record: Path, name: str) -> None:
    other = record.with_name("other.json")
    write(other, {**json.loads(record.read_text()), "run": name, "config": {"seed": 1}})
    for records in ([record, other], [other]):
        elements = _Elements()
        elements.feed(write_report(records, Path("report")).read_text())
        ids = [given["id"] for tag, given in elements.all if given.get("id") and tag in ("main", "section", "h2")]
        assert len(set(ids)) == len(ids)
        links = [str(given["href"])[1:] for tag, given in elements.all if tag == "a" and given["href"].startswith("#")]
        assert {*links} <= {*ids}


def test_the_axes_of_small_numbers_have_no_prefix_of_thousandths(record: Path) -> None:
    journal = Path("results/phases/phase1/metrics.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    lines = [{**line, "metrics": line["metrics"] | {"train/model_flops_utilization": 0.006}} for line in lines]
    write_journal(journal, lines)
    drawn = {
        "speed": figures.throughput(read_record(record).phases),
        "samples": figures.length_histogram("128", [0, 8, 16], [1, 0]),
    }
    labels = {name: re.findall(r"<text[^>]*>([^<]*)</text>", svg) for name, svg in drawn.items()}
    assert not [label for label in labels["speed"] + labels["samples"] if re.fullmatch(r"[\d.]+m", label)]
    assert {"0.2", "0.4"} <= set(labels["speed"])
    assert labels["samples"][-3:] == ["0", "1", "samples"]
    assert ">12k<" in figures.length_histogram("128", [0, 8, 16], [12_000, 1])


@pytest.mark.parametrize(
    ("counts", "edges"),
    [([0, 4, 10, 5], [64, 128, 256, 512]), ([2, 4, 0, 0], [32, 64, 96]), ([0, 0, 10, 0], [128, 256])],
)
def test_lengths_of_documents_are_drawn_from_32_bytes_and_the_open_bin_to_twice_its_start(
    counts: list[int], edges: list[int]
) -> None:
    all_edges = [0, 64, 128 if counts[2] else 96, 256, 2**62]
    card = {"corpora": [{"name": "books", "length_histogram": {"edges": all_edges, "counts": counts}}]}
    assert document_lengths(card) == {"books": (edges, [count for count in counts if count])}


def test_the_header_of_the_model_card_has_the_content_of_the_configuration(record: Path) -> None:
    (dataset,) = Path("results/datasets").glob("*/dataset.json")
    content = json.loads(dataset.read_text())
    sources = [{"source": "wikimedia", "language": code} for code in ("ltg", "simple")]
    sources.append({"source": "huggingface", "dataset": "some/books"})
    sources.append({"source": "warc", "language": "lav"})  # not a Wikipedia's code
    corpora = [{"name": str(number), "documents": 1, "settings": one} for number, one in enumerate(sources)]
    write(dataset, {**content, "corpora": corpora})
    recipe = Path("results/phases/phase1/recipe.json")
    weights = {"directory": "resources/x", "content": "0", "name": "google-bert/x at 0", "hub": "google-bert/x"}
    write(recipe, {**json.loads(recipe.read_text()), "initial_weights": weights})
    write(record, {**json.loads(record.read_text()), "model_card": {"license": "apache-2.0"}})
    write_report([record], Path("derived"))
    header = ModelCard.load("derived/model-cards/demo.md").data
    assert (header.license, header.language) == ("apache-2.0", ["ltg"])
    assert (header.datasets, header.base_model) == (["some/books"], "google-bert/x")
    write(record, {**json.loads(record.read_text()), "model_card": {"language": ["lv", "ltg"]}})
    write_report([record], Path("given"))
    header = ModelCard.load("given/model-cards/demo.md").data
    assert (header.license, header.language) == (None, ["lv", "ltg"])


def test_names_and_descriptions_are_escaped(record: Path) -> None:
    content = json.loads(record.read_text())
    write(record, {**content, "description": "<script>alert(1)</script>"})
    assert "<script" not in write_report([record], Path("report")).read_text()


def test_a_run_that_has_hardly_started_still_gives_a_page(record: Path) -> None:
    for path in Path("results").rglob("*"):
        if path.is_file() and path != record:
            path.unlink()
    page = write_report([record], Path("report")).read_text()
    assert "A tiny BERT on the generated sample." in page
    assert "<h3>Scores</h3>" not in page


def test_a_phase_without_a_trigram_baseline_is_drawn_without_it(record: Path) -> None:
    write_report([record], Path("with"))
    for path in Path("results/phases").glob("*/trigram.json"):
        path.unlink()
    write_report([record], Path("without"))
    assert "trigram" in Path("with/figures/demo/loss-of-phase1.svg").read_text()
    assert "trigram" not in Path("without/figures/demo/loss-of-phase1.svg").read_text()


def test_several_runs_share_a_page_and_the_same_run_twice_is_refused(record: Path) -> None:
    other = record.with_name("other.json")
    write(other, {**json.loads(record.read_text()), "run": "other"})
    content = json.loads(other.read_text())
    content["config"]["phases"]["phase1"]["steps"] = 400
    write(other, content)
    page = write_report([record, other], Path("report")).read_text()
    assert 'id="demo"' in page
    assert 'href="#other"' in page
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "Differences demo other phases.phase1.steps 200 400 Results" in text
    assert "SQuAD 1.1 F1 (400 examples) 79.4 (78.7..80.1) 79.4 (78.7..80.1)" in text
    with pytest.raises(BertlineError, match="one record was given twice"):
        write_report([record, record], Path("report"))


def test_runs_that_differ_in_their_data_differ_in_the_settings_of_dataset_and_corpora(record: Path) -> None:
    content = json.loads(record.read_text())
    card = json.loads(Path(content["dataset"]["path"], "dataset.json").read_text())
    card["settings"]["held_out"] = 0.1
    card["settings"]["tokenizer"] = {"train": "wordpiece", "vocab_size": 300}
    card["corpora"][0]["settings"] = {"minimum_characters": 500}
    del card["sequence_lengths"]["512"]
    write(Path("results/datasets/other/dataset.json"), card)
    other, external = record.with_name("other.json"), record.with_name("external.json")
    dataset = {"fingerprint": "other", "path": "results/datasets/other"}
    write(other, {**content, "run": "other", "dataset": dataset})
    text = as_text(write_report([record, other], Path("report")))
    differences = "corpora.wikipedia.minimum_characters – 500 dataset.held_out 0.01 0.1 "
    differences += "dataset.tokenizer.train – wordpiece dataset.tokenizer.vocab_size – 300 "
    assert f"Differences demo other {differences}sequence_lengths [128, 512] [128] Results" in text
    # A run without a dataset does not make every setting of the others a difference.
    write(external, {**content, "run": "external", "dataset": None})
    assert "Differences" not in as_text(write_report([record, external], Path("report-external")))


def test_two_records_of_one_name_are_distinguished(record: Path) -> None:
    """A recipe before and after a change: the links of the run are those of the current recipe."""
    content = json.loads(record.read_text())
    before = record.with_name("record-fedcba9876543210.json")
    write(before, {**content, "fingerprint": "fedcba9876543210", "config": {**content["config"], "seed": 1}})
    record.with_name("record.json").symlink_to(record.name)
    elements = _Elements()
    page = write_report([record, before], Path("results/report/of-both"))
    elements.feed(page.read_text())
    assert "Differences demo-012345 demo-fedcba seed 42 1" in as_text(page)
    models = [address for address in elements.addresses if address.startswith("../../")]
    assert any(address.startswith("../../kept/") for address in models)
    assert Path("results/report/of-both/figures/demo-fedcba/loss-of-phase1.svg").exists()


def test_runs_of_one_name_are_distinguished_also_from_a_run_that_is_named_so(tmp_path: Path, record: Path) -> None:
    content, given = json.loads(record.read_text()), [record]
    for name, fingerprint in [
        ("demo", "fedcba9876543210"),
        ("demo", "fedcba0000000000"),
        ("demo-fedcba9", "e" * 16),
        ("demo-012345", "d" * 16),
    ]:
        given.append(Path(f"results/runs/{name}/record-{fingerprint}.json"))
        write(given[-1], content | {"run": name, "fingerprint": fingerprint})
    write_report(given, tmp_path / "report")
    names = {path.name for path in (tmp_path / "report/tables").iterdir() if path.is_dir()}
    assert names == {"demo-01234567", "demo-fedcba98", "demo-fedcba00", "demo-fedcba9", "demo-012345"}


def test_runs_that_no_part_of_a_fingerprint_distinguishes_are_one_line(tmp_path: Path, record: Path) -> None:
    content, given = json.loads(record.read_text()), [record]
    for name, fingerprint in [("demo", "f" * 16), (f"demo-{'f' * 16}", "e" * 16)]:
        given.append(Path(f"results/runs/{name}/record-{fingerprint}.json"))
        write(given[-1], content | {"run": name, "fingerprint": fingerprint})
    shorter = [f"demo-{'f' * digits}" for digits in range(6, 16)]
    for number, name in enumerate(shorter):
        given.append(Path(f"results/runs/{name}/record-{number:016d}.json"))
        write(given[-1], content | {"run": name, "fingerprint": f"{number:016d}"})
    with pytest.raises(BertlineError, match="show them in two reports"):
        write_report(given, tmp_path / "report")


def test_the_text_of_a_figure_describes_it(record: Path) -> None:
    (record.parent / "other.json").write_text(
        json.dumps(json.loads(record.read_text()) | {"run": "other", "fingerprint": "f" * 16})
    )
    elements = _Elements()
    elements.feed(write_report([record, record.with_name("other.json")], Path("report")).read_text())
    texts = {given["aria-label"].partition(". ")[0]: given["aria-label"] for tag, given in elements.all if tag == "svg"}
    phase = read_journal(Path("results/phases/phase1/metrics.jsonl"))
    first, last = (phase[place].metrics["train/mlm_loss"] for place in (0, -1))
    losses = f"training from {first:.2f} to {last:.2f}, held out from "
    assert losses in texts["Loss of phase1 by step"]
    assert texts["Loss of phase1 by step"].endswith("over 200 steps. The trigram model's held-out loss is 2.90.")
    ends = texts["Held-out loss of all runs"]
    assert re.search(r"demo \d\.\d{3} after [\d,]+ tokens; other \d", ends)
    assert (
        "SQuAD 1.1 F1 (400 examples): pretrained 79.4 (78.7..80.1), random weights 57.2"
        in texts["Scores of every seed"]
    )
    assert all(len(text) > len(title) + 30 for title, text in texts.items())


def test_figures_in_the_page_take_every_colour_from_its_style_sheet(record: Path) -> None:
    page = write_report([record], Path("report")).read_text()
    drawn = "".join(re.findall("<svg .*?</svg>", page, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{3,8}\b(?!\))|\brgb", re.sub(r"(url\(|href=\")#\w+", "", drawn))
    assert set(re.findall(r"var\((--\w+)\)", drawn)) <= set(re.findall(r"(--\w+):", page))


def as_text(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.read_text()))


def test_many_runs_are_below_each_other_and_their_losses_in_one_figure(record: Path) -> None:
    records = [record]
    for number in range(1, 6):
        content = json.loads(record.read_text())
        content["run"], content["config"]["seed"] = f"seed-{number}", number
        records.append(record.with_name(f"{number}.json"))
        write(records[-1], content)
    text = as_text(write_report(records, Path("report")))
    assert "6 runs demo seed-1 seed-2 seed-3 seed-4 seed-5 Differences" in text
    assert "Differences seed demo 42 seed-1 1 seed-2 2 seed-3 3 seed-4 4 seed-5 5" in text
    figure = Path("report/figures/held-out-losses.svg").read_text()
    assert all(f">seed-{number}<" in figure for number in range(1, 6))


def test_unfinished_parts_of_a_run_are_reported_first(record: Path) -> None:
    assert "Not finished" not in as_text(write_report([record], Path("finished")))
    (unfinished,) = Path("results/phases").glob("phase2")
    (unfinished / "checkpoints").mkdir()
    (unfinished / "metrics.jsonl").rename(unfinished / "checkpoints/journal.jsonl")
    write(unfinished / "checkpoints/durable.json", {"step": 40})
    for path in Path("results/finetunings").glob("rte-pretrained-*/metrics.json"):
        path.unlink()
    text = as_text(write_report([record], Path("unfinished")))
    assert "Not finished: phase2 (at step 40), RTE (3 of 9 fine-tunings missing)." in text
    assert "phase2 (unfinished) 40 " in text
    first, *_ = summary([record]).splitlines()
    assert first == "demo, not finished: phase2 (at step 40), RTE (3 of 9 fine-tunings missing)"


def test_the_page_can_be_made_before_every_seed_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("rte",), seeds=2)
    shutil.rmtree("results/finetunings/rte-pretrained-0.0005-2")
    text = as_text(write_report([record], Path("report")))
    assert "Not finished: RTE (1 of 6 fine-tunings missing)." in text
    assert "RTE 400 accuracy 78.7 " in text


def test_a_task_that_was_left_out_is_reported(record: Path) -> None:
    line = "runs.demo.finetune.glue.rte is left out: evaluation.glue: glue/RTE/dev.tsv does not exist"
    write(record, {**json.loads(record.read_text()), "skipped": [line]})
    assert line in as_text(write_report([record], Path("report")))
    assert line in summary([record])
    assert line in lay_out(read_record(record)).description


def test_the_summary_aligns_its_table_and_ends_with_what_to_do_next(record: Path) -> None:
    Path("results/kept/kept-rte/model").mkdir()
    text = summary([record], report=Path("results/report/index.html"))
    row = next(line for line in text.splitlines() if line.startswith("SQuAD 1.1 F1"))
    assert row.split()[3:] == ["400", "79.4", "(78.7..80.1)", "57.2", "(56.1..58.3)", "3.2", "11.5", "+22.2", "2.2"]
    assert "\n  results/runs/demo/glue/rte/model\n" in text
    assert "squad_v1/model" not in text  # which somebody deleted
    assert text.endswith("report:  results/report/index.html\nMLflow:  make ui")
    assert max(map(len, text.splitlines())) <= 114


def test_the_page_links_to_the_kept_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("squad_v1", "cola"))
    for folder in ("elsewhere", "results/report/0123"):
        page = write_report([record], Path(folder)).read_text()
        for task in ("squad_v1", "glue/cola"):
            (target,) = re.findall(rf'href="([^"]*{task}/model)"', page)
            assert Path(folder, target).resolve() == tmp_path / "results/runs/demo" / task / "model"
    # Seed 3 is the best in these results.
    assert re.search(
        r">SQuAD 1\.1</th>.*?<td>F1</td>\s*<td class=\"n\">80\.1</td><td class=\"n\">3</td>", page, re.DOTALL
    )


def test_scores_of_checkpoints_are_a_curve_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("cola",), seeds=2)
    content = json.loads(record.read_text())
    # Another run, from a checkpoint of the phase that the first one published at step 100.
    entry = content["finetunings"][0] | {"fingerprint": "early", "path": "results/finetunings/early"}
    folder = Path(content["finetunings"][0]["path"])
    shutil.copytree(folder, "results/finetunings/early")
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["scores"]["matthews"] = 12.5
    Path("results/finetunings/early/metrics.json").write_text(json.dumps(metrics))
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["initial_weights"] = {"phase": "phase2", "step": 40}
    Path("results/finetunings/early/recipe.json").write_text(json.dumps(recipe))
    other = content | {"run": "early", "fingerprint": "e" * 16, "phases": [], "finetunings": [entry], "kept": {}}
    write(Path("results/runs/early/record.json"), other)
    write_report([record, Path("results/runs/early/record.json")], Path("report"))
    table = Path("report/tables/scores-by-step.csv").read_text().splitlines()
    title = "CoLA Matthews correlation"
    row = f"{title},100,79.0500,78.7000,79.4000"
    assert table == ["score,step,median,worst,best", f"{title},40,12.5000,12.5000,12.5000", row]
    assert "Scores by step of pretraining" in Path("report/index.html").read_text()
    write_report([record], Path("alone"))
    assert not Path("alone/tables/scores-by-step.csv").exists()


def test_runs_from_the_same_step_are_taken_together_or_lines_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = write_run(tmp_path, tasks=("cola",), seeds=1)
    content = json.loads(record.read_text())

    def from_step(name: str, step: int, score: float, epochs: int) -> Path:
        given = content["finetunings"][0]
        entry = given | {"fingerprint": name, "path": f"results/finetunings/{name}"}
        folder = Path(shutil.copytree(given["path"], entry["path"]))
        metrics, recipe = (json.loads((folder / file).read_text()) for file in ("metrics.json", "recipe.json"))
        metrics["scores"]["matthews"] = score
        recipe["initial_weights"] = {"phase": "phase2", "step": step}
        recipe["settings"]["epochs"] = epochs
        write(folder / "metrics.json", metrics)
        write(folder / "recipe.json", recipe)
        path = Path(f"results/runs/{name}/record.json")
        write(path, content | {"run": name, "fingerprint": name, "phases": [], "finetunings": [entry], "kept": {}})
        return path

    runs = [("a", 20, 10, 8), ("b", 40, 20, 8), ("c", 40, 30, 8), ("d", 20, 11, 9), ("e", 40, 21, 9)]
    others = [from_step(*run) for run in runs]
    write_report([record, *others], Path("report"))
    title = "CoLA Matthews correlation"
    assert Path("report/tables/scores-by-step.csv").read_text().splitlines()[1:] == [
        f'"{title} (a, b, c)",20,10.0000,10.0000,10.0000',
        f'"{title} (a, b, c)",40,25.0000,20.0000,30.0000',
        f'"{title} (d, e)",20,11.0000,11.0000,11.0000',
        f'"{title} (d, e)",40,21.0000,21.0000,21.0000',
    ]
