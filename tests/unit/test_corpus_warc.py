"""WET files become documents, or every one of their records is counted."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus_recipe import corpus_recipe, read_part
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.console import BertlineError
from bertline.corpus import sources, warc
from bertline.corpus.documents import tidy

# The text of a page, as in section 6.10 of ISO 28500:2017 and in Common Crawl's WET files.
HEADERS = (
    "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: https://example.org/{number}\r\n"
    "WARC-Date: 2026-01-01T00:00:00Z\r\nWARC-Record-ID: <urn:uuid:12345678-0000-4000-8000-{number:012d}>\r\n"
    "WARC-Identified-Content-Language: {languages}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
)


def record(number: int, text: str | bytes, kind: str = "conversion", languages: str = "lav,eng") -> bytes:
    content = text.encode() if isinstance(text, str) else text
    headers = HEADERS.format(kind=kind, number=number, languages=languages, length=len(content))
    return headers.encode() + content + b"\r\n\r\n"


def write(path: Path, *records: bytes) -> Path:
    """Write a file with one gzip member for each record, as crawlers do."""
    path.write_bytes(b"".join(map(gzip.compress, records)) if path.suffix == ".gz" else b"".join(records))
    return path


def read(folder: Path, *files: Path, **chosen: Any) -> tuple[list[Any], dict[str, Any]]:
    paths = folder / "out.jsonl.zst", folder / "out.counts.json"
    sources.read_part(corpus_recipe("warc", {"p": [str(file) for file in files]}, **chosen), "p", *paths)
    return read_part(*paths)


@pytest.mark.parametrize("name", ["a.warc.wet.gz", "a.warc.wet"])
def test_every_page_is_a_document_or_is_counted(tmp_path: Path, name: str) -> None:
    file = write(
        tmp_path / name,
        record(0, "Software-Info: ia-web-commons", "warcinfo"),
        record(1, "Upe tek.\n\nPiļsāta ir liela."),
        record(2, "The river runs.", languages="eng"),
        record(3, "\n \n"),
        record(4, b"\xff\xfe"),
        record(5, "HTTP/1.1 200 OK", "response"),
    )
    documents, counts = read(tmp_path, file, language="lav")
    assert documents == [
        {
            "id": "12345678-0000-4000-8000-000000000001",
            "title": "",
            "text": "Upe tek.\nPiļsāta ir liela.",
            "source": "books",
            "url": "https://example.org/1",
        }
    ]
    assert counts["dropped"] == {"language": 1, "empty": 1, "not_utf_8": 1}
    assert counts["records_skipped"] == {"warcinfo": 1, "response": 1}
    assert (counts["files"], counts["read"]) == (1, 4)
    assert len(read(tmp_path, file)[0]) == 2  # of all languages


def test_every_line_of_a_page_is_a_paragraph_so_that_menus_are_no_part_of_sentences(tmp_path: Path) -> None:
    menu = ["Home", "About us", *(f"Menu entry {number}" for number in range(10))]
    prose = [f"The river {number} runs through the old town, and many people fish in it." for number in range(8)]
    footer = ["Contact", "Imprint", "Copyright 2026"]
    file = write(tmp_path / "a.warc.wet.gz", record(1, "\n".join([*menu, *prose, *footer])))
    (document,), _ = read(tmp_path, file)
    assert document["text"].split("\n") == [*menu, *prose, *footer]
    (document,), counts = read(tmp_path, file, cleaning=["c4"])
    assert (document["text"].split("\n"), counts["dropped"]) == (prose, {})


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 999))
def test_a_file_that_was_cut_anywhere_but_between_records_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, per_mille: int
) -> None:
    """Also far behind what is read at once."""
    folder, name = tmp_path_factory.mktemp("cut"), "b.wet.gz"
    generator = random.Random(3)  # noqa: S311
    records = [record(number, f"Sentence {generator.randbytes(4000).hex()} ends.") for number in range(30)]
    whole = write(folder / name, *records).read_bytes()
    cut = len(whole) * per_mille // 1000
    (folder / name).write_bytes(whole[:cut])
    ends = [len(b"".join(map(gzip.compress, records[:number]))) for number in range(1, 31)]
    if cut in ends:
        assert len(read(folder, folder / name)[0]) == 1 + ends.index(cut)
    else:
        with pytest.raises(BertlineError, match=r"b\.wet\.gz is damaged or truncated"):
            read(folder, folder / name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no records of type conversion"),
        (b"no archive", "record 1 is not a WARC record"),
        (record(1, "HTTP/1.1 200 OK", "response"), "has no records of type conversion"),
        (record(1, "Text.")[:-8], "is truncated in its record 1"),
        *(
            (record(1, "Text.") + record(2, "Text.", kind).replace(old, new), "record 2 has no type, length or id")
            for kind in ("conversion", "response")
            for old, new in (
                (b"Content-Length: 5", b"Content-Length: five"),
                (b"Content-Length: 5", b"Content-Length: " + b"9" * 5000),
                (b"WARC-Record-ID", b"WARC-Other-ID"),
                (b"12345678-0000-4000-8000-000000000002", b""),
                (b"12345678-0000-4000-8000-000000000002", b" \x01"),
                (b"WARC-Type", b"WARC-Other-Type"),
            )
        ),
        (record(1, "Text.") + record(2, "Text.")[:24], "record 2 has no type, length or id"),  # "WARC-Type: con"
        (record(1, "Text.") + b"WARC/1.0\r\n", "record 2 has no type, length or id"),
    ],
)
def test_a_file_of_another_format_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(BertlineError, match=message) as caught:
        read(tmp_path, write(tmp_path / "a.wet", content))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.jsonl.zst").exists()


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    bomb = write(tmp_path / "a.wet.gz", record(1, " " * (64 << 20)))
    with pytest.raises(BertlineError, match="unpacks to more than 100 times its size"):
        read(tmp_path, bomb)


def test_names_of_fields_have_any_case(tmp_path: Path) -> None:
    """ISO 28500:2017, section 4."""
    head, _, content = record(1, "Upe tek.").partition(b"\r\n\r\n")
    names = re.sub(rb"(?m)^[A-Za-z-]+:", lambda name: name[0].lower(), head.partition(b"\r\n")[2])
    file = write(tmp_path / "a.warc.wet", b"WARC/1.0\r\n" + names + b"\r\n\r\n" + content)
    (document,), _ = read(tmp_path, file, language="lav")
    assert (document["text"], document["url"]) == ("Upe tek.", "https://example.org/1")


def test_ids_have_no_control_characters(tmp_path: Path) -> None:
    content = record(1, "Upe tek.").replace(b"12345678-", b"12345678\x01\t")
    (document,), _ = read(tmp_path, write(tmp_path / "a.warc.wet", content))
    assert document["id"] == tidy("12345678\x01\t0000-4000-8000-000000000001")
    assert document["id"].isprintable()


def with_length(content: bytes, longer: int) -> bytes:
    return re.sub(rb"(?<=Content-Length: )[0-9]+", lambda length: b"%d" % (int(length[0]) + longer), content, count=1)


@pytest.mark.parametrize(
    "longer", [-9, -5, 4, 10, 14, len(record(3, "Lines.\nText.")), 2 * len(record(3, "Lines.\nText."))]
)
@pytest.mark.parametrize("name", ["a.warc.wet.gz", "a.warc.wet"])
def test_a_record_of_another_length_than_it_states_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, longer: int
) -> None:
    records = [record(number, "Lines.\nText.") for number in range(1, 6)]
    records[1] = with_length(records[1], longer)
    with pytest.raises(BertlineError, match=r"record 2 has another length than it states") as caught:
        read(tmp_path, write(tmp_path / name, *records))
    assert "\n" not in str(caught.value)
    assert "WARNING" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["conversion", "response"])
def test_the_last_record_also_has_the_length_that_it_states(tmp_path: Path, kind: str) -> None:
    last = with_length(record(2, "Two lines.\nText.", kind), -5)
    with pytest.raises(BertlineError, match=r"record 2 has another length than it states"):
        read(tmp_path, write(tmp_path / "a.wet", record(1, "Text."), last))


@pytest.mark.parametrize(
    ("algorithm", "encode"),
    [(name, base64.b32encode) for name in ("sha1", "sha256", "sha384", "sha512")] + [("md5", base64.b16encode)],
)
def test_pages_about_records_are_kept(tmp_path: Path, algorithm: str, encode: Callable[[bytes], bytes]) -> None:
    """As the specification of WARC is: its lines end otherwise, or it has a digest."""
    quoted = "An example follows.\r\n\r\n" + record(7, "Text.").decode() + "It ends."
    with_digest = record(2, quoted)
    digest = encode(hashlib.new(algorithm, quoted.encode()).digest())
    field = b"Content-Length:"
    with_digest = with_digest.replace(field, b"WARC-Block-Digest: %s:%s\r\n%s" % (algorithm.encode(), digest, field), 1)
    unix = record(1, quoted.replace("\r", ""))
    documents, _ = read(tmp_path, write(tmp_path / "a.wet.gz", unix, with_digest))
    assert [document["text"].count("WARC/1.0") for document in documents] == [1, 1]
    with pytest.raises(BertlineError, match=r"record 2 has another length than it states"):
        read(tmp_path, write(tmp_path / "b.wet.gz", unix, with_digest.replace(b"It ends.", b"It went.")))


NEXT = len(record(3, "Lines.\nText."))


@pytest.mark.parametrize("kind", ["warcinfo", "request", "response"])
@pytest.mark.parametrize("longer", [NEXT, 2 * NEXT, 10**9])
@pytest.mark.parametrize("name", ["a.warc.wet.gz", "a.warc.wet"])
def test_no_text_is_lost_in_a_record_that_is_not_read(tmp_path: Path, name: str, longer: int, kind: str) -> None:
    records = [record(number, "Lines.\nText.") for number in range(1, 6)]
    records[1] = with_length(record(2, "Lines.\nText.", kind), longer)
    with pytest.raises(BertlineError, match="record 2 has another length than it states"):
        read(tmp_path, write(tmp_path / name, *records))


@pytest.mark.parametrize("kind", ["response", "conversion"])
@pytest.mark.parametrize("name", ["a.warc.wet.gz", "a.warc.wet"])
def test_a_long_record_that_is_not_kept_has_its_length_and_no_further_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """It is read in blocks: the next record's mark may lie on a boundary."""
    monkeypatch.setattr(warc, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(warc, "BLOCK_BYTES", 300)
    monkeypatch.setattr(warc, "MARK_BYTES", 200)
    first, last = record(1, "Text."), record(3, "Lines.\nText.")
    for length in range(2000, 2310, 10):
        content = random.Random(length).randbytes(length).replace(b"WARC", b"")  # noqa: S311
        whole = record(2, content, kind)
        documents, counts = read(tmp_path, write(tmp_path / name, first, whole, last))
        assert len(documents) == 2
        assert counts["dropped"] | counts["records_skipped"] in ({"oversized": 1}, {"response": 1})
        with pytest.raises(BertlineError, match="record 2 has another length than it states"):
            read(tmp_path, write(tmp_path / name, first, with_length(whole, NEXT), last, record(4, "Text.")))
    with pytest.raises(BertlineError, match="is truncated in its record 2; download it again"):
        read(tmp_path, write(tmp_path / name, first, whole[:-900]))
    quoted = content + b"\r\n\r\n" + last + content
    with pytest.raises(BertlineError, match="record 2 has another length than it states"):
        read(tmp_path, write(tmp_path / name, first, record(2, quoted, kind), last))
    digest = b"WARC-Block-Digest: sha1:%s\r\nContent-Length:" % base64.b32encode(hashlib.sha1(quoted).digest())  # noqa: S324
    with_digest = record(2, quoted, kind).replace(b"Content-Length:", digest, 1)
    assert len(read(tmp_path, write(tmp_path / name, first, with_digest, last))[0]) == 2


def test_the_message_about_what_is_no_record_is_short(tmp_path: Path) -> None:
    """Of a file with a block of zeros at its end, as a tar archive has."""
    with pytest.raises(BertlineError, match=r"record 2 is not a WARC record \(.{9,150}\); download"):
        read(tmp_path, write(tmp_path / "a.wet", record(1, "Text."), bytes(5000)))
