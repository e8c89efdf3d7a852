"""Damaged input: each ends in a correct result or in one line, never in a hang, a traceback or a document uncounted."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libarchive
import pytest
import pyzstd
from corpus_recipe import corpus_recipe, read_part, read_texts
from fault_counts import TIMES, drawing
from test_corpus_dump import END, HEADER, multistream, page
from test_corpus_tables import write_table
from test_corpus_unpacking import tar_bytes, zip_bytes
from test_corpus_warc import record

from bertline.console import BertlineError
from bertline.corpus import sources
from bertline.corpus.dump import read_dump, scan_pages
from bertline.corpus.dump_files import read_pages

MUTATIONS_OF_EACH_KIND = 45 * TIMES
NUMBER = 12
WORDS = ("river", "hill", "f\u00fcr", "\u6c34", "rain", "mill")


def texts() -> list[str]:
    generator = random.Random(5)  # noqa: S311
    return [" ".join(f"{generator.choice(WORDS)}{generator.randrange(9999)}" for _ in range(40)) for _ in range(NUMBER)]


def members() -> dict[str, bytes]:
    return {f"folder/text-{number:02d}.txt": text.encode() for number, text in enumerate(texts())}


def packed_dump(ending: str) -> Callable[[Path], bytes]:
    xml = HEADER + b"".join(page(number, text) for number, text in enumerate(texts(), 1)) + END

    def pack(folder: Path) -> bytes:
        match ending:
            case "bz2":
                return multistream(xml, 3)
            case "7z":
                with libarchive.file_writer(str(folder / "made.7z"), "7zip") as archive:
                    archive.add_file_from_memory("dump.xml", len(xml), xml)
                return (folder / "made.7z").read_bytes()
        return {"gz": gzip.compress, "xz": lzma.compress, "": bytes}[ending](xml)

    return pack


def web_page(text: bytes) -> bytes:
    return b"<html><head><title>T</title></head><body><nav>Menu</nav><p>" + text + b"</p></body></html>"


def of_table(kind: str) -> Callable[[Path], bytes]:
    return lambda folder: write_table(
        folder, kind, [{"text": text, "n": number} for number, text in enumerate(texts())]
    ).read_bytes()


CHECKED_ZSTD = {pyzstd.CParameter.checksumFlag: 1}  # as the program zstd does
KINDS: dict[str, Callable[[Path], bytes]] = {
    "dump.xml.bz2": lambda _: multistream(
        HEADER + b"".join(page(number, text) for number, text in enumerate(texts(), 1)) + END, 3
    ),
    **{f"dump.xml.{ending}": packed_dump(ending) for ending in ("gz", "xz", "7z")},
    **{f"salvaged.xml{ending}": packed_dump(ending.removeprefix(".")) for ending in ("", ".bz2", ".gz", ".7z")},
    "text.txt": lambda _: "\n---\n".join(texts()).encode(),
    "text.txt.gz": lambda _: gzip.compress("\n---\n".join(texts()).encode(), mtime=0),
    "text.txt.zst": lambda _: pyzstd.compress("\n---\n".join(texts()).encode(), CHECKED_ZSTD),
    "text.txt.bz2": lambda _: bz2.compress("\n---\n".join(texts()).encode()),
    "text.txt.xz": lambda _: lzma.compress("\n---\n".join(texts()).encode()),
    "numbered.txt": lambda _: "".join(f"{number}\t{text}\n" for number, text in enumerate(texts(), 1)).encode(),
    "page.zip": lambda _: zip_bytes(
        {name.replace(".txt", ".html"): web_page(text) for name, text in members().items()}
    ),
    "crawl.wet.gz": lambda _: gzip.compress(b"".join(map(record, range(NUMBER), texts())), mtime=0),
    "archive.tar": lambda _: tar_bytes(members()),
    "archive.tar.gz": lambda _: gzip.compress(tar_bytes(members()), mtime=0),
    "archive.zip": lambda _: zip_bytes(members()),
    **{f"table.{kind}": of_table(kind) for kind in ("jsonl", "csv", "parquet", "stream.arrow", "file.arrow")},
}
# What has a checksum over its content gives the content or an error.
CHECKED = {f"dump.xml.{ending}" for ending in ("bz2", "gz", "xz", "7z")} | {"archive.tar.gz", "crawl.wet.gz"}
CHECKED |= {f"text.txt.{ending}" for ending in ("gz", "bz2", "xz", "zst")}
UNCHECKED = {"text.txt", "numbered.txt"}
# What has a table of contents or headers gives every document, though perhaps another text, or an error.
COUNTED = {"archive.tar", "archive.zip", "page.zip", "table.parquet", "table.stream.arrow", "table.file.arrow"}


def mutate(content: bytes, generator: random.Random) -> bytes:
    """One or two of: a flipped bit, a cut, zeros, a piece lost, doubled or inserted."""
    damaged = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2))):
        at = generator.randrange(len(damaged))
        length = min(generator.choice((1, 2, 8, 64, 512, 600)), len(damaged) - at)
        match generator.choice(("flip", "flip", "flip", "cut", "zeros", "lose", "double", "insert")):
            case "flip":
                damaged[at] ^= 1 << generator.randrange(8)
            case "cut":
                del damaged[max(1, at) :]
            case "zeros":
                damaged[at : at + length] = bytes(length)
            case "lose":
                del damaged[at : at + length]
                damaged = damaged or bytearray(1)
            case "double":
                damaged[at:at] = damaged[at : at + length]
            case "insert":
                damaged[at:at] = generator.randbytes(length)
    return bytes(damaged)


def outcome(path: Path) -> Any:
    """What the readers make of a file, as (ids or texts, counts)."""
    if path.name.startswith("dump"):
        counts: dict[str, int] = {}
        found = [
            article
            for _, article in scan_pages(read_dump(path, 0, 1, unpack_ratio=100, advice="get it again"), counts)
            if article
        ]
        assert counts["pages"] == counts["articles"] + counts["redirects"] + counts["other_namespaces"]
        return found, counts
    if path.name.startswith("salvaged"):
        lost: dict[str, Any] = {}
        asked = {"salvage": True, "unpack_ratio": 100}
        return [article for _, article in read_pages(path, 0, 1, asked, lost) if article], lost
    outputs = path.with_name("o.jsonl.zst"), path.with_name("o.counts.json")
    if path.name.startswith("crawl"):
        sources.read_part(corpus_recipe("warc", {"p": [str(path)]}), "p", *outputs)
        documents, counts = read_part(*outputs)
        return [document["text"] for document in documents], counts
    separator = "---" if path.name.startswith("text") else None
    more = {"format": "leipzig", "sentences": "lines"} if path.name.startswith("numbered") else {}
    read_texts([str(path)], *outputs, separator=separator, **more)
    documents, counts = read_part(*outputs)
    return [document["text"] for document in documents], counts


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_reported_or_harmless(
    tmp_path: Path,
    kind: str,
    no_hang: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Any,
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)  # two a mutation would be most of the time
    path = tmp_path / kind
    content = KINDS[kind](tmp_path)
    path.write_bytes(content)
    whole = outcome(path)
    assert len(whole[0]) == (1 if kind == "numbered.txt" else NUMBER)
    generator = drawing(f"damage to {kind}")
    results: Counter[str] = Counter()
    for number in range(MUTATIONS_OF_EACH_KIND):
        no_hang()
        path.write_bytes(mutate(content, generator))
        for output in tmp_path.glob("o.*"):
            output.unlink()
        message, found, counts = "", [], {}
        try:
            found, counts = outcome(path)
        except BertlineError as error:
            message = str(error)
        results["told" if message else "harmless"] += 1
        if message:
            assert "\n" not in message, number
            assert not list(tmp_path.glob("o.*")), number
            continue
        # Plain XML has nothing by which a changed number could be found; bz2 has it for every block.
        if kind == "salvaged.xml.bz2":
            assert set(found) <= set(whole[0]), number
            assert found == whole[0] or counts["lost"]["places"], number
        if kind in CHECKED:
            assert found == whole[0], number
        if kind in COUNTED:
            assert counts["read"] + sum(counts["members_skipped"].values()) == NUMBER, number
    assert results["told"] >= MUTATIONS_OF_EACH_KIND // 6 or kind in UNCHECKED or kind.startswith("salvaged"), results
    record_property("faults", MUTATIONS_OF_EACH_KIND)


def test_there_are_enough_mutations() -> None:
    assert MUTATIONS_OF_EACH_KIND * len(KINDS) >= 500
    assert bz2.decompress(KINDS["dump.xml.bz2"](Path())).count(b"<page>") == NUMBER
