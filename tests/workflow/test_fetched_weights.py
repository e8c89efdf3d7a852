"""The graph fetches external weights: of a stand-in of the Hub and of a server of a release, once, and continues."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import ROOT, TASK, copy_workflow, jobs_of, run_snakemake

sys.path.append(str(ROOT / "tests/unit"))

from dump_server import serve
from hub_server import ServedModel, serve_model
from roberta_folder import write_roberta
from test_modeling_google_release import release, zipped

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "theirs.yaml")
REPOSITORY, REVISION = "someone/roberta-of-theirs", "1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b"
HUB = {"hub": REPOSITORY, "revision": REVISION}
FOLDER = f"resources/weights/hub/{REPOSITORY}/{REVISION}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    folder = tmp_path_factory.mktemp("theirs")
    write_roberta(folder)
    (folder / "pytorch_model.bin").write_bytes(b"never fetched")
    with serve_model(REPOSITORY, REVISION, folder) as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path, model: ServedModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_ENDPOINT", model.address)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    folder = copy_workflow(tmp_path / "project")
    (folder / "glue/CoLA").mkdir(parents=True)
    for split in ("train", "dev"):
        rows = "".join(f"t\t{number % 2}\t\tthe river is{' deep' * number} .\n" for number in range(8))
        (folder / f"glue/CoLA/{split}.tsv").write_text(rows)
    (folder / "texts.txt").write_text("the river\n")
    return folder


def configure(folder: Path, **changes: Any) -> None:
    task = {**TASK, "epochs": 1}
    config = {
        "evaluation": {"glue": "glue"},
        "runs": {"theirs": {"pretrained": HUB, "finetune": {"glue": {"cola": task}}}},
    }
    (folder / "theirs.yaml").write_text(yaml.safe_dump(config | changes))


def test_a_model_of_the_hub_is_fetched_once_and_fine_tuned(folder: Path, model: ServedModel) -> None:
    configure(
        folder, features={"hidden": {"model": HUB, "inputs": ["texts.txt"], "max_sequence_length": 16, "layers": [-1]}}
    )
    planned = run_snakemake(folder, "finetune", "features", *OPTIONS, "--dry-run").stdout
    assert jobs_of(planned)["fetch_hub_weights"] == 1
    run_snakemake(folder, "finetune", "features", *OPTIONS)
    fetched = {path.name for path in (folder / FOLDER).iterdir()} - {".snakemake_timestamp"}
    assert fetched == set(model.files) - {"pytorch_model.bin"}
    assert "pytorch_model.bin" not in model.fetched
    (scores,) = (folder / "results/finetunings").glob("*/metrics.json")
    assert json.loads(scores.read_text())["task"] == "cola"
    assert (folder / "results/features/hidden.jsonl").exists()
    assert "Nothing to be done" in run_snakemake(folder, "finetune", "features", *OPTIONS).stdout


def test_a_commit_that_vanished_stops_the_graph_in_one_line(folder: Path) -> None:
    gone = REVISION[::-1]
    configure(folder, runs={"theirs": {"pretrained": HUB | {"revision": gone}, "finetune": {"glue": {"cola": TASK}}}})
    finished = run_snakemake(folder, "finetune", *OPTIONS, "--retries", "0", check=False)
    assert finished.returncode != 0
    assert f"the model {REPOSITORY} has no commit {gone}: it was removed" in finished.stdout
    assert "Traceback (most recent call last)" not in finished.stdout
    assert not list((folder / "resources").rglob("*.safetensors"))


def test_a_release_of_google_is_fetched_converted_and_fine_tuned(folder: Path) -> None:
    content = zipped(release())
    with serve() as server:
        server.files["/uncased_L-2_H-8_A-2.zip"] = content
        given = {"url": server.url("/uncased_L-2_H-8_A-2.zip"), "sha256": hashlib.sha256(content).hexdigest()}
        task = {**TASK, "epochs": 1, "max_sequence_length": 16}
        configure(folder, runs={"google": {"pretrained": {"google": given}, "finetune": {"glue": {"cola": task}}}})
        assert jobs_of(run_snakemake(folder, "download", *OPTIONS, "--dry-run").stdout)["convert_google_release"] == 1
        run_snakemake(folder, "finetune", *OPTIONS)
        assert len(server.requests) == 1
    (converted,) = (folder / "resources/weights/google").iterdir()
    assert (converted / "model.safetensors").exists()
    assert len(list((folder / "results/finetunings").glob("*/metrics.json"))) == 1
    # The same release from a folder, which is another name for the same content only after it is unpacked.
    unpacked = folder / "unpacked"
    for name, part in release().items():
        path = unpacked / Path(name).name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(part)
    configure(folder, runs={"google": {"pretrained": {"google": "unpacked"}, "finetune": {"glue": {"cola": task}}}})
    run_snakemake(folder, "finetune", *OPTIONS)
    folders = sorted((folder / "resources/weights/google").iterdir())
    weights = [(one / "model.safetensors").read_bytes() for one in folders]
    assert len(weights) == 2
    assert weights[0] == weights[1]
    # A release that was moved is the same one.
    unpacked = unpacked.rename(folder / "moved")
    configure(folder, runs={"google": {"pretrained": {"google": "moved"}, "finetune": {"glue": {"cola": task}}}})
    assert "Nothing to be done" in run_snakemake(folder, "finetune", *OPTIONS, "--dry-run").stdout
    shutil.rmtree(unpacked)
