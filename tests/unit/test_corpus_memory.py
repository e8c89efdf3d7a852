"""No reader's memory grows with what somebody put into one file: peaks of processes on an article of 200 MB."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from corpus_recipe import corpus_recipe, dump_recipe

from bertline.files import read_json

SCRIPTS = Path(__file__).parents[2] / "workflow/scripts"
PIECE = "".join(f"Sentence {number} of the river \U0001f30a and the hill. " for number in range(15_000)).encode()
PIECES = -(-200_000_000 // len(PIECE))
GIBIBYTE_IN_KB = 1 << 20
PEAK = """
import resource, subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""

HEADER = (
    b"<mediawiki>\n  <siteinfo>\n    <base>https://en.wikipedia.org/wiki/Main_Page</base>\n    <namespaces>\n"
    b'      <namespace key="10">Template</namespace>\n    </namespaces>\n  </siteinfo>\n'
)
PAGE = b"  <page>\n    <title>P</title>\n    <ns>0</ns>\n    <id>%d</id>\n    <revision>\n      <text>"
PAGE_END = b"</text>\n    </revision>\n  </page>\n"


def peak_kb(script: str, *arguments: object) -> int:
    """The largest resident memory of a script or any process that it started, in KB."""
    command = [sys.executable, "-c", PEAK, SCRIPTS / script, *map(str, arguments)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def written(folder: Path, recipe: dict[str, Any]) -> Path:
    path = folder / "recipe.json"
    path.write_text(json.dumps(recipe))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("extractor", ["wikiextractor", "bertline"])
def test_an_article_of_200_mb_on_one_line_is_counted_and_left_out(tmp_path: Path, extractor: str) -> None:
    part, extracted = tmp_path / "dump.xml.bz2", tmp_path / "extracted"
    with part.open("wb") as file:
        file.write(bz2.compress(HEADER + PAGE % 1 + PIECE[:3000] + PAGE_END + PAGE % 2))
        piece = bz2.compress(PIECE)
        for _ in range(PIECES):
            file.write(piece)
        file.write(bz2.compress(PAGE_END + PAGE % 3 + PIECE[:3000] + PAGE_END + b"</mediawiki>\n"))
    recipe = written(tmp_path, dump_recipe(extractor=extractor))
    options = ("--recipe", recipe, "--part", part, "--output", extracted)
    assert peak_kb("extract_part.py", *options) < GIBIBYTE_IN_KB // 2
    assert read_json(extracted / "pages.json")["articles"] == 3
    assert read_json(extracted / "pages.json")["oversized"] == 1
    assert len((extracted / "articles.jsonl").read_bytes().splitlines()) == 2
    assert len((extracted / "headings.jsonl").read_bytes().splitlines()) == 3


@pytest.mark.slow
def test_an_article_of_16_mb_of_markup_is_extracted_in_half_a_gibibyte(tmp_path: Path) -> None:
    piece = (
        "\n* [[River]]s 🌊 ''run'' &lt;ref&gt;{{cite|x=y}}&lt;/ref&gt; {{convert|3|km}} to the [[Sea|sea]].".encode()
    )
    part, extracted = tmp_path / "dump.xml.bz2", tmp_path / "extracted"
    page = PAGE % 1 + piece * (((1 << 24) - 1000) // len(piece)) + PAGE_END
    part.write_bytes(bz2.compress(HEADER + page + b"</mediawiki>\n"))
    recipe = written(tmp_path, dump_recipe(extractor="bertline", list_items="all"))
    options = ("--recipe", recipe, "--part", part, "--output", extracted)
    assert peak_kb("extract_part.py", *options) < GIBIBYTE_IN_KB // 2
    assert (extracted / "articles.jsonl").stat().st_size > 1 << 22


@pytest.mark.slow
def test_a_text_of_200_mb_on_one_line_is_divided(tmp_path: Path) -> None:
    file, counts = tmp_path / "text.txt.gz", tmp_path / "counts.json"
    with file.open("wb") as stream:
        piece = gzip.compress(PIECE, 1)
        for _ in range(PIECES):
            stream.write(piece)
    recipe = written(tmp_path, corpus_recipe("files", {"part-00000": [str(file)]}))
    outputs = ("--documents", tmp_path / "documents.jsonl.zst", "--counts", counts)
    assert peak_kb("read_part.py", "--recipe", recipe, "--part", "part-00000", *outputs) < GIBIBYTE_IN_KB // 2
    found = read_json(counts)
    assert found["divided"] == found["read"] - 1 > 5
    assert found["characters"] >= PIECES * (len(PIECE.decode()) - 1)
