"""Dumps as streams of bz2: cut into slices they contain the same pages, and damage is reported."""

from __future__ import annotations

import bz2
import re
from pathlib import Path
from typing import Any

import pytest
from corpus_recipe import dump_recipe

from bertline.console import BertlineError
from bertline.corpus import dump as module
from bertline.corpus.clean import clean_part
from bertline.corpus.documents import read_documents
from bertline.corpus.dump import read_dump, scan_pages
from bertline.corpus.extract import extract_part
from bertline.files import read_json

EITHER = pytest.mark.parametrize("extractor", ["wikiextractor", "bertline"])
HEADER = b"<mediawiki>\n  <siteinfo>\n    <namespaces>\n    </namespaces>\n  </siteinfo>\n"
END = b"</mediawiki>\n"
LIMITS: Any = {"unpack_ratio": 100, "advice": "delete it and download it again"}


def page(number: int, text: str = "Text.", more: str = "") -> bytes:
    return (
        f"  <page>\n    <title>Page {number}</title>\n    <ns>0</ns>\n    <id>{number}</id>\n{more}    <revision>\n"
        f'      <text xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
    ).encode()


def multistream(xml: bytes, pages_in_a_stream: int) -> bytes:
    """A dump in the multistream format: header, pages, end tag, each in streams of their own."""
    first, last = xml.index(b"  <page>"), xml.rindex(b"</mediawiki>")
    pages = [piece + b"</page>\n" for piece in re.split(rb"</page>\n", xml[first:last])[:-1]]
    groups = [b"".join(pages[at : at + pages_in_a_stream]) for at in range(0, len(pages), pages_in_a_stream)]
    return b"".join(bz2.compress(content) for content in (xml[:first], *groups, xml[last:]))


def ids_and_counts(part: Path, of: int) -> tuple[list[str], dict[str, int]]:
    ids: list[str] = []
    total: dict[str, int] = {}
    for number in range(of):
        counts: dict[str, int] = {}
        ids += [article for _, article in scan_pages(read_dump(part, number, of, **LIMITS), counts) if article]
        for key, value in counts.items():
            total[key] = total.get(key, 0) + value
    return ids, total


@pytest.mark.parametrize("chunk", [11, 1 << 18])
def test_slices_hold_together_every_page_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
    part = tmp_path / "dump.xml.bz2"
    part.write_bytes(multistream(HEADER + b"".join(map(page, range(1, 30))) + END, 3))
    for of in range(1, 15):
        assert ids_and_counts(part, of)[0] == [str(number) for number in range(1, 30)]
    assert ids_and_counts(part, 5)[1] == ids_and_counts(part, 1)[1]


@EITHER
@pytest.mark.parametrize("name", ["enwiki-p10p30302-shortened", "ltgwiki-smallwiki-pages-articles"])
def test_slices_of_a_real_dump_give_its_documents(test_data: Path, tmp_path: Path, name: str, extractor: Any) -> None:
    whole = test_data / f"wiki/{name}.xml.bz2"
    part = tmp_path / "dump.xml.bz2"
    xml = bz2.decompress(whole.read_bytes())
    part.write_bytes(multistream(xml, 20))
    assert bz2.decompress(part.read_bytes()) == xml
    assert ids_and_counts(part, 4) == ids_and_counts(whole, 1)
    if name.startswith("enwiki"):
        return  # one language through the extractor is enough

    def documents(dump: Path, number: int, of: int) -> list:
        paths = tmp_path / "d.jsonl.zst", tmp_path / "d.counts.json"
        corpus = dump_recipe(extractor=extractor)
        extract_part(corpus, dump, tmp_path / "extracted", slice=(number, of))
        clean_part(corpus, tmp_path / "extracted", *paths)
        return list(read_documents(paths[0]))

    sliced = [document for number in range(2) for document in documents(part, number, 2)]
    assert sliced == documents(whole, 0, 1)


def test_a_dump_of_another_kind_is_not_cut(tmp_path: Path) -> None:
    part = tmp_path / "dump.xml.bz2"
    xml = HEADER + b"".join(page(number, "Text. " * 99) for number in range(1, 30)) + END
    part.write_bytes(bz2.compress(xml[:10_000]) + bz2.compress(xml[10_000:]))
    assert len(ids_and_counts(part, 1)[0]) == 29
    with pytest.raises(BertlineError, match="the dump ends within page 14"):
        list(scan_pages(read_dump(part, 0, 2, **LIMITS), {}))
    with pytest.raises(BertlineError, match="a stream begins within a page; it cannot be read in slices"):
        list(scan_pages(read_dump(part, 1, 2, **LIMITS), {}))


@pytest.mark.parametrize("stream", range(1, 12))
def test_a_stream_whose_first_bytes_are_damaged_is_reported(tmp_path: Path, stream: int) -> None:
    """bz2.open takes what follows a stream and is none for the end; a search for streams would pass it over."""
    part = tmp_path / "dump.xml.bz2"
    content = bytearray(multistream(HEADER + b"".join(map(page, range(1, 30))) + END, 3))
    starts = [match.start() for match in re.finditer(rb"BZh91AY", content)]
    content[starts[stream] + 2] ^= 1
    part.write_bytes(content)
    for of in (1, 2, 3, 12):
        with pytest.raises(BertlineError, match=rf"is damaged \(no stream begins at byte {starts[stream]}\)"):
            ids_and_counts(part, of)


@pytest.mark.parametrize("cut", ["in the text", "before the text", "at the end"])
def test_a_page_that_breaks_off_is_reported(tmp_path: Path, cut: str) -> None:
    second = page(2, "One line.\nAnother line.")
    broken = {
        "in the text": second[: second.index(b"Another")],
        "before the text": second[: second.index(b"<text")],
        "at the end": second[: second.index(b"  </page>")],
    }[cut]
    part = tmp_path / "dump.xml.bz2"
    for rest in (page(3) + END, END):
        part.write_bytes(bz2.compress(HEADER + page(1) + broken + b"\n" + rest))
        with pytest.raises(BertlineError, match="ends within page 2, after 1 whole pages"):
            ids_and_counts(part, 1)


def test_pages_longer_than_any_chunk_lose_no_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "dump.xml.bz2"
    for chunk in (7, 20, 33):
        monkeypatch.setattr(module, "CHUNK_BYTES", chunk)
        pages = [page(number, "x" * (60 + 9 * number)) for number in range(1, 20)]
        part.write_bytes(bz2.compress(HEADER + b"".join(pages) + END))
        counts = {"pages": 19, "articles": 19, "redirects": 0, "other_namespaces": 0}
        assert ids_and_counts(part, 1)[1] == {**counts, "oversized": 0, "not_utf_8": 0}
        assert b"".join(read_dump(part, 0, 1, **LIMITS)) == HEADER + b"".join(pages) + END


@EITHER
def test_an_oversized_page_is_counted_and_not_extracted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extractor: Any
) -> None:
    monkeypatch.setattr(module, "MAX_PAGE_BYTES", 2000)
    long = "The river rises in the hills and runs to the sea. " * 10
    namespaces = HEADER.replace(b"    </namesp", b'      <namespace key="10">Template</namespace>\n    </namesp')
    pages = [page(1, long), page(2, long * 9), page(3, long)]
    part, paths = tmp_path / "dump.xml.bz2", (tmp_path / "d.jsonl.zst", tmp_path / "d.counts.json")
    part.write_bytes(bz2.compress(namespaces + b"".join(pages) + END))
    corpus = dump_recipe(extractor=extractor, minimum_characters=1)
    extract_part(corpus, part, tmp_path / "extracted")
    clean_part(corpus, tmp_path / "extracted", *paths)
    assert [document["id"] for document in read_documents(paths[0])] == ["1", "3"]
    counts = read_json(paths[1])
    assert (counts["read"], counts["kept"], counts["oversized"]) == (3, 2, 1)
    assert sum(counts["dropped"].values()) == 1
