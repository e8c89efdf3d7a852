"""Project Gutenberg's books from mirrors: a server on this machine, since the real ones cannot be reached here."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dump_server import Misbehaving, serve

from bertline.console import BertlineError
from bertline.corpus import books
from bertline.corpus.books import download_book, read_checksums

TEXT = b"\xef\xbb\xbfIt is a truth universally acknowledged.\r\n"


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with serve() as running:
        yield running


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits, none of which is waited for."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


@pytest.mark.parametrize("place", ["cache/epub/1342/pg1342.txt", "1/3/4/1342/1342-0.txt", "1/3/4/1342/1342.txt"])
def test_a_book_comes_from_where_mirrors_have_it_with_a_contact_and_a_wait(
    tmp_path: Path, server: Misbehaving, waits: list[float], place: str
) -> None:
    server.files[f"/pg/{place}"] = TEXT
    output = tmp_path / "1342.txt"
    download_book(1342, output, mirrors=[server.url("/none"), server.url("/pg/")], contact="me@university.edu")
    assert output.read_bytes() == TEXT
    assert all("(me@university.edu)" in headers["User-Agent"] for _, headers in server.requests)
    # After each address that is asked for, also if it has nothing.
    assert waits == [2.0] * len(server.requests)
    # As sha256sum would have it.
    assert (tmp_path / "1342.txt.sha256").read_text() == f"{hashlib.sha256(TEXT).hexdigest()}  1342.txt\n"
    subprocess.run(["sha256sum", "--check", "--quiet", "1342.txt.sha256"], cwd=tmp_path, check=True)


def test_a_book_of_one_digit_and_a_folder_as_a_mirror(tmp_path: Path, waits: list[float]) -> None:
    (tmp_path / "mirror/0/9").mkdir(parents=True)
    (tmp_path / "mirror/0/9/9.txt").write_bytes(TEXT)
    download_book(9, tmp_path / "9.txt", mirrors=[str(tmp_path / "mirror")])
    assert (tmp_path / "9.txt").read_bytes() == TEXT
    assert waits == []


def test_a_book_that_changed_since_its_first_download_is_one_line(tmp_path: Path, server: Misbehaving) -> None:
    server.files["/cache/epub/11/pg11.txt"] = TEXT
    output = tmp_path / "11.txt"
    download_book(11, output, mirrors=[server.address])
    output.unlink()
    server.files["/cache/epub/11/pg11.txt"] = TEXT + b"Corrected."
    with pytest.raises(BertlineError, match=r"wrong checksum, sha256 .*; if .* corrected .* delete .*11\.txt\.sha256"):
        download_book(11, output, mirrors=[server.address])
    assert not output.exists()
    (tmp_path / "11.txt.sha256").unlink()
    download_book(11, output, mirrors=[server.address])
    assert output.read_bytes().endswith(b"Corrected.")


def test_a_given_checksum_counts_more_than_a_recorded_one(tmp_path: Path, server: Misbehaving) -> None:
    server.files["/cache/epub/11/pg11.txt"] = TEXT
    (tmp_path / "11.txt.sha256").write_text(f"{'0' * 64}  11.txt\n")
    download_book(11, tmp_path / "11.txt", mirrors=[server.address], sha256=hashlib.sha256(TEXT).hexdigest())
    with pytest.raises(BertlineError, match="wrong checksum") as caught:
        download_book(11, tmp_path / "11.txt", mirrors=[server.address], sha256="1" * 64)
    assert "corrected" not in str(caught.value)


def test_a_recorded_checksum_is_not_written_again(tmp_path: Path, server: Misbehaving) -> None:
    server.files["/cache/epub/11/pg11.txt"] = TEXT
    record = tmp_path / "11.txt.sha256"
    written = f"{hashlib.sha256(TEXT).hexdigest()} *11.txt\n"  # as by sha256sum --binary
    record.write_text(written)
    download_book(11, tmp_path / "11.txt", mirrors=[server.address])
    assert record.read_text() == written


def test_an_empty_answer_or_a_page_of_a_login_is_no_book(tmp_path: Path, server: Misbehaving) -> None:
    server.files |= {"/cache/epub/7/pg7.txt": b"", "/0/7/7-0.txt": b"<html>Log in"}
    server.faults["/0/7/7-0.txt"] = [("headers", {"Content-Type": "text/html; charset=utf-8"})]
    with pytest.raises(
        BertlineError, match=r"the file is empty.*; 127.*sends a web page \(text/html\).*; 127.*HTTP 404"
    ):
        download_book(7, tmp_path / "7.txt", mirrors=[server.address])
    assert list(tmp_path.iterdir()) == []


def test_a_book_that_no_mirror_has_and_one_that_is_too_large_are_one_line(
    tmp_path: Path, server: Misbehaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BertlineError, match=r"2\.txt could not be downloaded \(127.0.0.1:\d+: HTTP 404") as caught:
        download_book(2, tmp_path / "2.txt", mirrors=[server.address])
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(books, "MAX_BOOK_BYTES", 10)
    server.files["/cache/epub/2/pg2.txt"] = TEXT
    with pytest.raises(BertlineError, match="sends more than 10 bytes"):
        download_book(2, tmp_path / "2.txt", mirrors=[server.address])
    assert list(tmp_path.iterdir()) == []


def test_checksums_are_read_as_sha256sum_writes_them(tmp_path: Path) -> None:
    for name in ("1.txt", "two words.txt"):
        (tmp_path / name).write_text(name)
    for options in ([], ["--binary"]):
        listed = subprocess.run(["sha256sum", *options, *tmp_path.glob("*.txt")], capture_output=True, check=True)
        (tmp_path / "sums").write_bytes(listed.stdout)
        expected = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("1.txt", "two words.txt")}
        assert read_checksums(tmp_path / "sums") == expected
    (tmp_path / "sums").write_text(f"{'a' * 64}  1.txt\n{'a' * 63}  2.txt\n")
    with pytest.raises(BertlineError, match="sums, line 2 is not a checksum as sha256sum writes it"):
        read_checksums(tmp_path / "sums")
