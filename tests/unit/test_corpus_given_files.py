"""A file that changes after it was planned: its corpus, which is named by the earlier one, is not made of it."""

from __future__ import annotations

import bz2
import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plan_helpers import ROOT, changed, inputs, plan_of

from bertline.console import BertlineError
from bertline.corpus import extract, sources, text_files
from bertline.corpus.documents import read_documents
from bertline.corpus.sentences import MODEL_FILES, split_sentences
from bertline.files import Recipe, read_json
from bertline.planning.recipes import recipe_path, write_recipes

assert inputs  # the fixture

TEXT = "The old mill stood by the river.\n"
PAGE = f"<page><title>Mill</title><ns>0</ns><id>1</id><revision><text>{TEXT * 9}</text></revision></page>"
DUMP = f"<mediawiki><siteinfo>\n</siteinfo>\n{PAGE}\n</mediawiki>\n"
WET = (
    "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Record-ID: <urn:uuid:1>\r\n"
    f"Content-Length: {len(TEXT)}\r\n\r\n{TEXT}\r\n\r\n"
)
OUTPUTS = Path("out.jsonl.zst"), Path("out.counts.json")


def planned(**corpus: Any) -> Recipe:
    """Plan a corpus; return its recipe as a job reads it."""
    plan = plan_of(changed(corpora__books=corpus))
    write_recipes(plan)
    return Recipe(read_json(recipe_path(next(key for key in plan.corpora if key.startswith("books")))))


def of_texts() -> Recipe:
    return planned(source="files", paths=["books/*.txt"])


def other(path: Path | str) -> None:
    """Write a text of the same length into a file, at another time."""
    Path(path).write_text(TEXT.replace("old", "new"))
    os.utime(path, ns=(1, 1))


@pytest.fixture
def book() -> Path:
    Path("books/one.txt").write_text(TEXT)
    return Path("books/one.txt")


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("more/two.txt", TEXT.encode(), {"source": "files"}),
        ("more/two.txt.gz", gzip.compress(TEXT.encode(), mtime=0), {"source": "files"}),
        ("more/two.jsonl", b'{"text": "The old mill."}\n', {"source": "files"}),
        ("more/two.wet.gz", gzip.compress(WET.encode(), mtime=0), {"source": "warc"}),
    ],
)
def test_a_text_that_changed_after_it_was_planned_is_one_line_and_nothing_is_kept(
    name: str, content: bytes, settings: dict[str, Any]
) -> None:
    for path in (Path(name), Path(name).with_name(f"one{Path(name).name[3:]}")):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    recipe = planned(paths=["more/*"], **settings)
    sources.read_part(recipe, "part-00000", *OUTPUTS)
    for path in OUTPUTS:
        path.unlink()
    other(name)
    script = ROOT / "workflow/scripts/read_part.py"
    command = [sys.executable, script, "--recipe", recipe_path(recipe["key"]), "--part", "part-00000"]
    command += ["--documents", OUTPUTS[0], "--counts", OUTPUTS[1]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {name} is another file than when corpus {recipe['key']} was planned; run the same command again\n"
    )
    assert not [path for path in Path().iterdir() if "out." in path.name]
    assert planned(paths=["more/*"], **settings)["key"] != recipe["key"]


@pytest.mark.parametrize("extractor", ["bertline", "wikiextractor"])
def test_so_is_a_dump_that_is_here(extractor: str) -> None:
    dump = Path("dump.xml.bz2")
    dump.write_bytes(bz2.compress(DUMP.encode()))
    recipe = planned(source="wikimedia", paths=["dump.xml.bz2"], extractor=extractor)
    dump.write_bytes(bz2.compress(DUMP.replace("old", "new").encode()))
    with pytest.raises(BertlineError, match=rf"^dump\.xml\.bz2 is another file than when corpus {recipe['key']} was"):
        extract.extract_part(recipe, dump, Path("extracted"))
    assert not [path for path in Path().iterdir() if "extracted" in path.name]


@pytest.mark.parametrize("given", ["model", "model/"])
def test_so_is_a_punkt_model_that_is_given(book: Path, given: str) -> None:
    Path("model").mkdir()
    for name in MODEL_FILES:
        Path("model", name).write_text("")
    recipe = planned(source="files", paths=["books/*.txt"], punkt=given)
    sources.read_part(recipe, "part-00000", *OUTPUTS)
    outputs = Path("part.txt.zst"), Path("part.index.npy")
    split_sentences(recipe, OUTPUTS[0], *outputs)
    for path in outputs:
        path.unlink()
    Path("model/abbrev_types.txt").write_text("dr")
    with pytest.raises(
        BertlineError, match=rf"^model/abbrev_types\.txt is another file than when corpus {recipe['key']}"
    ):
        split_sentences(recipe, OUTPUTS[0], *outputs)
    assert not any(path.exists() for path in outputs)
    assert planned(source="files", paths=["books/*.txt"], punkt=given)["key"] != recipe["key"]


def test_so_is_a_text_that_changes_while_it_is_read(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, read = of_texts(), text_files.read_part

    def read_slowly(*given: Any) -> Any:
        yield from read(*given)
        other(book)

    monkeypatch.setattr(text_files, "read_part", read_slowly)
    with pytest.raises(BertlineError, match=r"^books/one\.txt is another file than when"):
        sources.read_part(recipe, "part-00000", *OUTPUTS)
    assert not [path for path in Path().iterdir() if "out." in path.name]


def touch(book: Path) -> None:
    book.touch()


def copy_back(book: Path) -> None:
    other(book)
    plan_of(changed())  # another start of the graph remembers the other content
    book.write_text(TEXT)


def forget(book: Path) -> None:
    shutil.rmtree("results/recipes")
    Path("results/digests-of-inputs.json").unlink()


@pytest.mark.parametrize("change", [touch, copy_back, forget])
def test_a_text_of_the_same_content_is_read(book: Path, change: Callable[[Path], None]) -> None:
    recipe = of_texts()
    change(book)
    sources.read_part(recipe, "part-00000", *OUTPUTS)
    assert [document["text"] for document in read_documents(OUTPUTS[0])] == [TEXT.strip()]


def test_another_start_of_the_graph_does_not_make_a_changed_text_right(book: Path) -> None:
    recipe = of_texts()
    other(book)
    of_texts()
    with pytest.raises(BertlineError, match="is another file"):
        sources.read_part(recipe, "part-00000", *OUTPUTS)


def test_a_large_file_is_not_read_for_its_digest_again(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book.write_text(TEXT * 100)
    recipe = of_texts()
    monkeypatch.setattr("bertline.files.sha256_of_file", lambda path: pytest.fail(f"{path} was read"))
    sources.read_part(recipe, "part-00000", *OUTPUTS)


def test_a_recipe_of_an_earlier_version_or_of_a_file_elsewhere_is_read(book: Path) -> None:
    recipe = of_texts()
    del recipe["sha256"]
    sources.read_part(recipe, "part-00000", *OUTPUTS)


def test_a_missing_file_is_reported_by_its_reader(book: Path) -> None:
    recipe = of_texts()
    book.unlink()
    with pytest.raises(BertlineError, match=r"one\.txt does not exist"):
        sources.read_part(recipe, "part-00000", *OUTPUTS)
