"""Downloads from a server that misbehaves."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from dump_server import CUT, CUT_AND_IGNORE_RANGE, ENDLESS, IGNORE_RANGE, Misbehaving, serve, serve_bytes

from bertline import __version__
from bertline.console import BertlineError, without_credentials
from bertline.corpus import http_download as module
from bertline.corpus.download import download, download_file, name_of_mirror
from bertline.corpus.expected_file import Expected

CONTENT = random.Random(1).randbytes(3_000_000)  # noqa: S311
EXPECTED = Expected(size=len(CONTENT), sha1=hashlib.sha1(CONTENT).hexdigest())  # noqa: S324


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with serve() as state:
        state.files["/file"] = CONTENT
        yield state


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been slept."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    return slept


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "file"


def ranges(server: Misbehaving) -> list[str | None]:
    return [headers.get("Range") for _, headers in server.requests]


def assert_nothing_is_left(destination: Path, *, part: bool = False) -> None:
    assert [path.name for path in destination.parent.iterdir()] == (["file.part"] if part else [])


def test_a_file_arrives_and_the_server_gets_the_contact(server: Misbehaving, destination: Path) -> None:
    download([server.url("/file")], destination, EXPECTED, contact="someone@university.edu")
    assert destination.read_bytes() == CONTENT
    assert [path.name for path in destination.parent.iterdir()] == ["file"]
    assert server.requests[0][1]["User-Agent"] == f"bertline/{__version__} (someone@university.edu)"


def test_a_cut_connection_is_continued_where_it_was_cut(
    server: Misbehaving, destination: Path, waits: list[float]
) -> None:
    server.faults["/file"] = [CUT, CUT]
    download([server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT
    first, *continued = (int((header or "bytes=0-")[6:-1]) for header in ranges(server))
    assert first == 0
    # The server sends a half, then a half of the rest; the piece in which it stops may be lost.
    assert [round(start / len(CONTENT), 1) for start in continued] == [0.5, 0.7]


def test_the_partial_file_of_an_earlier_run_is_continued(server: Misbehaving, destination: Path) -> None:
    destination.parent.mkdir()
    destination.with_name("file.part").write_bytes(CONTENT[:1000])
    download([server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]


@pytest.mark.parametrize("size", [None, len(CONTENT)])
@pytest.mark.parametrize("left", [b"another file", b"x" * len(CONTENT)])
def test_the_partial_file_of_an_earlier_run_is_not_trusted_without_a_checksum(
    server: Misbehaving, destination: Path, size: int | None, left: bytes
) -> None:
    destination.parent.mkdir()
    destination.with_name("file.part").write_bytes(left)
    download([server.url("/file")], destination, Expected(size=size))
    assert destination.read_bytes() == CONTENT


def test_a_leftover_of_another_file_is_thrown_away_and_fetched_anew(server: Misbehaving, destination: Path) -> None:
    destination.parent.mkdir()
    destination.with_name("file.part").write_bytes(b"x" * 1000)
    download([server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-", None]


def test_a_leftover_longer_than_the_file_is_thrown_away(server: Misbehaving, destination: Path) -> None:
    destination.parent.mkdir()
    destination.with_name("file.part").write_bytes(CONTENT + b"x")
    download([server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT


def test_a_whole_leftover_is_not_fetched_again(server: Misbehaving, destination: Path) -> None:
    destination.parent.mkdir()
    destination.with_name("file.part").write_bytes(CONTENT)
    download([server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT
    assert not server.requests


def test_an_empty_file_is_made_without_asking_for_it(server: Misbehaving, destination: Path) -> None:
    download([server.url("/file")], destination, Expected(size=0))
    assert destination.read_bytes() == b""
    with pytest.raises(BertlineError, match=r"wrong checksum, sha1 .*; it was deleted"):
        download([server.url("/file")], destination, Expected(size=0, sha1="0" * 40))


def test_a_whole_leftover_of_unknown_size_is_found_to_be_whole(server: Misbehaving, destination: Path) -> None:
    destination.parent.mkdir()
    destination.with_name("file.part").write_bytes(CONTENT)
    download([server.url("/file")], destination, Expected(sha1=EXPECTED.sha1))
    assert destination.read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={len(CONTENT)}-"]


def test_a_server_that_ignores_range_starts_again(server: Misbehaving, destination: Path, waits: list[float]) -> None:
    server.faults["/file"] = [CUT, IGNORE_RANGE]
    download([server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT


def test_a_server_that_always_cuts_and_ignores_range_is_given_up(
    server: Misbehaving, destination: Path, waits: list[float]
) -> None:
    server.faults["/file"] = [CUT_AND_IGNORE_RANGE] * 20
    with pytest.raises(BertlineError, match=r"connection lost after 14\d{5} bytes .*after 6 failed attempts"):
        download([server.url("/file")], destination, EXPECTED)
    assert_nothing_is_left(destination, part=True)


def test_a_busy_server_is_waited_for_ever_longer(server: Misbehaving, destination: Path, waits: list[float]) -> None:
    server.faults["/file"] = [503, 503, 429]
    download([server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT
    assert waits == [2, 4, 8]


def test_retry_after_is_honoured_up_to_a_limit(server: Misbehaving, destination: Path, waits: list[float]) -> None:
    server.faults["/file"] = [(503, {"Retry-After": "50"}), (503, {"Retry-After": "99999"})]
    download([server.url("/file")], destination, EXPECTED)
    assert waits == [50, module.MAX_WAIT_SECONDS]


def test_progress_between_failures_starts_the_count_anew(
    server: Misbehaving, destination: Path, waits: list[float]
) -> None:
    server.faults["/file"] = [*[503] * 4, CUT, *[503] * 4, CUT, *[503] * 4]
    download([server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT


def test_a_mirror_without_the_file_is_passed_over_at_once(
    server: Misbehaving, destination: Path, waits: list[float]
) -> None:
    download([server.url("/nothing"), server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT
    assert [path for path, _ in server.requests] == ["/nothing", "/file"]
    assert not waits


def test_giving_up_is_one_line_with_what_each_mirror_answered(
    server: Misbehaving, destination: Path, tmp_path: Path, waits: list[float]
) -> None:
    server.faults["/file"] = [503] * 6
    sources = [server.url("/nothing"), server.url("/file"), "http://127.0.0.1:9/file", str(tmp_path / "absent")]
    with pytest.raises(BertlineError) as caught:
        download(sources, destination, EXPECTED)
    message = str(caught.value)
    host = server.address.removeprefix("http://")
    assert "\n" not in message
    assert f"{host}: HTTP 404; {host}: HTTP 503, after 6 failed attempts; 127.0.0.1:9: no connection (" in message
    assert f"{tmp_path / 'absent'}: does not exist" in message
    assert_nothing_is_left(destination)


def test_a_wrong_checksum_is_reported_and_the_file_deleted(server: Misbehaving, destination: Path) -> None:
    server.files["/file"] = b"x" * len(CONTENT)
    with pytest.raises(BertlineError, match=r"wrong checksum, sha1 .* it was deleted"):
        download([server.url("/file")], destination, EXPECTED)
    assert len(server.requests) == 1
    assert_nothing_is_left(destination)


def test_a_wrong_size_is_reported_and_the_file_deleted(server: Misbehaving, destination: Path) -> None:
    server.files["/file"] = CONTENT + b"x"
    with pytest.raises(BertlineError, match="sends more than 3,000,000 bytes; what came was deleted"):
        download([server.url("/file")], destination, EXPECTED)
    assert_nothing_is_left(destination)


def test_after_a_wrong_checksum_the_next_mirror_is_asked(server: Misbehaving, destination: Path) -> None:
    server.files["/wrong"] = b"x" * len(CONTENT)
    download([server.url("/wrong"), server.url("/file")], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT


def test_a_sha256_is_verified(server: Misbehaving, destination: Path) -> None:
    with pytest.raises(BertlineError, match="wrong checksum, sha256"):
        download([server.url("/file")], destination, Expected(sha256="0" * 64))
    download([server.url("/file")], destination, Expected(sha256=hashlib.sha256(CONTENT).hexdigest()))
    assert destination.read_bytes() == CONTENT


def test_a_local_copy_is_checked_too(tmp_path: Path, destination: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(CONTENT[:-1])
    with pytest.raises(BertlineError, match="2999999 bytes instead of 3000000"):
        download([str(copy)], destination, EXPECTED)
    copy.write_bytes(CONTENT)
    download([str(copy)], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT


def test_one_file_is_taken_out_of_an_archive(tmp_path: Path, destination: Path) -> None:
    archive = tmp_path / "CoLA.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("CoLA/train.tsv", "rows")
    download_file(str(archive), destination, member="CoLA/train.tsv")
    assert destination.read_text() == "rows"
    assert [path.name for path in destination.parent.iterdir()] == ["file"]


def test_an_archive_beside_the_output_is_left_alone_and_the_download_is_continued(
    server: Misbehaving, destination: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "CoLA.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("CoLA/train.tsv", CONTENT)
    server.files["/CoLA.zip"] = archive.read_bytes()
    destination.parent.mkdir()
    destination.with_name("file.zip").write_text("the user's own")
    destination.with_name("file.zip.part").write_text("as well")
    destination.with_name(".file.zip.part").write_bytes(archive.read_bytes()[:1000])
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    download_file(server.url("/CoLA.zip"), destination, sha256=sha256, member="CoLA/train.tsv")
    assert destination.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]
    assert destination.with_name("file.zip").read_text() == "the user's own"
    assert sorted(path.name for path in destination.parent.iterdir()) == ["file", "file.zip", "file.zip.part"]


@pytest.mark.parametrize(
    ("content", "message"), [(b"PK nonsense", "CoLA.zip is damaged or truncated"), (None, "holds no file 'x/y'")]
)
def test_an_archive_that_cannot_serve_is_named(
    tmp_path: Path, destination: Path, content: bytes | None, message: str
) -> None:
    archive = tmp_path / "CoLA.zip"
    if content is None:
        with zipfile.ZipFile(archive, "w") as written:
            written.writestr("x/z", "rows")
    else:
        archive.write_bytes(content)
    with pytest.raises(BertlineError, match=message):
        download_file(str(archive), destination, member="x/y")
    assert_nothing_is_left(destination)


def test_no_more_bytes_are_written_than_are_expected(server: Misbehaving, destination: Path) -> None:
    server.faults["/file"] = [ENDLESS]
    with pytest.raises(BertlineError, match="sends more than 3,000,000 bytes"):
        download([server.url("/file")], destination, EXPECTED)
    assert_nothing_is_left(destination)


def test_what_an_earlier_run_left_counts_towards_the_limit(server: Misbehaving, destination: Path) -> None:
    destination.parent.mkdir()
    destination.with_name("file.part").write_bytes(CONTENT[:2_000_000])
    with pytest.raises(BertlineError, match="sends more than 2,500,000 bytes"):
        download([server.url("/file")], destination, Expected(sha1=EXPECTED.sha1, max_size=2_500_000))
    assert ranges(server) == ["bytes=2000000-"]
    assert_nothing_is_left(destination)


@pytest.mark.parametrize("fault", [ENDLESS, None])
def test_a_file_of_unknown_size_has_a_limit(server: Misbehaving, destination: Path, fault: str | None) -> None:
    server.faults["/file"] = [fault]
    with pytest.raises(BertlineError, match="sends more than 100,000 bytes"):
        download([server.url("/file")], destination, Expected(max_size=100_000))
    assert_nothing_is_left(destination)


def test_an_answer_of_unstated_size_has_a_limit(
    server: Misbehaving, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNSTATED_BYTES", 100_000)
    server.faults["/file"] = [ENDLESS]
    with pytest.raises(BertlineError, match="sends more than 100,000 bytes"):
        download([server.url("/file")], destination, Expected())


def test_a_body_is_never_decoded(server: Misbehaving, destination: Path) -> None:
    packed = gzip.compress(bytes(50_000_000))
    for path, encoding in (("/bomb", "gzip"), ("/file.gz", "br"), ("/plain", "Identity"), ("/file.tsv.gz", "X-GZIP")):
        server.files[path] = packed
        server.faults[path] = [("headers", {"Content-Encoding": encoding})]
    server.faults["/named.gz"] = [(302, {"Location": "/cdn"})]
    server.files["/cdn"] = packed
    server.faults["/cdn"] = [("headers", {"Content-Encoding": "gzip"})]
    for path, encoding in (("/bomb", "gzip"), ("/file.gz", "br")):
        with pytest.raises(BertlineError, match=rf"encoded \({encoding}\), which was not asked for"):
            download([server.url(path)], destination, Expected())
    for path in ("/plain", "/file.tsv.gz", "/named.gz"):
        download([server.url(path)], destination, Expected())
        assert destination.read_bytes() == packed
    assert {headers["Accept-Encoding"] for _, headers in server.requests} == {"identity"}


def test_a_zip_unpacks_to_a_limited_multiple_of_its_size(tmp_path: Path, destination: Path) -> None:
    archive = tmp_path / "CoLA.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
        content.writestr("CoLA/train.tsv", bytes(100_000_000))
    with pytest.raises(BertlineError, match="unpacks to more than 100 times its size; name another archive"):
        download_file(str(archive), destination, member="CoLA/train.tsv")
    assert_nothing_is_left(destination)


def test_without_a_checksum_a_redirect_must_not_leave_https(
    server: Misbehaving, destination: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(certificate=self_signed(tmp_path)) as secure:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
        secure.faults["/file"] = [(302, {"Location": server.url("/file")})] * 2
        address = secure.url("/file")
        assert address.startswith("https://")
        with pytest.raises(BertlineError, match=r"redirects from https to http://.*; give a checksum"):
            download([address], destination, Expected(size=EXPECTED.size))
        download([address], destination, EXPECTED)
    assert destination.read_bytes() == CONTENT


def test_http_without_a_checksum_is_reported(
    server: Misbehaving, destination: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = "neither https nor a checksum protects this file"
    download([server.url("/file")], destination, EXPECTED)
    assert said not in caplog.text
    download([server.url("/file")], destination, Expected())
    assert said in caplog.text


def test_passwords_in_addresses_are_not_shown(
    server: Misbehaving, destination: Path, caplog: pytest.LogCaptureFixture, waits: list[float]
) -> None:
    caplog.set_level("INFO")
    server.faults["/file"] = [503]
    secret = server.url("/file").replace("//", "//me:p@ss/w0rd@").replace("p@ss/w0rd", "hidden%40hidden")
    download([secret], destination, Expected())
    with pytest.raises(BertlineError) as failure:
        download([f"{secret}x"], destination, Expected())
    assert "503" in caplog.text
    assert "hidden" not in caplog.text + str(failure.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://user:hidden/x@127.0.0.1:1/nope",
        "https://user:hid#den@127.0.0.1:1/nope",
        "https://user:hid?den@127.0.0.1:1/nope",
        "http://user:hid den@127.0.0.1:1/nope",
        "http://user:hid\\den@127.0.0.1:1/nope",
        "http://us%zz:hidden/w@x@127.0.0.1:1/nope",
        "http://[",
        "http://[x]/a",
        "http://a..b/x",
        f"http://{'a' * 300}/x",
        "http://127.0.0.1:99999/x",
        "http:///x",
    ],
)
def test_an_address_that_is_none_is_refused_without_being_shown(
    destination: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BertlineError, match=r"\(an address: is not a URL; percent-encode what is special") as failure:
        download([address], destination, Expected())
    assert not any(part in caplog.text + str(failure.value) for part in ("hid", "den@"))


def answer(*headers: str, status: str = "200 OK", body: bytes = b"x") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (answer("Content-Length: \u00b2"), None),
        (answer("Content-Length: " + "9" * 5000), None),
        (answer("Retry-After: \u00b2", status="503 Busy", body=b""), "HTTP 503, after 6 failed attempts"),
        (answer("Retry-After: " + "9" * 5000, status="503 Busy", body=b""), "HTTP 503, after 6 failed attempts"),
        (
            answer("Location: http://[", "Content-Length: 0", status="302 Moved", body=b""),
            "redirects to what is no URL",
        ),
        (
            answer("Location: http://a..b/", "Content-Length: 0", status="302 Moved", body=b""),
            "redirects to what is no",
        ),
        (
            answer("Location: file:///etc/passwd", "Content-Length: 0", status="302 Moved", body=b""),
            "to what is no URL",
        ),
        (answer("Content-Range: bytes 0-0/1", "Content-Length: 1", status="206 Part"), None),
        (answer("Content-Range: bytes 0-0/1000", "Content-Length: 1", status="206 Part"), "HTTP 206 with range"),
        (answer("Content-Range: bytes 0-\u00b2/\u00b3", "Content-Length: 1", status="206 Part"), "HTTP 206 with range"),
        (answer("Transfer-Encoding: chunked", body=b"zz\r\nabc"), "connection lost after 0 bytes"),
        (answer(*(f"X{number}: a" for number in range(500))), "connection lost after 0 bytes"),
        (b"\x00\xff junk\r\n\r\n", "connection lost after 0 bytes"),
        (b"", "connection lost after 0 bytes"),
    ],
)
def test_what_no_server_should_answer_is_read_or_refused_in_one_line(
    destination: Path, waits: list[float], sent: bytes, message: str | None
) -> None:
    with serve_bytes(sent) as address:
        if message is None:
            download([f"{address}/file"], destination, Expected())
            assert destination.read_bytes() == b"x"
            return
        with pytest.raises(BertlineError) as failure:
            download([f"{address}/file"], destination, Expected())
    assert message in str(failure.value)
    assert str(failure.value).isprintable()
    assert not destination.exists()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://me:pa/ss@w:0@rd@host/x", "https://host/x"),
        ("postgresql+psycopg2://u:p@ss@db:5432/mlflow", "postgresql+psycopg2://db:5432/mlflow"),
        ("https://token@host/x?key=1#y", "https://host/x?...#y"),
        ("both https://a:b@c/d and http://e:f@g/h failed", "both https://c/d and http://g/h failed"),
        ("https://host:8080/x", "https://host:8080/x"),
        ("https://host/users/@me", "https://host/users/@me"),
        ("sqlite:////home/me@here/mlflow.db", "sqlite:////home/me@here/mlflow.db"),
        ("git@host:path and a@b", "git@host:path and a@b"),
        ("https://host/x#access_token=key and #2", "https://host/x#... and #2"),
        ("https://host/x.md#a-heading", "https://host/x.md#a-heading"),
    ],
)
def test_credentials_are_left_out_of_a_text(given: str, shown: str) -> None:
    assert without_credentials(given) == shown


def self_signed(folder: Path) -> Path:
    """Write a key and a certificate for 127.0.0.1 to `folder`/certificate.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "certificate.pem"
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://[2001:DB8::1]:8080/x", "[2001:db8::1]:8080"),
        ("https://[::1]/x", "[::1]"),
        ("http://a.org:81", "a.org:81"),
    ],
)
def test_a_mirror_is_named_by_host_and_port(url: str, name: str) -> None:
    assert name_of_mirror(url) == name


def test_a_file_is_on_the_disk_before_it_gets_its_name(
    server: Misbehaving, destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure could leave an empty file under the final name."""
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, destination.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    download([server.url("/file")], destination, EXPECTED)
    assert synced == [(destination.stat().st_ino, False), (destination.parent.stat().st_ino, True)]
