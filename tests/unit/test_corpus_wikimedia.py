"""Listing the parts of a dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dump_server import serve

from bertline.console import BertlineError
from bertline.corpus import http_download
from bertline.corpus.sources import BYTES_PER_SLICE, slices_of
from bertline.corpus.wikimedia import download_part, list_parts

PREFIX = "enwiki-20261101-pages-articles"


def dump_status(status: str = "done", job: str = "articlesmultistreamdump") -> dict[str, Any]:
    names = [
        f"{PREFIX}-multistream10.xml-p300p400.bz2",
        f"{PREFIX}-multistream-index10.txt-p300p400.bz2",
        f"{PREFIX}-multistream2.xml-p31p299.bz2",
        f"{PREFIX}-multistream2.xml-p4p30.bz2",
        f"{PREFIX}-multistream1.xml-p1p3.bz2",
    ]
    files = {
        name: {"size": 10 + index, "sha1": f"{index:040x}", "md5": "", "url": f"/enwiki/20261101/{name}"}
        for index, name in enumerate(names)
    }
    return {"version": "0.8", "jobs": {job: {"status": status, "updated": "", "files": files}}}


# What is no number of bytes, or none that a file of a dump has.
SIZES = (0, -1, True, 10.7, "12", None, 10**18, 10**300)


def with_files(*names: str, size: Any = 10) -> Any:
    files = {name: {"size": size, "sha1": "a" * 40} for name in names}
    return {"jobs": {"articlesdump": {"status": "done", "files": files}}}


def with_size(size: Any) -> Any:
    return with_files("a.xml.bz2", size=size)


def put(mirror: Path, status: Any) -> str:
    folder = mirror / "enwiki" / "20261101"
    folder.mkdir(parents=True)
    (folder / "dumpstatus.json").write_text(status if isinstance(status, str) else json.dumps(status))
    return str(mirror)


def listed(folder: Path, mirrors: list[str], contact: str | None = None, dump: str = "20261101") -> Any:
    list_parts("enwiki", dump, mirrors, folder / "parts.json", contact)
    return json.loads((folder / "parts.json").read_text())


def test_parts_are_the_page_content_in_the_order_of_the_pages(tmp_path: Path) -> None:
    listing = listed(tmp_path, [put(tmp_path, dump_status())])
    assert [part["file"] for part in listing["parts"].values()] == [
        f"{PREFIX}-multistream1.xml-p1p3.bz2",
        f"{PREFIX}-multistream2.xml-p4p30.bz2",
        f"{PREFIX}-multistream2.xml-p31p299.bz2",
        f"{PREFIX}-multistream10.xml-p300p400.bz2",
    ]
    assert list(listing["parts"]) == ["part-00000", "part-00001", "part-00002", "part-00003"]
    assert listing["parts"]["part-00000"] == {
        "file": f"{PREFIX}-multistream1.xml-p1p3.bz2",
        "size": 14,
        "sha1": f"{4:040x}",
        "path": f"enwiki/20261101/{PREFIX}-multistream1.xml-p1p3.bz2",
    }


def test_a_dump_without_multistream_files_gives_the_others(tmp_path: Path) -> None:
    mirror = put(tmp_path, dump_status(job="articlesdump"))
    assert len(listed(tmp_path, [mirror])["parts"]) == 4


def test_the_next_mirror_is_asked_over_http(tmp_path: Path) -> None:
    with serve() as server:
        server.files["/dumps/enwiki/20261101/dumpstatus.json"] = json.dumps(dump_status()).encode()
        mirrors = [server.url(""), server.url("/dumps/")]
        listing = listed(tmp_path, mirrors, "someone@university.edu")
        assert len(listing["parts"]) == 4
        assert "someone@university.edu" in server.requests[-1][1]["User-Agent"]


def test_a_busy_mirror_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_download, "FIRST_WAIT_SECONDS", 0.01)
    with serve() as server:
        path = "/enwiki/20261101/dumpstatus.json"
        server.files[path] = json.dumps(dump_status()).encode()
        server.faults[path] = [503, "cut"]
        assert len(listed(tmp_path, [server.address])["parts"]) == 4


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (dump_status("in-progress"), "the dump is not done: articlesmultistreamdump is 'in-progress'"),
        ({"jobs": {}}, "the dump is not done: it has no articlesmultistreamdump"),
        ({"jobs": {"articlesdump": {"status": "done", "files": {}}}}, "articlesdump lists no page content"),
        ({"jobs": {"articlesdump": {"status": "done", "files": {"a.xml.bz2": {}}}}}, "has an unknown form"),
        (
            {"jobs": {"articlesdump": {"status": "done", "files": {"a.xml.bz2": {"size": 0, "sha1": "0" * 40}}}}},
            "has an unknown form",
        ),
        (
            {"jobs": {"articlesdump": {"status": "done", "files": {"../a.xml.bz2": {"size": 1, "sha1": ""}}}}},
            "which is not the name of a file",
        ),
        *((with_size(size), f"has an unknown form (ValueError('a size of {str(size)[:50]}'))") for size in SIZES),
        (with_files("a" * 250 + ".xml.bz2"), "which is not the name of a file"),
        (with_files("a" + "9" * 5000 + ".xml.bz2"), "which is not the name of a file"),
        (
            with_files(*(f"a{number}.xml.bz2" for number in range(10_001))),
            "lists 10,001 files; at most 10,000 are taken",
        ),
        ([], "has an unknown form"),
        ("<html>", "dumpstatus.json is not JSON"),
        ("[" * 200_000, "dumpstatus.json is not JSON"),
    ],
)
def test_a_dump_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, status: Any, message: str) -> None:
    mirror = put(tmp_path, status)
    with pytest.raises(BertlineError) as caught:
        listed(tmp_path, [mirror])
    assert message in str(caught.value)
    assert mirror in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_listing_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = put(tmp_path, dump_status())
    monkeypatch.setattr("bertline.corpus.wikimedia.MAX_STATUS_BYTES", 100)
    with serve() as server:
        path = "/enwiki/20261101/dumpstatus.json"
        server.files[path] = (tmp_path / path[1:]).read_bytes()
        with pytest.raises(BertlineError, match="sends more than 100 bytes"):
            listed(tmp_path, [server.address])
    monkeypatch.undo()
    assert len(listed(tmp_path, [mirror])["parts"]) == 4


def test_a_date_that_is_gone_names_the_host_and_the_answer(tmp_path: Path) -> None:
    with serve() as server, pytest.raises(BertlineError) as caught:
        listed(tmp_path, [server.address, str(tmp_path)], dump="20200101")
    host = server.address.removeprefix("http://")
    assert f"{host}: HTTP 404 (enwiki/20200101/dumpstatus.json)" in str(caught.value)
    assert f"{tmp_path}: does not exist" in str(caught.value)


def test_a_part_is_looked_for_at_every_mirror(tmp_path: Path) -> None:
    listed(tmp_path, [put(tmp_path, dump_status())])
    listing, mirrors = tmp_path / "parts.json", [f"{tmp_path}/absent", f"{tmp_path}/"]
    path = f"enwiki/20261101/{PREFIX}-multistream2.xml-p4p30.bz2"
    for size, problem in ((13, "wrong checksum, sha1 .* instead of 0{12}"), (9, "9 bytes instead of 13")):
        (tmp_path / path).write_bytes(b"x" * size)
        with pytest.raises(BertlineError, match=rf"/absent/{path}: does not exist; \S*/{path}: {problem}"):
            download_part(listing, "part-00001", mirrors, tmp_path / "part-00001.xml.bz2")
    with pytest.raises(BertlineError, match="has no 'part-00009'"):
        download_part(listing, "part-00009", [], tmp_path / "part-00009.xml.bz2")


def test_large_multistream_files_are_read_in_slices() -> None:
    parts = {
        "part-00000": {
            "file": "enwiki-20261101-pages-articles-multistream1.xml-p1p9.bz2",
            "size": 2 * BYTES_PER_SLICE + 1,
        },
        "part-00001": {"file": "enwiki-20261101-pages-articles-multistream2.xml-p10p11.bz2", "size": BYTES_PER_SLICE},
        "part-00002": {"file": "enwiki-20261101-pages-articles3.xml-p12p99.bz2", "size": 9 * BYTES_PER_SLICE},
    }
    assert slices_of({"parts": parts}) == {
        "part-00000-slice-000-of-003": ("part-00000", 0, 3),
        "part-00000-slice-001-of-003": ("part-00000", 1, 3),
        "part-00000-slice-002-of-003": ("part-00000", 2, 3),
        "part-00001": ("part-00001", 0, 1),
        "part-00002": ("part-00002", 0, 1),
    }
