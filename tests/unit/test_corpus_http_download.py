"""Downloads from a server whose every answer is written out: versions of a file, failures, and what they are called."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
import requests
from dump_server import serve
from raw_server import raw_server
from test_corpus_download import self_signed

from bertline.console import BertlineError
from bertline.corpus.download import download
from bertline.corpus.expected_file import Expected

OLD, NEW = b"A" * 3000, b"b" * 3000
SHA256 = hashlib.sha256(NEW).hexdigest()
TAG, OTHER_TAG, WEAK_TAG = 'ETag: "a"', 'ETag: "b"', 'ETag: W/"a"'
MODIFIED = "Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT"
AT_ONCE, LATER = "Date: Sat, 01 Jan 2000 00:00:30 GMT", "Date: Sat, 01 Jan 2000 00:01:00 GMT"
NO_SUCH = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n"


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Give these answers, one after the other; then there is no such file. Yields the address and what was asked."""
    asked: list[dict[str, str]] = []
    waiting = [*answers]

    def give(connection: socket.socket) -> None:
        lines = connection.recv(1 << 16).decode("latin-1").split("\r\n")[1:]
        asked.append(dict(line.split(": ", 1) for line in lines if line))
        connection.sendall(waiting.pop(0) if waiting else NO_SUCH)

    with raw_server(give) as address:
        yield address, asked


def whole(content: bytes, *headers: str, arrives: int | None = None) -> bytes:
    """Return an answer with a whole file, of which only the first bytes arrive."""
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(content)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + content[:arrives]


def rest(content: bytes, start: int, *headers: str, total: str | None = None) -> bytes:
    """Return an answer with the end of a file."""
    span = f"bytes {start}-{len(content) - 1}/{total or len(content)}"
    head = ["HTTP/1.1 206 Part", f"Content-Range: {span}", f"Content-Length: {len(content) - start}"]
    return "\r\n".join([*head, "Connection: close", *headers, "", ""]).encode() + content[start:]


def status(code: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {code} X", "Content-Length: 0", "Connection: close", *headers, "", ""]).encode()


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been slept."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    return slept


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertline.corpus.http_download.PIECE_BYTES", 100)


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ([TAG], '"a"'),
        ([TAG, MODIFIED, LATER], '"a"'),
        ([MODIFIED, LATER], "Sat, 01 Jan 2000 00:00:00 GMT"),
        ([MODIFIED, AT_ONCE], None),
        ([WEAK_TAG, MODIFIED, LATER], None),
        (["ETag: a"], None),
        (["Last-Modified: once", LATER], None),
        ([], None),
    ],
)
def test_without_a_checksum_a_file_is_continued_only_if_its_version_has_a_name(
    destination: Path, headers: list[str], version: str | None
) -> None:
    second = rest(NEW, 1500, *headers) if version else whole(NEW, *headers)
    with answering(whole(NEW, *headers, arrives=1500), second) as (address, asked):
        download([address], destination, Expected())
    assert destination.read_bytes() == NEW
    assert (asked[1].get("If-Range"), asked[1].get("Range")) == (version, version and "bytes=1500-")


@pytest.mark.parametrize(
    "answers",
    [
        [whole(NEW, OTHER_TAG)],
        [rest(NEW, 1500, OTHER_TAG), whole(NEW, OTHER_TAG)],  # although it was asked with If-Range
        [rest(NEW, 1500), whole(NEW, OTHER_TAG)],
        [status(416, "Content-Range: bytes */1500"), whole(NEW, OTHER_TAG)],  # the new file might be as long
        [whole(b"", "Transfer-Encoding: chunked", OTHER_TAG), rest(NEW, 0, TAG)],  # nothing arrives of the second
        [whole(NEW, OTHER_TAG, arrives=1000), rest(NEW, 1000, OTHER_TAG)],
    ],
)
@pytest.mark.parametrize("expected", [Expected(), Expected(size=len(NEW))])
def test_a_file_that_changes_between_two_attempts_is_not_joined(
    destination: Path, answers: list[bytes], expected: Expected
) -> None:
    with answering(whole(OLD, TAG, arrives=1500), *answers) as (address, asked):
        download([address], destination, expected)
    assert destination.read_bytes() == NEW
    assert len(asked) == 1 + len(answers)


def test_a_file_whose_date_changes_between_two_attempts_is_not_joined(destination: Path) -> None:
    changed = "Last-Modified: Sun, 02 Jan 2000 00:00:00 GMT"
    answers = [whole(OLD, MODIFIED, LATER, arrives=1500), rest(NEW, 1500, changed), whole(NEW, changed)]
    with answering(*answers) as (address, asked):
        download([address], destination, Expected())
    assert destination.read_bytes() == NEW
    assert [headers.get("Range") for headers in asked] == [None, "bytes=1500-", None]


def test_the_beginning_of_one_source_is_not_continued_from_another(destination: Path) -> None:
    with (
        answering(whole(OLD, TAG, arrives=1500), *[status(503)] * 6) as (first, _),
        answering(whole(NEW, TAG)) as (second, asked),
    ):
        download([first, second], destination, Expected())
    assert destination.read_bytes() == NEW
    assert "Range" not in asked[0]


@pytest.mark.parametrize(
    ("answers", "expected", "ranges"),
    [
        # Of unknown length: with a size, the rest is the rest.
        ([rest(NEW, 1000, total="*")], Expected(size=3000, sha256=SHA256), ["bytes=1000-"]),
        # Another part than was asked for, and a part that does not exist: start again.
        ([rest(NEW, 500), whole(NEW)], Expected(sha256=SHA256), ["bytes=1000-", None]),
        ([status(416, "Content-Range: bytes */5"), whole(NEW)], Expected(sha256=SHA256), ["bytes=1000-", None]),
        ([status(416), whole(NEW)], Expected(sha256=SHA256), ["bytes=1000-", None]),
        # A whole answer of a file that is shorter than it has to be: its end may follow.
        ([whole(NEW[:2000]), rest(NEW, 2000)], Expected(size=3000, sha256=SHA256), ["bytes=1000-", "bytes=2000-"]),
    ],
)
def test_the_rest_of_a_file_with_a_checksum_is_found(
    destination: Path, answers: list[bytes], expected: Expected, ranges: list[str | None]
) -> None:
    destination.with_name("file.part").write_bytes(NEW[:1000])
    with answering(*answers) as (address, asked):
        download([address], destination, expected)
    assert destination.read_bytes() == NEW
    assert [headers.get("Range") for headers in asked] == ranges


def test_a_server_whose_answers_are_too_short_is_given_up(destination: Path) -> None:
    lost = "connection lost after 1000 of 3000 bytes, after 6 failed attempts"
    with answering(*[whole(NEW[:1000])] * 6) as (address, _), pytest.raises(BertlineError, match=lost):
        download([address], destination, Expected(size=3000, sha256=SHA256))


def test_only_bytes_that_were_never_reached_are_progress(destination: Path) -> None:
    """A server that ignores Range and is cut at another place each time would be asked for ever."""
    answers = [whole(NEW, arrives=place) for place in (2000, *[500, 1000] * 5)]
    with answering(*answers) as (address, asked), pytest.raises(BertlineError, match="after 6 failed attempts"):
        download([address], destination, Expected(sha256=SHA256))
    assert len(asked) == 6


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503, 504])
def test_a_server_that_is_busy_or_restarts_is_asked_again(destination: Path, waits: list[float], code: int) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    with answering(status(code, f"Retry-After: {date}"), whole(NEW)) as (address, _):
        download([address], destination, Expected(sha256=SHA256))
    assert destination.read_bytes() == NEW
    assert 80 < waits[0] <= 100


@pytest.mark.parametrize(
    ("answer", "path", "expected", "message"),
    [
        (whole(b""), "", Expected(), "the file is empty; it was deleted"),
        (whole(b"<html>", "Content-Type: text/html"), "", Expected(), r"sends a web page \(text/html\) instead of"),
        (whole(b"<html>", "Content-Type: Text/HTML; charset=utf-8"), ".txt", Expected(), "sends a web page"),
        (whole(b"<html>", "Content-Type: text/html"), ".html", Expected(), None),
        (whole(NEW, "Content-Type: text/html"), "", Expected(sha256=SHA256), None),
        (whole(b"", "Content-Type: text/html"), "", Expected(sha256=hashlib.sha256().hexdigest()), None),
        (b"HTTP/1.1 404 X\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n<", "", Expected(), "HTTP 404"),
    ],
)
def test_an_empty_file_and_a_page_of_a_login_are_refused_without_a_checksum(
    destination: Path, answer: bytes, path: str, expected: Expected, message: str | None
) -> None:
    with answering(answer) as (address, _):
        if message is None:
            download([address + path], destination, expected)
            return
        with pytest.raises(BertlineError, match=message):
            download([address + path], destination, expected)
    assert list(destination.parent.iterdir()) == []


def test_a_redirect_that_leaves_https_on_its_way_is_refused(
    destination: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as plain, serve(certificate=self_signed(tmp_path)) as secure:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
        plain.files["/end"] = NEW
        for _ in range(2):
            secure.faults["/file"].append((302, {"Location": plain.url("/next")}))
            plain.faults["/next"].append((302, {"Location": plain.url("/end")}))
        with pytest.raises(BertlineError, match="redirects from https to http://"):
            download([secure.url("/file")], destination, Expected())
        download([secure.url("/file")], destination, Expected(sha256=SHA256))


@pytest.mark.parametrize(
    ("environment", "url", "message", "attempts"),
    [
        (
            {"REQUESTS_CA_BUNDLE": "/absent.pem"},
            "https://127.0.0.1:9/",
            "REQUESTS_CA_BUNDLE names certificates that",
            1,
        ),
        ({"CURL_CA_BUNDLE": "/absent.pem"}, "https://127.0.0.1:9/", "CURL_CA_BUNDLE names certificates that do not", 1),
        ({"HTTPS_PROXY": "socks5://127.0.0.1:9"}, "https://127.0.0.1:9/", "without PySocks; install it, or name", 1),
        (
            {"HTTPS_PROXY": "http://me:hidden@127.0.0.1:9"},
            "https://a.org/",
            "through the proxy (Connection refused)",
            6,
        ),
        ({}, "http://127.0.0.1:9/", "127.0.0.1:9: no connection (Connection refused), after 6 failed attempts", 6),
        ({}, "http://no-such-host.invalid/", "no-such-host.invalid: no connection (", 6),
    ],
)
def test_what_prevents_a_connection_is_named(
    destination: Path,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    url: str,
    message: str,
    attempts: int,
) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BertlineError) as failure:
        download([url], destination, Expected(sha256=SHA256))
    assert message in str(failure.value)
    assert "hidden" not in str(failure.value)
    assert len(waits) == attempts - 1


def test_a_certificate_that_is_not_trusted_and_a_server_without_tls_are_asked_once(
    destination: Path, tmp_path: Path, waits: list[float]
) -> None:
    with (
        serve(certificate=self_signed(tmp_path)) as secure,
        pytest.raises(BertlineError, match=r"its certificate is not accepted \(self.signed certificate\); name"),
    ):
        download([secure.url("/file")], destination, Expected())
    with serve() as plain, pytest.raises(BertlineError, match=r"does not speak TLS as expected \("):
        download([plain.url("/file").replace("http:", "https:")], destination, Expected())
    assert waits == []
    # A server that restarts.
    with answering(*[b""] * 6) as (address, _), pytest.raises(BertlineError, match=r"lost .*, after 6 failed"):
        download([address.replace("http:", "https:")], destination, Expected())


def test_a_failure_of_tls_within_a_file_is_temporary(destination: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise requests.exceptions.SSLError(ssl.SSLError(1, "bad record mac"))

    monkeypatch.setattr("bertline.corpus.http_download.write_part", fail)
    with answering(*[whole(NEW)] * 6) as (address, _), pytest.raises(BertlineError, match=r"lost .*, after 6 failed"):
        download([address], destination, Expected())


def test_a_proxy_that_refuses_and_a_circle_of_redirects_are_named(
    destination: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    circle, said = [status(302, "Location: /file")] * 40, r"127.0.0.1:[0-9]+: redirects without an end\)"
    with answering(*circle) as (address, _), pytest.raises(BertlineError, match=said):
        download([address], destination, Expected())
    assert waits == []
    with answering(*[status(407)] * 6) as (address, _):
        monkeypatch.setenv("HTTPS_PROXY", address.removesuffix("/file"))
        with pytest.raises(BertlineError, match=r"no connection through the proxy \(HTTP 407\), after 6 failed"):
            download(["https://a.org/"], destination, Expected())


def test_a_mirror_that_is_a_file_is_passed_over(destination: Path, tmp_path: Path) -> None:
    (tmp_path / "mirror").write_bytes(NEW)
    download([str(tmp_path / "mirror/file"), str(tmp_path / "mirror")], destination, Expected())
    assert destination.read_bytes() == NEW
    with pytest.raises(BertlineError, match=re.escape(f"{tmp_path}/mirror/file: not a directory")):
        download([str(tmp_path / "mirror/file")], destination, Expected())
