"""What users have in hand, through the graph: dumps as they lie, books by download, web pages, Leipzig's corpora."""

from __future__ import annotations

import hashlib
import io
import lzma
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import ROOT, SMALL_CONFIG, run_snakemake

from bertline.corpus.documents import read_documents
from bertline.files import read_json

sys.path.append(str(ROOT / "tests/unit"))

from dump_server import serve

pytestmark = pytest.mark.slow

BOOK = "It is a truth, and nobody doubts it. The mill stood by the river.\n\n" * 20


def leipzig_archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for kind, text in (("sentences", "1\tIt rained.\n2\tThe end of it.\n"), ("words", "1\tIt\t5\n")):
            member = tarfile.TarInfo(f"ltg_news_2020_10K/ltg_news_2020_10K-{kind}.txt")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))


def test_what_users_have_in_hand_becomes_documents(workflow_folder: Path, sample: Path) -> None:
    """The dump is cut off; the mirror of Project Gutenberg is a folder, so that no test waits."""
    folder = workflow_folder
    (folder / "dumps").mkdir()
    first, second = sorted(sample.glob("mirror/**/*.xml-*.bz2"))[:2]
    shutil.copy(first, folder / "dumps/wiki-1.xml.bz2")
    (folder / "dumps/wiki-2.xml.bz2").write_bytes(second.read_bytes()[:-20])
    (folder / "gutenberg/1/1/118").mkdir(parents=True)
    (folder / "gutenberg/1/1/118/118-0.txt").write_text(BOOK)
    (folder / "page.html").write_text(f"<title>A page</title><nav>Menu</nav><main><p>{BOOK}</p></main>")
    leipzig_archive(folder / "leipzig.tar.gz")
    packed = lzma.compress(BOOK.encode())
    with serve() as server:
        server.files["/mill.txt.xz"] = packed
        url = {"url": server.url("/mill.txt.xz"), "sha256": hashlib.sha256(packed).hexdigest()}
        corpora: dict[str, Any] = {
            "wiki": {"source": "wikimedia", "paths": ["dumps/*"], "salvage": True, "extractor": "bertline"},
            "books": {"source": "gutenberg", "books": [118]},
            "urls": {"source": "files", "urls": [url]},
            "pages": {"source": "files", "paths": ["*.html"]},
            "news": {"source": "files", "paths": ["leipzig.tar.gz"], "format": "leipzig", "sentences": "lines"},
        }
        for name in ("wiki", "books", "urls", "pages"):
            corpora[name]["sentences"] = "unicode"
        config = SMALL_CONFIG | {"corpora": corpora, "gutenberg_mirrors": ["gutenberg"], "evaluation": {}}
        config["datasets"] = {"small": {**SMALL_CONFIG["datasets"]["small"], "corpora": list(corpora)}}
        config["runs"] = {"first": {**SMALL_CONFIG["runs"]["first"], "finetune": {}}}
        (folder / "my.yaml").write_text(yaml.safe_dump(config))
        run_snakemake(folder, "corpus", "--cores", "2", "--configfile", "my.yaml")
    found = sorted(folder.glob("results/corpora/*/documents/part-00000.jsonl.zst"))
    results = {path.parents[1].name[:-9]: path for path in found}
    texts = {name: [document["text"] for document in read_documents(path)] for name, path in results.items()}
    lines = [f"{line.strip()}" for line in BOOK.split("\n") if line]
    for name in ("books", "urls"):
        assert texts[name] == ["\n".join(lines)]
    assert texts["pages"] == [" ".join(lines)]
    assert texts["news"] == ["It rained.\nThe end of it."]
    lost = read_json(results["wiki"].with_name("part-00001.counts.json"))["lost"]
    assert lost["places"] == 1
    assert texts["wiki"]
    book = folder / "resources/gutenberg/118.txt"
    assert Path(f"{book}.sha256").read_text() == f"{hashlib.sha256(BOOK.encode()).hexdigest()}  118.txt\n"
