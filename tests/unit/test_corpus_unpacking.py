"""Archives of texts: what is in them is read, counted or refused, and never unpacked to a disk."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import pyzstd
from corpus_recipe import read

from bertline.console import BertlineError
from bertline.corpus import unpacking
from bertline.corpus.unpacking import is_compressed

TEXTS = {"b/two.txt": b"Two.\n", "one.txt": b"One is first in no order.\n", "b/three.txt.gz": gzip.compress(b"Three.")}

PACK: dict[str, Callable[[bytes], bytes]] = {
    **dict.fromkeys((".gz", ".tgz"), gzip.compress),
    **dict.fromkeys((".bz2", ".tbz", ".tbz2"), bz2.compress),
    **dict.fromkeys((".xz", ".txz"), lzma.compress),
    **dict.fromkeys((".zst", ".tzst"), pyzstd.compress),
}


def tar_bytes(members: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda _: None) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            change(member)
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return memory.getvalue()


def zip_bytes(members: dict[str, bytes]) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return memory.getvalue()


def archive_of(path: Path, members: dict[str, bytes]) -> Path:
    """An archive of the kind that its name implies."""
    content = zip_bytes(members) if path.suffix == ".zip" else tar_bytes(members)
    path.write_bytes(PACK.get(path.suffix.lower(), bytes)(content))
    return path


@pytest.mark.parametrize("kind", [".tar", ".zip", ".tar.gz", ".tar.zst", ".tgz", ".tbz", ".tbz2", ".txz", ".TZST"])
def test_a_member_is_a_document_and_the_others_are_counted(tmp_path: Path, kind: str) -> None:
    archive = archive_of(tmp_path / f"books{kind}", {**TEXTS, "cover.jpg": b"\xff\xd8", "README": b"Read me."})
    documents, counts = read(tmp_path, archive)
    assert [(document["id"], document["title"], document["text"]) for document in documents] == [
        (f"books{kind}!b/two.txt", "two", "Two."),
        (f"books{kind}!one.txt", "one", "One is first in no order."),
        (f"books{kind}!b/three.txt.gz", "three", "Three."),
    ]
    assert counts["read"] == 3
    assert counts["members_skipped"] == {"not a text": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == [archive.name, "out.counts.json", "out.jsonl.zst"]


def test_versions_of_a_member_have_one_id_and_so_are_held_out_together(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "books.tar", TEXTS)
    with tarfile.open(archive, "a") as appended:  # tar -r
        member = tarfile.TarInfo("one.txt")
        member.size = len(b"One, corrected.")
        appended.addfile(member, io.BytesIO(b"One, corrected."))
    documents, counts = read(tmp_path, archive)
    versions = [document["text"] for document in documents if document["id"] == "books.tar!one.txt"]
    assert versions == ["One is first in no order.", "One, corrected."]
    assert counts["kept"] == 4


def test_licences_separators_and_encodings_hold_for_members(tmp_path: Path) -> None:
    text = "Licence.\n*** START OF THE PROJECT GUTENBERG EBOOK X ***\nK\u00e4se.\n---\nBrot.\n"
    archive = archive_of(tmp_path / "books.zip", {"x.txt": text.encode("latin-1")})
    documents, counts = read(tmp_path, archive, encoding="latin-1", separator="---")
    assert [(document["id"], document["text"]) for document in documents] == [
        ("books.zip!x.txt#0", "K\u00e4se."),
        ("books.zip!x.txt#1", "Brot."),
    ]
    assert counts["gutenberg_lines_removed"] == 2
    with pytest.raises(BertlineError, match=r"books\.zip, member 'x\.txt', is not utf-8: byte 57 is 0xe4"):
        read(tmp_path, archive)


def test_zstd_texts_are_read_as_the_program_writes_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("From the program.")
    try:
        subprocess.run(["zstd", "-q", "--rm", "a.txt"], cwd=tmp_path, check=True)
    except FileNotFoundError:
        pytest.skip("the program zstd is not installed")
    documents, _ = read(tmp_path, tmp_path / "a.txt.zst")
    assert (documents[0]["title"], documents[0]["text"]) == ("a", "From the program.")


@pytest.mark.parametrize("kind", [".tar", ".tar.gz", ".zip"])
@pytest.mark.parametrize("name", ["../out.txt", "/etc/out.txt", "a/../../out.txt", "..\\out.txt", "C:\\out.txt"])
def test_a_member_that_leads_out_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    archive = archive_of(tmp_path / f"a{kind}", {"good.txt": b"Good.", name: b"Bad."})
    with pytest.raises(BertlineError, match=r"its member '.*out\.txt' leads out of the archive"):
        read(tmp_path, archive)
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]


@pytest.mark.parametrize("kind", [".tar", ".zip"])
def test_a_colon_in_the_name_of_a_member_leads_nowhere(tmp_path: Path, kind: str) -> None:
    archive = archive_of(tmp_path / f"a{kind}", {"5: notes.txt": b"Five.", "a/b: c.txt": b"Six."})
    documents, _ = read(tmp_path, archive)
    assert [document["id"] for document in documents] == [f"a{kind}!5: notes.txt", f"a{kind}!a/b: c.txt"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.SYMTYPE, "link"),
        (tarfile.LNKTYPE, "link"),
        (tarfile.CHRTYPE, "special file"),
        (tarfile.FIFOTYPE, "special file"),
    ],
)
def test_links_and_devices_are_counted_and_not_followed(tmp_path: Path, kind: bytes, reason: str) -> None:
    def change(member: tarfile.TarInfo) -> None:
        if member.name == "strange.txt":
            member.type, member.linkname, member.size = kind, "/etc/passwd", 0

    archive = tmp_path / "a.tar"
    archive.write_bytes(tar_bytes({"good.txt": b"Good.", "strange.txt": b""}, change))
    documents, counts = read(tmp_path, archive)
    assert [document["text"] for document in documents] == ["Good."]
    assert counts["members_skipped"] == {reason: 1}


def test_a_link_in_a_zip_is_not_followed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        link = zipfile.ZipInfo("link.txt")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("good.txt", "Good.")
    documents, counts = read(tmp_path, tmp_path / "a.zip")
    assert [document["text"] for document in documents] == ["Good."]
    assert counts["members_skipped"] == {"link": 1}


def test_an_archive_without_a_text_and_an_encrypted_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match=r"has no member that is a \.txt"):
        read(tmp_path, archive_of(tmp_path / "a.tar", {"a.pdf": b"%PDF"}))
    content = bytearray(zip_bytes({"a.txt": b"secret"}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "b.zip").write_bytes(content)
    with pytest.raises(BertlineError, match=r"'a\.txt' is encrypted or not packed by deflate"):
        read(tmp_path, tmp_path / "b.zip")


@pytest.mark.parametrize(
    "name", ["a.txt.gz", "a.jsonl.gz", "a.csv.gz", "a.html.gz", "a.tar.gz", "a.txt.xz", "a.txt.zst"]
)
def test_a_packed_file_without_a_byte_is_cut_short(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(BertlineError, match=rf"{name} is damaged or truncated \([^\n]+\); replace it"):
        read(tmp_path, tmp_path / name)


@pytest.mark.parametrize("kind", [".tar", ".zip"])
def test_so_is_a_packed_member(tmp_path: Path, kind: str) -> None:
    archive = archive_of(tmp_path / f"books{kind}", {"one.txt": b"One.", "b/two.txt.gz": b""})
    with pytest.raises(
        BertlineError, match=rf"books{kind} is damaged or truncated \(b/two\.txt\.gz is empty\); replace it"
    ):
        read(tmp_path, archive)


@pytest.mark.parametrize("headers", [1, 2])
def test_a_zip_whose_names_are_not_in_their_encoding_is_reported(tmp_path: Path, headers: int) -> None:
    """A name is in a member's own header, and in the list at the end, which is read first."""
    name = "\u00e9.txt"
    content = zip_bytes({name: b"One."}).replace(name.encode(), b"\xff\xff.txt", headers)
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(
        BertlineError, match=r"a\.zip is damaged or truncated \(the name of a member is not UTF-8, as it"
    ):
        read(tmp_path, tmp_path / "a.zip")


@pytest.mark.parametrize("cut", ["between members", "in a member", "in a header"])
def test_a_tar_that_is_cut_short_is_reported(tmp_path: Path, cut: str) -> None:
    content = tar_bytes({"a.txt": b"a" * 512, "b.txt": b"b" * 512})
    size = {"between members": 1024, "in a member": 1024 + 700, "in a header": 1024 + 100}[cut]
    (tmp_path / "a.tar").write_bytes(content[:size])
    with pytest.raises(BertlineError, match=r"a\.tar.* is damaged or truncated"):
        read(tmp_path, tmp_path / "a.tar")


def test_a_damaged_header_is_not_the_end_of_the_archive(tmp_path: Path) -> None:
    content = bytearray(tar_bytes({"a.txt": b"a" * 512, "b.txt": b"b" * 512}))
    content[1024 + 3] ^= 1
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(BertlineError, match=r"damaged or truncated \(bad checksum\)"):
        read(tmp_path, tmp_path / "a.tar")


def test_zeros_in_place_of_a_header_are_not_the_end_of_the_archive(tmp_path: Path) -> None:
    content = bytearray(tar_bytes({"a.txt": b"a" * 512, "b.txt": b"b" * 512}))
    content[1024:1536] = bytes(512)
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(BertlineError, match=r"damaged or truncated \(something follows its end\)"):
        read(tmp_path, tmp_path / "a.tar")


def test_a_zip_that_lists_fewer_members_than_it_has_is_reported(tmp_path: Path) -> None:
    """A comment's length that swallows the members listed after it: zipfile reads on as if nothing were missing."""
    content = bytearray(zip_bytes({f"{number}.txt": b"Text." for number in range(4)}))
    second = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1)
    third = content.index(b"PK\x01\x02", second + 1)
    content[second + 32] = len(content[third : content.index(b"PK\x01\x02", third + 1)])
    (tmp_path / "a.zip").write_bytes(content)
    assert len(zipfile.ZipFile(tmp_path / "a.zip").namelist()) == 3
    with pytest.raises(BertlineError, match="it lists 3 members, but states that it has 4"):
        read(tmp_path, tmp_path / "a.zip")


def bombs(folder: Path) -> list[Path]:
    """Files of 60 to 300 kB that unpack to 64 MiB or more, as text, in members, and in a header."""
    zeros = b"0" * (1 << 20)
    text = folder / "text.txt.gz"
    with gzip.open(text, "wb") as file:
        for _ in range(64):
            file.write(zeros)
    short = folder / "short.txt.zst"
    short.write_bytes(pyzstd.compress(zeros * 64))
    packed = folder / "members.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8):
            archive.writestr(f"{number}.txt", zeros * 8)
    nested = archive_of(folder / "nested.tar", {"inner.txt.gz": text.read_bytes()})
    unread = archive_of(folder / "unread.tar.gz", {"a.txt": b"a", "zeros.bin": bytes(64 << 20)})
    header = folder / "header.tar.gz"
    member = tarfile.TarInfo("a" * 200)
    member.size = 1
    content = bytearray(member.tobuf(tarfile.PAX_FORMAT))
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = tarfile.XHDTYPE, 64 << 20
    header.write_bytes(gzip.compress(member.tobuf(tarfile.USTAR_FORMAT) + b"9" * (64 << 20) + bytes(content)))
    return [text, short, packed, nested, unread, header]


LIMITED = """
import resource, sys
sys.path.append(sys.argv.pop(1))
from bertline.console import BertlineError
from bertline.corpus import unpacking
from corpus_recipe import read_texts
resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, 300 << 20))
folder, *bombs = sys.argv[1:]
for bomb in bombs:
    try:
        read_texts([bomb], f"{folder}/o.zst", f"{folder}/c")
    except BertlineError as error:
        print(error)
"""


def test_bombs_end_in_one_line_within_little_memory_and_disk(tmp_path: Path) -> None:
    paths = bombs(tmp_path)
    finished = subprocess.run(
        [sys.executable, "-c", LIMITED, Path(__file__).parent, tmp_path, *paths],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = finished.stdout.splitlines()
    for path, line in zip(paths, lines, strict=True):
        assert line.startswith(str(path))
        assert "unpacks to more than 100 times its size" in line or "a header of 67108864 bytes" in line
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_the_ratio_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "ALWAYS_ALLOWED_BYTES", 1000)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"0123456789 " * 10_000))
    with pytest.raises(BertlineError, match=r"a\.txt\.gz unpacks to more than 100 times .*raise .* unpack_ratio"):
        read(tmp_path, tmp_path / "a.txt.gz", unpack_ratio=100)
    documents, _ = read(tmp_path, tmp_path / "a.txt.gz", unpack_ratio=1000)
    assert len(documents[0]["text"].split()) == 10_000


def test_a_file_that_may_not_be_read_is_reported(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    file = tmp_path / "a.txt"
    file.write_text("Secret.")
    file.chmod(0)
    with pytest.raises(BertlineError, match="cannot be read: permission denied"):
        read(tmp_path, file)


@pytest.mark.parametrize("kind", [".tar", ".zip"])
def test_what_macos_adds_to_an_archive_is_no_text(tmp_path: Path, kind: str) -> None:
    """AppleDouble files, with the attributes of the file of that name: section 2 of RFC 1740."""
    attributes = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        \xb0"
    members = {"a/one.txt": b"One.", "__MACOSX/a/one.txt": attributes, "a/._one.txt": attributes}
    documents, counts = read(tmp_path, archive_of(tmp_path / f"a{kind}", members))
    assert [document["text"] for document in documents] == ["One."]
    assert counts["members_skipped"] == {"not a text": 2}


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_folders_in_an_archive_are_not_counted(tmp_path: Path, kind: str) -> None:
    (tmp_path / "folder/sub.txt").mkdir(parents=True)
    (tmp_path / "folder/one.txt").write_bytes(b"One.")
    archive = shutil.make_archive(str(tmp_path / "a"), kind, tmp_path, "folder")
    documents, counts = read(tmp_path, Path(archive))
    assert [document["text"] for document in documents] == ["One."]
    assert counts["members_skipped"] == {}


@pytest.mark.parametrize("kind", [".tar", ".zip"])
def test_a_member_that_is_named_like_a_folder_is_no_text(tmp_path: Path, kind: str) -> None:
    documents, counts = read(
        tmp_path, archive_of(tmp_path / f"a{kind}", {".": b"One.", "b/.": b"Two.", "c.txt": b"C."})
    )
    assert [document["text"] for document in documents] == ["C."]
    assert counts["members_skipped"] == {"not a text": 2}


@pytest.mark.parametrize(
    ("names", "compressed"),
    [
        (
            ("a.txt.gz", "A.JSONL.ZST", "a.xml-p1p2.bz2", "a.tar.xz", "a.tgz", "a.TZST", "a.zip", "a.7z", "a.parquet"),
            True,
        ),
        (("a.txt", "a.gz.txt", "a.tar", "a.jsonl", "a.arrow", "gz"), False),
    ],
)
def test_compressed_files_are_found_by_their_names(names: tuple[str, ...], compressed: bool) -> None:
    assert [is_compressed(name) for name in names] == [compressed] * len(names)


SEVEN_ZIP, RAR = b"7z\xbc\xaf\x27\x1c\0\4", b"Rar!\x1a\x07\1\0"  # how their files begin
COMPRESS, LZ4, LZIP = b"\x1f\x9d\x90T\xca", b"\x04\x22\x4d\x18\x64\x40", b"LZIP\x01\x0c"
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"


@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.csv", "a.zip"])
@pytest.mark.parametrize(
    ("program", "content"),
    [
        pytest.param("gzip", gzip.compress(b"Text."), id="gzip"),
        pytest.param("bzip2", bz2.compress(b"Text."), id="bzip2"),
        pytest.param("xz", lzma.compress(b"Text."), id="xz"),
        pytest.param("zstd", pyzstd.compress(b"Text."), id="zstd"),
        pytest.param("zip", zip_bytes({"a.txt": b"Text."}), id="zip"),
        pytest.param("7-Zip", SEVEN_ZIP, id="7-Zip"),
        pytest.param("RAR", RAR, id="RAR"),
        pytest.param("compress", COMPRESS, id="compress"),
        pytest.param("lz4", LZ4, id="lz4"),
        pytest.param("lzip", LZIP, id="lzip"),
    ],
)
def test_packed_content_under_another_name_is_no_text_in_any_encoding(
    tmp_path: Path, name: str, program: str, content: bytes
) -> None:
    file = tmp_path / name
    file.write_bytes(zip_bytes({"b.txt": content}) if name == "a.zip" else content)
    for encoding in ("utf-8", "latin-1", ["utf-8", "latin-1"]):
        with pytest.raises(BertlineError, match=rf"{name}.* is packed by {program}, which its name does not say;"):
            read(tmp_path, file, encoding=encoding)


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", ["a.txt", "a.gz", "several.gz", "b.zip"])
def test_a_tar_archive_under_another_name_is_no_text(tmp_path: Path, name: str, format_: int) -> None:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w", format=format_) as archive:
        for member in ("é.txt", "b.txt"):
            info = tarfile.TarInfo(member)
            info.size = 20_000
            archive.addfile(info, io.BytesIO(b"A text.\n" * 2_500))
    content = memory.getvalue()
    packed = {
        "a.txt": content,
        "a.gz": gzip.compress(content),
        "several.gz": b"".join(gzip.compress(piece) for piece in (content[:1], content[1:200], content[200:])),
        "b.zip": zip_bytes({"a.txt": content}),
    }
    (tmp_path / name).write_bytes(packed[name])
    with pytest.raises(
        BertlineError, match=r"is a tar archive, which its name does not say; unpack, convert or rename"
    ):
        read(tmp_path, tmp_path / name)


def test_a_pdf_under_another_name_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(PDF)
    with pytest.raises(BertlineError, match=r"a\.txt is a PDF, which its name does not say"):
        read(tmp_path, tmp_path / "a.txt", encoding=["utf-8", "cp1252", "latin-1"])


@pytest.mark.parametrize("name", ["a.txt.Z", "a.txt.br", "a.txt.lzo"])
def test_files_that_are_packed_otherwise_are_refused_by_their_names(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"Text.")
    with pytest.raises(BertlineError, match=r"is packed in a format that is not read; pack it again"):
        read(tmp_path, tmp_path / name)


def test_a_text_that_is_packed_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(bz2.compress(json.dumps({"text": "Text."}).encode())))
    with pytest.raises(BertlineError, match=r"a\.jsonl\.gz is packed by bzip2, which its name does not say"):
        read(tmp_path, tmp_path / "a.jsonl.gz")


def test_texts_that_begin_as_a_packed_file_almost_does_are_read(tmp_path: Path) -> None:
    for text in ("BZh9 is a mark.", "PK is a name.", "Rar! he said.", "7z is a program.", "LZIP packs.", "%PDF", ""):
        (tmp_path / "a.txt").write_text(text)
        documents, _ = read(tmp_path, tmp_path / "a.txt")
        assert [document["text"] for document in documents] == ([text] if text else [])
