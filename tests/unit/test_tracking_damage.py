"""Damaged files of a run are one line that names the file, and the other runs are sent."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from synthetic_runs import START, journal_line, write, write_journal, write_run

from bertline.console import BertlineError
from bertline.tracking import following, store
from bertline.tracking.store import read_entry, track

RECORD = Path("results/runs/demo/record-0123456789abcdef.json")
COLA = Path("results/finetunings/cola-pretrained-0.0005-1")
FILES = {
    "record": RECORD,
    "origin": Path("results/origin"),
    "dataset": Path("results/datasets") / ("d" * 16) / "dataset.json",
    "recipe of a phase": Path("results/phases/phase1/recipe.json"),
    "journal of a phase": Path("results/phases/phase1/metrics.jsonl"),
    "baseline of a phase": Path("results/phases/phase1/trigram.json"),
    "recipe of a fine-tuning": COLA / "recipe.json",
    "journal of a fine-tuning": COLA / "metrics.jsonl",
    "scores of a fine-tuning": COLA / "metrics.json",
    "choice of a model": Path("results/kept/kept-cola/choice.json"),
    "recipe of a training": Path("results/phases/phase2/checkpoints/recipe.json"),
    "journal of a training": Path("results/phases/phase2/checkpoints/journal.jsonl"),
    "durable step of a training": Path("results/phases/phase2/checkpoints/durable.json"),
}
OF_JSON = {key: path for key, path in FILES.items() if path.suffix == ".json"}


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_database: Path) -> str:
    """The store of a run that is still training its second phase."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, tasks=("cola",), seeds=1)
    training = Path("results/phases/phase2")
    (training / "checkpoints").mkdir()
    (training / "metrics.jsonl").rename(training / "checkpoints/journal.jsonl")
    (training / "recipe.json").rename(training / "checkpoints/recipe.json")
    write(training / "checkpoints/durable.json", {"step": 50})
    Path("results/origin").write_text("0" * 32 + "\n")
    shutil.copy(fresh_database, "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


def fold(path: Path) -> None:
    path.unlink()
    path.mkdir()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def make_unreadable(path: Path) -> None:
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads every file")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": cut,
    "binary": lambda path: path.write_bytes(b"\x89PNG\r\n\xff\xfe\x00"),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a list": lambda path: path.write_text("[]\n"),
    "a text": lambda path: path.write_text('"text"\n'),
    "nothing": lambda path: path.write_text("null\n"),
    "without its keys": lambda path: path.write_text("{}\n"),
    "a folder": fold,
    "unreadable": make_unreadable,
}


def assert_one_line_about(path: Path, error: BertlineError) -> None:
    line = str(error)
    assert "\n" not in line
    assert str(path) in line
    assert ";" in line  # what to do


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_one_line_that_names_it(uri: str, file: str, damage: str) -> None:
    read_entry(RECORD)
    path = FILES[file]
    if damage in ("empty", "cut off") and file == "journal of a training":
        pytest.skip("it is being written")
    DAMAGES[damage](path)
    with pytest.raises(BertlineError) as caught:
        track([RECORD], "sqlite:///absent/mlflow.db")
    assert_one_line_about(path, caught.value)


def changed(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the object with one value changed or missing: its own, and those of its objects and lists."""
    for key, present in value.items():
        yield {name: other for name, other in value.items() if name != key}
        for other in (None, [], {}, "text", -1, float("nan"), float("inf"), [None], 10**400):
            yield value | {key: other}
        if isinstance(present, dict):
            yield from (value | {key: inner} for inner in changed(present))
        if isinstance(present, list) and present and isinstance(present[0], dict):
            yield from (value | {key: [inner, *present[1:]]} for inner in changed(present[0]))


def reason_against(record: Path) -> str:
    """Return why a record cannot be read; empty if it can."""
    try:
        read_entry(record)
    except BertlineError as error:
        return str(error)
    return ""


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("file", OF_JSON)
def test_any_value_of_another_type_is_harmless_or_one_line_that_names_the_file(
    uri: str, file: str, record_property: Any
) -> None:
    path = OF_JSON[file]
    content = json.loads(path.read_text())
    for number, other in enumerate(changed(content)):
        path.write_text(json.dumps(other))
        line = reason_against(RECORD)
        assert "\n" not in line
        # What a changed record refers to may be absent or of another kind.
        assert not line or file == "record" or str(path) in line, f"{number}: {other}"
    record_property("faults", number + 1)


@pytest.mark.parametrize(
    "line", ['{"step": NaN}', '{"step": 1, "timestamp": 1, "metrics": []}', "1", "[1]", "NaN", "x"]
)
def test_a_damaged_line_of_a_journal_is_named(uri: str, line: str) -> None:
    path = FILES["journal of a phase"]
    lines = path.read_text().splitlines()
    lines[2] = line
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(BertlineError, match=r"metrics\.jsonl line 3 "):
        read_entry(RECORD)


def other_run() -> Path:
    """A second run, with results of its own."""
    content = json.loads(RECORD.read_text())
    phase = {"name": "phase1", "fingerprint": "other", "path": "results/phases/other"}
    content |= {"run": "other", "fingerprint": "f" * 16, "dataset": None, "phases": [phase], "finetunings": []}
    shutil.copytree("results/phases/phase1", "results/phases/other")
    path = Path(f"results/runs/other/record-{'f' * 16}.json")
    write(path, content | {"kept": {}})
    return path


def names(uri: str) -> set[str]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("bertline")
    return {run.info.run_name for run in client.search_runs([experiment.experiment_id])} if experiment else set()


@pytest.mark.parametrize("file", ["record", "dataset", "journal of a phase", "scores of a fine-tuning"])
def test_all_runs_except_a_damaged_one_are_sent(uri: str, file: str) -> None:
    other = other_run()
    DAMAGES["binary"](FILES[file])
    with pytest.raises(BertlineError) as caught:
        track([RECORD, other], uri)
    assert_one_line_about(FILES[file], caught.value)
    assert names(uri) == {"other", "phase1"}


def test_following_continues_despite_a_damaged_run_and_includes_it_after_its_repair(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, path = other_run(), FILES["recipe of a phase"]
    kept = path.read_text()
    path.write_text("[]")
    seen: list[set[str]] = []

    def sleep(seconds: float) -> None:
        seen.append(names(uri))
        if len(seen) == 1:
            path.write_text(kept)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(following.time, "sleep", sleep)
    store.follow([RECORD, other], uri, 5)
    assert seen[0] == {"other", "phase1"}
    assert "demo" in seen[1]


def test_a_finished_journal_that_was_cut_off_supersedes_nothing(uri: str) -> None:
    with suppress(BertlineError):
        track([RECORD], uri)
    before = names(uri)
    cut(FILES["journal of a phase"])
    with pytest.raises(BertlineError, match=r"phase1/metrics\.jsonl "):
        track([RECORD], uri)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("bertline").experiment_id
    assert len(client.search_runs([experiment])) == len(before)


def test_the_journal_of_a_training_may_end_within_a_line(uri: str) -> None:
    path = FILES["journal of a training"]
    write_journal(path, [journal_line(step, timestamp=START + step) for step in (10, 20)])
    write(FILES["durable step of a training"], {"step": 20})
    path.write_text(path.read_text() + '{"step": 30, "timest')
    (phase2,) = [child for child in read_entry(RECORD).children if child.name == "phase2"]
    assert {point.step for point in phase2.points} == {10, 20}
