"""Dumps as they lie: in every form the same pages, and of damaged ones every page that is left."""

from __future__ import annotations

import builtins
import bz2
import gzip
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libarchive
import pytest
import pyzstd
from corpus_recipe import corpus_recipe
from test_corpus_dump import END, HEADER, multistream, page

from bertline.console import BertlineError
from bertline.corpus import dump_files
from bertline.corpus.clean import clean_part
from bertline.corpus.documents import read_documents
from bertline.corpus.dump import CHUNK_BYTES
from bertline.corpus.dump_files import is_multistream, read_pages
from bertline.corpus.extract import extract_part
from bertline.files import read_json

NUMBERS = range(1, 61)
RANDOM = random.Random(3)  # noqa: S311
# More than a block of each kind of compression.
TEXTS = {number: f"Text {number} of\n{RANDOM.randbytes(3000).hex()}" for number in NUMBERS}
XML = HEADER + b"".join(page(number, text) for number, text in TEXTS.items()) + END


def seven_zip(files: dict[str, bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with libarchive.file_writer(str(path), "7zip") as archive:
            for name, content in files.items():
                archive.add_file_from_memory(name, len(content), content)

    return write


def packed(kind: str, xml: bytes) -> Callable[[Path], None]:
    """What writes a dump in one of its forms."""
    if kind == "7z":
        return seven_zip({"images/a.png": b"no text", "dump.xml": xml})
    pack = {
        "xml": lambda content: content,
        "bz2": lambda content: multistream(content, 5),
        "gz": gzip.compress,
        "xz": lzma.compress,
        "zst": lambda content: pyzstd.compress(content, {pyzstd.CParameter.checksumFlag: 1}),
    }[kind]
    return lambda path: path.write_bytes(pack(xml)) and None


def ids_of(path: Path, number: int = 0, of: int = 1, **settings: Any) -> tuple[list[int], dict[str, Any]]:
    counts: dict[str, Any] = {}
    asked = {"salvage": False, "unpack_ratio": 100, "paths": [str(path)], **settings}
    pages = read_pages(path, number, of, asked, counts)
    return [int(article) for _, article in pages if article], counts


@pytest.mark.parametrize("name", ["W.XML.BZ2", "w1.xml-p1p60.bz2", "w1.xml-p1p60.gz", "w1.xml-p1p60", "w.XML.7Z"])
def test_a_part_of_a_large_dump_and_capitals_in_a_suffix_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    packed("xml" if name.endswith("p60") else name.rpartition(".")[2].lower(), XML)(path)
    dump_files.check_name(path)
    assert is_multistream(path) == name.lower().endswith(".bz2")
    for salvage in (False, True):
        assert ids_of(path, salvage=salvage)[0] == list(NUMBERS)


FORMS = pytest.mark.parametrize("kind", ["xml", "bz2", "gz", "xz", "zst", "7z"])


@FORMS
def test_every_form_of_a_dump_has_the_same_pages(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("dump.xml" if kind == "xml" else f"dump.xml.{kind}")
    packed(kind, XML)(path)
    for salvage in (False, True):
        ids, counts = ids_of(path, salvage=salvage)
        assert ids == list(NUMBERS)
        assert counts.pop("lost", {"places": 0, "bytes": 0, "pages": 0}) == {"places": 0, "bytes": 0, "pages": 0}
        assert counts["pages"] == len(NUMBERS)


@FORMS
def test_of_a_truncated_dump_every_whole_page_is_read_if_asked(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("dump.xml" if kind == "xml" else f"dump.xml.{kind}")
    packed(kind, XML)(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 3 // 4])
    with pytest.raises(BertlineError, match=r"dump\.xml.* set salvage: true") as caught:
        ids_of(path)
    assert "\n" not in str(caught.value)
    if kind == "7z":  # its table of contents is at its end
        with pytest.raises(BertlineError, match="its header, which names the wiki's namespaces, is lost"):
            ids_of(path, salvage=True)
        return
    ids, counts = ids_of(path, salvage=True)
    assert ids == list(NUMBERS[: len(ids)])
    assert len(ids) > len(NUMBERS) // 2
    assert counts["lost"]["places"] == 1
    assert counts["lost"]["pages"] <= 1


def test_damage_in_a_multistream_dump_costs_the_pages_of_its_stream(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    content = bytearray(multistream(XML, 5))
    starts = [at for at in range(len(content)) if content[at : at + 4] == b"BZh9"]
    for stream, flipped in ((3, starts[3] + 40), (7, starts[7] + 1), (12, starts[13] - 3)):
        damaged = bytearray(content)
        damaged[flipped] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(BertlineError, match="salvage: true"):
            ids_of(path)
        gone = range(5 * (stream - 1) + 1, 5 * stream + 1)
        expected = [number for number in NUMBERS if number not in gone]
        found = ids_of(path, salvage=True)
        assert found[0] == expected
        assert found[1]["lost"]["places"] == 1
        assert found[1]["lost"]["bytes"] == starts[stream + 1] - starts[stream]
        for of in (2, 5):
            slices = [ids_of(path, number, of, salvage=True) for number in range(of)]
            assert [one for ids, _ in slices for one in ids] == expected
            assert sum(counts["lost"]["places"] for _, counts in slices) == 1


SLICES = (1, 2, 3, 4, 7, 50)


def test_an_end_tag_in_the_last_stream_of_pages_may_be_in_any_slice(tmp_path: Path) -> None:
    """The last stream is so long that none begins in the last slices."""
    path, first = tmp_path / "dump.xml.bz2", XML.index(b"  <page>")
    middle = XML.index(b"  <page>", first + 10)
    path.write_bytes(b"".join(map(bz2.compress, (XML[:first], XML[first:middle], XML[middle:]))))
    assert is_multistream(path)
    for of in SLICES:
        assert [one for number in range(of) for one in ids_of(path, number, of)[0]] == list(NUMBERS)
        slices = [ids_of(path, number, of, salvage=True) for number in range(of)]
        assert [one for ids, _ in slices for one in ids] == list(NUMBERS)
        assert sum(counts["lost"]["places"] for _, counts in slices) == 0


@pytest.mark.parametrize("streams_left", [3, 12])
def test_a_dump_that_ends_between_two_streams_is_refused_by_one_slice(tmp_path: Path, streams_left: int) -> None:
    path, content = tmp_path / "dump.xml.bz2", multistream(XML, 5)
    starts = [match.start() for match in dump_files.STREAM_START.finditer(content)]
    path.write_bytes(content[: starts[streams_left]])
    for of in SLICES:
        refused = []
        for number in range(of):
            try:
                ids_of(path, number, of)
            except BertlineError as error:
                refused.append(str(error))
        assert len(refused) == 1
        assert "is truncated: it ends before </mediawiki>" in refused[0]
        slices = [ids_of(path, number, of, salvage=True) for number in range(of)]
        assert [one for ids, _ in slices for one in ids] == list(NUMBERS[: 5 * (streams_left - 1)])
        assert sum(counts["lost"]["places"] for _, counts in slices) == 1


def test_the_bytes_after_damage_in_a_single_stream_are_lost(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.xz"
    texts = [random.Random(number).randbytes(65_000).hex() for number in range(1, 31)]  # noqa: S311
    packed("xz", HEADER + b"".join(page(number, text) for number, text in enumerate(texts, 1)) + END)(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 4)
        file.write(b"\xff" * 4096)
    _, counts = ids_of(path, salvage=True)
    assert counts["lost"]["places"] == 1
    assert abs(counts["lost"]["bytes"] - size * 3 // 4) <= CHUNK_BYTES


def test_the_beginning_of_a_stream_that_is_damaged_at_the_border_of_a_slice_is_counted(tmp_path: Path) -> None:
    path, content = tmp_path / "dump.xml.bz2", bytearray(multistream(XML, 5))
    starts = [match.start() for match in dump_files.STREAM_START.finditer(content)]
    border = next(at for at in starts if at >= len(content) // 2)
    content[border] ^= 4
    path.write_bytes(content)
    slices = [ids_of(path, number, 2, salvage=True)[1]["lost"] for number in range(2)]
    assert sum(lost["places"] for lost in slices) == 1
    assert sum(lost["bytes"] for lost in slices) == starts[starts.index(border) + 1] - border


@pytest.mark.parametrize("damage", ["a flipped bit", "a cut"])
@pytest.mark.parametrize(("at", "readable", "pages"), [(0.1, 0, 0), (0.6, 0, 0), (0.9, 9 / 13, 6)])
def test_the_bytes_lost_of_a_long_stream_are_counted_from_its_last_whole_block(
    tmp_path: Path, damage: str, at: float, readable: float, pages: int
) -> None:
    """A block is the text of 900,000 bytes: 9/13 of a stream here, with six of its ten pages."""
    path = tmp_path / "dump.xml.bz2"
    texts = [random.Random(number).randbytes(65_000).hex() for number in range(1, 31)]  # noqa: S311
    content = bytearray(
        multistream(HEADER + b"".join(page(number, text) for number, text in enumerate(texts, 1)) + END, 10)
    )
    starts = [match.start() for match in dump_files.STREAM_START.finditer(content)]
    length = starts[3] - starts[2]
    assert length > 600_000
    place = starts[2] + int(at * length)
    if damage == "a cut":
        del content[place:]
    else:
        content[place] ^= 4
    path.write_bytes(content)
    ids, counts = ids_of(path, salvage=True)
    end = len(content) if damage == "a cut" else starts[3]
    assert ids == [*range(1, 11 + pages), *(range(21, 31) if end == starts[3] else ())]
    assert counts["lost"]["places"] == 1
    expected = end - starts[2] - int(readable * length)
    assert abs(counts["lost"]["bytes"] - expected) <= (2 * dump_files.PIECE_BYTES if readable else 0)


def test_pages_whose_end_is_lost_in_plain_xml_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml"
    at = XML.index(b"Text 20 ")
    path.write_bytes(XML[:at] + XML[XML.index(b"  <page>", at) :])
    ids, counts = ids_of(path, salvage=True)
    assert ids == [number for number in NUMBERS if number != 20]
    assert counts["lost"] == {"places": 1, "bytes": 0, "pages": 1}


def test_a_dump_without_its_header_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    content = bytearray(multistream(XML, 5))
    content[20] ^= 1
    path.write_bytes(content)
    for number in (0, 1):
        with pytest.raises(BertlineError, match="its header, which names the wiki's namespaces, is lost"):
            ids_of(path, number, 2, salvage=True)


def test_only_a_file_whose_header_is_a_stream_of_its_own_has_slices(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    for content, expected in (
        (multistream(XML, 5), True),
        (bz2.compress(XML), False),
        (bz2.compress(XML[:5000]) + bz2.compress(XML[5000:]), False),
        (b"no bz2", False),
        (multistream(XML, 5)[:60], False),
    ):
        path.write_bytes(content)
        assert is_multistream(path) == expected
    packed("gz", XML)(tmp_path / "dump.xml.gz")
    assert not is_multistream(tmp_path / "dump.xml.gz")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": b"text"}, "holds no .xml; name the archive of a dump"),
        ({"a.xml": XML, "b.xml": XML}, "holds several dumps; unpack it"),
        ({"a.xml": HEADER + page(1, "x" * (1 << 25)) + END}, "unpacks to more than 100 times its size"),
    ],
)
def test_an_archive_that_is_a_bomb_or_not_a_dump_is_one_line(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    path = tmp_path / "dump.7z"
    seven_zip(files)(path)
    with pytest.raises(BertlineError, match=message):
        ids_of(path)


def test_a_machine_without_libarchive_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name.startswith("libarchive"):
            raise AttributeError("archive_errno")  # as it says where the library is absent
        return real(name, *others)

    seven_zip({"a.xml": XML})(tmp_path / "dump.7z")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BertlineError, match="cannot be unpacked without libarchive; install it"):
        ids_of(tmp_path / "dump.7z")


def test_files_are_in_the_order_of_their_numbers_and_named_as_dumps(tmp_path: Path) -> None:
    names = ["w-multistream10.xml-p9p10.bz2", "w-multistream2.xml-p1p8.bz2"]
    assert sorted(names, key=dump_files.natural_order) == names[::-1]
    with pytest.raises(BertlineError, match=r"notes\.txt does not have the name of a dump; name \.xml, \.xml\.bz2"):
        dump_files.check_name(tmp_path / "notes.txt")
    with pytest.raises(BertlineError, match="does not have the name of a dump"):
        dump_files.check_name(tmp_path / "w.xml-p1.bz2")


def test_a_damaged_real_dump_gives_documents_and_counts(test_data: Path, tmp_path: Path) -> None:
    """Cut at half: what comes out are the first documents of the whole one."""
    xml = bz2.decompress((test_data / "wiki/ltgwiki-smallwiki-pages-articles.xml.bz2").read_bytes())
    content = multistream(b"</page>\n".join(xml.split(b"</page>\n")[:500]) + b"</page>\n" + END, 20)
    (tmp_path / "whole.xml.bz2").write_bytes(content)
    (tmp_path / "cut.xml.bz2").write_bytes(content[: len(content) // 2])

    def documents(name: str, **settings: Any) -> tuple[list[Any], dict[str, Any]]:
        corpus = corpus_recipe("wikimedia", paths=[name], extractor="bertline", **settings)
        outputs = tmp_path / f"{name}.jsonl.zst", tmp_path / f"{name}.counts.json"
        extract_part(corpus, tmp_path / name, tmp_path / "extracted")
        clean_part(corpus, tmp_path / "extracted", *outputs)
        return list(read_documents(outputs[0])), read_json(outputs[1])

    found, counts = documents("cut.xml.bz2", salvage=True)
    assert len(found) > 50
    assert found == documents("whole.xml.bz2")[0][: len(found)]
    assert counts["lost"]["places"] == 1
    assert found[0]["source"] == "books"  # the corpus


def test_the_content_of_a_damaged_block_is_not_read_as_text(tmp_path: Path) -> None:
    """Before bzip2 compares a block's checksum, all of its content is out: also pages that look whole."""
    path = tmp_path / "dump.xml.bz2"
    xml = HEADER + b"".join(page(number, "word " * 99) for number in range(1, 3000)) + END
    content = bytearray(multistream(xml, 1000))
    starts = [at for at in range(len(content)) if content[at : at + 4] == b"BZh9"]
    content[starts[2] + 11] ^= 1  # in the checksum of the first block, so that its text is right
    path.write_bytes(content)
    ids, counts = ids_of(path, salvage=True)
    assert ids == [*range(1, 1001), *range(2001, 3000)]
    assert counts["lost"]["bytes"] > 0


@pytest.mark.parametrize("lines", ["one", "a page each"])
def test_a_dump_without_mediawiki_s_line_breaks_has_the_same_pages(tmp_path: Path, lines: str) -> None:
    pages = [page(number, f"Text {number}").replace(b"\n", b" ") for number in range(1, 6)]
    between = b"" if lines == "one" else b"\n"
    (tmp_path / "dump.xml").write_bytes(between.join([HEADER.replace(b"\n", between), *pages, END]))
    for salvage in (False, True):
        ids, counts = ids_of(tmp_path / "dump.xml", salvage=salvage)
        assert ids == [1, 2, 3, 4, 5]
        assert counts.pop("lost", {"places": 0, "bytes": 0, "pages": 0}) == {"places": 0, "bytes": 0, "pages": 0}
