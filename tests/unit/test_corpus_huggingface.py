"""Datasets through the library `datasets`: folders laid out like one, and a stand-in for the Hub."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_recipe import corpus_recipe, read_part
from hub_server import serve_dataset

from bertline.console import BertlineError
from bertline.corpus import sources
from bertline.corpus.documents import read_documents

SCRIPT = Path(__file__).parents[2] / "workflow/scripts/read_part.py"
REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES, ROWS = 3, 10


@pytest.fixture(autouse=True, scope="module")
def no_network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`datasets` looks at these when it is imported, which the module under test puts off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        import datasets

        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        yield


def text_of(file: int, row: int) -> str:
    return f"Row {row} of file {file}.\nIts second line."


def write_folder(folder: Path, kind: str) -> Path:
    """A dataset of three data files in a folder without a README."""
    (folder / "data").mkdir(parents=True)
    for file in range(FILES):
        path = folder / f"data/train-{file:05d}-of-{FILES:05d}.{kind}"
        columns = {
            "key": [file * ROWS + row for row in range(ROWS)],
            "text": [text_of(file, row) if row != 4 else None for row in range(ROWS)],
            "head": [f"Title {row}" for row in range(ROWS)],
        }
        table = pa.table(columns)
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=4)
        elif kind == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        elif kind == "csv":
            table.to_pandas().to_csv(path, index=False)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
    return folder


def hub_recipe(dataset: Path | str, parts: int = 1, **settings: Any) -> dict[str, Any]:
    names: dict[str, list[str]] = {f"part-{number:05d}": [] for number in range(parts)}
    given = {"dataset": str(dataset), "split": "train", "revision": None, **settings}
    return corpus_recipe("huggingface", names, **given)


def read(folder: Path, dataset: Path | str, part: int = 0, **settings: Any) -> tuple[list[Any], dict[str, Any]]:
    paths = folder / "out.jsonl.zst", folder / "out.counts.json"
    sources.read_part(hub_recipe(dataset, **settings), f"part-{part:05d}", *paths)
    return read_part(*paths)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "arrow"])
def test_every_row_is_a_document_or_is_counted(tmp_path: Path, kind: str) -> None:
    dataset = write_folder(tmp_path / "dataset", kind)
    documents, counts = read(tmp_path, dataset, id="key", title="head")
    assert [document["id"] for document in documents] == [str(key) for key in range(FILES * ROWS) if key % ROWS != 4]
    assert documents[12] == {
        "id": "13",
        "title": "Title 3",
        "text": "Row 3 of file 1. Its second line.",
        "source": "books",
        "url": "",
    }
    assert (counts["read"], counts["dropped"], counts["data_files"]) == (FILES * ROWS, {"empty": FILES}, FILES)


def test_rows_are_cleaned_by_the_requested_steps(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    rows = [{"text": "A [[link]]."}, {"text": "{{x}}"}, {"text": "None."}]
    (tmp_path / "dataset/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    documents, counts = read(tmp_path, tmp_path / "dataset", cleaning=["markup"])
    assert [document["text"] for document in documents] == ["A link .", "None."]
    assert (counts["read"], counts["kept"], counts["dropped"]) == (3, 2, {"empty": 1})
    assert counts["cleaning"]["markup"] == {"lines": 1, "characters": 6, "documents": 2}


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("parts", [2, 3])
def test_parts_hold_together_what_the_whole_holds(tmp_path: Path, kind: str, parts: int) -> None:
    dataset = write_folder(tmp_path / "dataset", kind)
    whole, _ = read(tmp_path, dataset)
    assert whole[0]["id"] == "00000#0"
    divided = [read(tmp_path, dataset, part=part, parts=parts)[0] for part in range(parts)]
    assert all(divided)
    assert [document for documents in divided for document in documents] == whole


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "test"}, r"cannot be read: Bad split: test\. Available splits: \['train'\]"),
        ({"configuration": "en"}, r"cannot be read: BuilderConfig 'en' not found"),
        ({"parts": 4}, "has 3 data files and cannot be read in 4 parts; lower parts"),
        ({"text": "body"}, r"has no column 'body'; it has key, text, head; select columns"),
        ({"text": "key"}, r"data file 0, row 1: its 'key' is of type int, not text"),
    ],
)
def test_what_the_dataset_does_not_have_is_one_line(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    dataset = write_folder(tmp_path / "dataset", "parquet")
    with pytest.raises(BertlineError, match=message) as caught:
        read(tmp_path, dataset, **settings)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.jsonl.zst").exists()


def pack(path: Path, kind: str) -> Path:
    content = path.read_bytes()
    path.unlink()
    packed = path.with_name(f"{path.name}.{kind}")
    packed.write_bytes({"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[kind](content))
    return packed


@pytest.mark.parametrize("number", [0, 1])  # of the first, the columns are read before
@pytest.mark.parametrize("kind", ["parquet", "jsonl.gz", "jsonl.xz", "jsonl.bz2"])
def test_a_damaged_data_file_is_one_line(tmp_path: Path, kind: str, number: int) -> None:
    dataset = write_folder(tmp_path / "dataset", kind.partition(".")[0])
    files = sorted(dataset.rglob("*.*"))
    if "." in kind:
        files = [pack(file, kind.partition(".")[2]) for file in files]
    files[number].write_bytes(files[number].read_bytes()[:-9])
    named = rf", data file 1 \({re.escape(files[1].name)}\)," if number else ""
    message = rf"dataset{named} cannot be read: .*(Parquet|Compressed file ended).*; its data is damaged, or did not ar"
    with pytest.raises(BertlineError, match=message) as caught:
        read(tmp_path, dataset)
    assert "\n" not in str(caught.value)


def test_offline_is_one_line_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match=r"Couldn't reach 'some/books'.* HF_HUB_OFFLINE is set: unset it, or run"):
        read(tmp_path, "some/books", revision=REVISION)


def test_a_folder_does_not_replace_a_dataset_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "some/books", "parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BertlineError, match="'some/books' is a folder here"):
        read(tmp_path, "some/books", revision=REVISION)


@pytest.mark.slow
def test_the_pinned_revision_of_the_hub_is_streamed(tmp_path: Path) -> None:
    dataset = write_folder(tmp_path / "dataset", "parquet")
    with serve_dataset("some/books", REVISION, dataset) as (address, asked):

        def run(revision: str) -> subprocess.CompletedProcess[str]:
            recipe = tmp_path / "recipe.json"
            recipe.write_text(json.dumps(hub_recipe("some/books", 3, revision=revision, id="key")))
            environment = os.environ | {
                "HF_ENDPOINT": address,
                "HF_HOME": str(tmp_path / "home"),
                "HF_HUB_OFFLINE": "0",
            }
            environment |= {"HF_UPDATE_DOWNLOAD_COUNTS": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}
            outputs = ["--documents", tmp_path / "o.jsonl.zst", "--counts", tmp_path / "c.json"]
            return subprocess.run(
                [sys.executable, SCRIPT, "--recipe", recipe, "--part", "part-00001", *outputs],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )

        finished = run(REVISION)
        assert finished.returncode == 0, finished.stderr
        keys = [document["id"] for document in read_documents(tmp_path / "o.jsonl.zst")]
        assert keys == [str(ROWS + row) for row in range(ROWS) if row != 4]
        assert f"/datasets/some/books/resolve/{REVISION}/data/train-00001-of-00003.parquet" in asked
        assert not any("train-00002" in path for path in asked)
        assert not list((tmp_path / "home").rglob("*.parquet"))  # streamed, not kept
        refused = run("f" * 40)
        assert refused.returncode == 1
        assert (
            refused.stderr.strip().splitlines()[-1].startswith("error: the dataset some/books at ffffffffffff cannot")
        )
