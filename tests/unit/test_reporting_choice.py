"""A report of any runs by name, without a configuration and without running anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_runs import write, write_run

from bertline.console import BertlineError
from bertline.reporting.choice import report_of
from bertline.reporting.hub import find_publication
from bertline.reporting.terminal import summary
from bertline.results.records import is_current, read_record, records_in

SCRIPT = Path(__file__).parents[2] / "workflow" / "scripts" / "report.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of two configurations: demo, demo-short, wiki."""
    monkeypatch.chdir(tmp_path)
    content = json.loads(write_run(tmp_path, tasks=(), steps=20).read_text()) | {"phases": []}
    for number, name in enumerate(("demo", "demo-short", "wiki")):
        fingerprint = str(number) * 16
        folder = Path("results/runs", name)
        write(folder / f"record-{fingerprint}.json", content | {"run": name, "fingerprint": fingerprint})
        (folder / "record.json").symlink_to(f"record-{fingerprint}.json")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["wiki"], "wiki"),
        (["wiki,demo"], "wiki, demo"),
        (["demo-short", "wiki"], "demo-short, wiki"),
        (["results/runs/demo/record.json", "2222"], "demo, wiki"),
        (["demo, demo"], "demo"),
        ([""], "demo, demo-short, wiki"),
    ],
)
def test_runs_are_named_as_a_person_does(project: Path, given: list[str], shown: str) -> None:
    page = Path(report_of(*given))
    assert f"<h1>{shown}</h1>" in page.read_text()
    assert page.parent.parent == Path("results/report")  # from where its links lead to the runs
    before = {path: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()}
    assert Path(report_of(*given)) == page
    assert {path: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()} == before


def test_a_run_of_whose_last_recipe_only_a_part_was_made_is_shown_by_the_record_before(project: Path) -> None:
    """Its record.json leads to a record that no job has made yet."""
    link = Path("results/runs/demo/record.json")
    link.unlink()
    link.symlink_to("record-ffffffffffffffff.json")
    assert read_record(link).fingerprint == "0" * 16
    assert [record.parent.name for record in records_in(["results/runs"])] == ["demo", "demo-short", "wiki"]
    page = Path(report_of("demo,wiki")).read_text()
    assert "<h1>demo, wiki</h1>" in page
    assert ["Of an earlier configuration" in section for section in page.split("<section")[1:]] == [True, False]
    assert "Of an earlier configuration" in Path(report_of("demo")).read_text()
    assert "Of an earlier configuration" not in Path(report_of("wiki")).read_text()
    assert summary([Path("results/runs")]).startswith("demo, of an earlier configuration\n")
    assert "\ndemo-short\n" in summary([Path("results/runs")])
    with pytest.raises(BertlineError, match=r"record\.json does not exist"):  # its links are those of the new one
        find_publication("demo")
    assert not is_current(read_record(link))
    assert is_current(read_record(Path("results/runs/wiki/record.json")))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("demo-shrot", "did you mean demo-short or demo?"),
        ("Wiki", "did you mean wiki?"),
        ("zebra", "it contains demo, demo-short, wiki"),
    ],
)
def test_an_unknown_run_is_one_line_with_the_nearest_names(project: Path, name: str, advice: str) -> None:
    result = subprocess.run([sys.executable, SCRIPT, f"demo,{name}"], capture_output=True, text=True)
    assert result.stderr == f"error: results/runs contains no run {name}; {advice}\n"
    assert result.returncode == 1


def test_a_fingerprint_s_beginning_must_be_clear(project: Path) -> None:
    other = json.loads(Path("results/runs/demo/record.json").read_text()) | {"fingerprint": "0" * 15 + "1"}
    write(Path("results/runs/demo/record-0000000000000001.json"), other)
    with pytest.raises(BertlineError, match="beginning of several"):
        report_of("0000")
    assert "<h1>demo</h1>" in Path(report_of("0000000000000001")).read_text()


def test_a_project_without_runs_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BertlineError, match=r"^results/runs contains no run yet; run snakemake first$"):
        report_of()
    with pytest.raises(BertlineError, match=r"^results/runs contains no run demo; run snakemake first$"):
        report_of("demo")


def test_scores_without_a_run_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results/runs").mkdir(parents=True)
    with pytest.raises(BertlineError, match="contains no run yet; run snakemake first"):
        summary([Path("results/runs")])


def test_records_of_other_runs_have_other_folders(project: Path) -> None:
    pages = {report_of(f"results/runs/{name}/record.json") for name in ("demo", "wiki")}
    assert pages == {"results/report/of-demo/index.html", "results/report/of-wiki/index.html"}


def test_the_report_of_a_run_whose_name_has_a_dot_is_its_own(project: Path) -> None:
    for name in ("wiki-lr0.001", "wiki-lr0.005"):
        Path("results/runs", name).symlink_to("wiki")
    assert report_of("wiki-lr0.001") == "results/report/of-wiki-lr0.001/index.html"
    assert report_of("wiki-lr0.005,demo") == "results/report/of-wiki-lr0.005+demo/index.html"


def test_a_record_given_by_its_file_names_the_folder_by_its_fingerprint(project: Path) -> None:
    page = report_of("results/runs/wiki/record-2222222222222222.json")
    assert page == "results/report/of-2222222222222222/index.html"


def test_the_folder_of_a_report_of_many_runs_has_a_short_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.reporting.choice.write_report", lambda records, directory: directory)
    content = json.loads(Path("results/runs/wiki/record.json").read_text())
    records = [f"results/runs/wiki-{number:02}/record.json" for number in range(40)]  # 319 characters, too long a name
    for number, record in enumerate(records):
        write(Path(record), content | {"run": f"wiki-{number:02}", "fingerprint": f"{number:016}"})
    folder = report_of(*records)
    assert re.fullmatch("results/report/of-[0-9a-f]{16}", folder)
    assert report_of(*records) == folder
    assert report_of(*records[1:]) != folder
