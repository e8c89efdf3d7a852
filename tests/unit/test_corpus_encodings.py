"""Files in several encodings: each text is read with the first that decodes all of it."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from corpus_recipe import schema_of_configurations
from test_corpus_text_files import put, read
from test_corpus_unpacking import archive_of

from bertline.console import BertlineError
from bertline.corpus import encodings
from bertline.corpus.encodings import check_encoding, first_that_decodes
from bertline.fingerprint import fingerprint
from bertline.settings.configuration import definition, strip_defaults, validate

ENGLISH, FRENCH = "A plain line of text.", "Cæsar était là, dit-il."
BOTH = ["utf-8", "latin-1"]


def test_each_text_has_the_first_encoding_that_decodes_it(tmp_path: Path) -> None:
    files = [
        put(tmp_path / "a.txt", FRENCH),
        put(tmp_path / "b.txt", FRENCH.encode("latin-1")),
        put(tmp_path / "c.txt.gz", FRENCH.encode("latin-1")),
        put(tmp_path / "d.csv", f"id,text\n1,«{FRENCH.replace(',', '')}»\n".encode("latin-1")),
    ]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("e.txt", FRENCH)
        archive.writestr("f.txt", FRENCH.encode("latin-1"))
        archive.writestr("g.html", f"<p>{FRENCH} {ENGLISH}</p>".encode("latin-1"))
    files.append(put(tmp_path / "h.zip", packed.getvalue()))
    documents, counts = read(tmp_path, *files, encoding=BOTH)
    assert len(documents) == 7
    assert all("æsar était là" in document["text"] for document in documents)
    assert counts["encodings"] == {"utf-8": 2, "latin-1": 4}
    # With one encoding nothing is chosen, and nothing counted.
    _, counts = read(tmp_path, files[0], encoding="utf-8")
    assert "encodings" not in counts


@pytest.mark.parametrize("kind", [".tar", ".tar.gz", ".zip"])
def test_members_of_any_archive_have_their_encodings(tmp_path: Path, kind: str) -> None:
    contents = {"a.txt": FRENCH.encode("latin-1"), "b.txt": FRENCH.encode(), "c.txt.gz": gzip.compress(FRENCH.encode())}
    archive = archive_of(tmp_path / f"books{kind}", contents)
    documents, counts = read(tmp_path, archive, encoding=BOTH)
    assert [document["text"] for document in documents] == 3 * [FRENCH]
    assert counts["encodings"] == {"utf-8": 2, "latin-1": 1}


def test_the_wrong_byte_may_be_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any chunk, also of a file that does not fit into memory."""
    monkeypatch.setattr(encodings, "CHUNK_BYTES", 7)
    monkeypatch.setattr(encodings, "SPOOLED_BYTES", 20)
    for length in range(24):
        content = (length * "a" + "æ").encode("latin-1") + 24 * b"b"
        for path in (put(tmp_path / "a.txt", content), put(tmp_path / "a.txt.gz", content)):
            (document,), counts = read(tmp_path, path, encoding=BOTH)
            assert document["text"] == content.decode("latin-1")
            assert counts["encodings"] == {"utf-8": 0, "latin-1": 1}


def test_utf_16_needs_its_mark_and_nul_is_no_text(tmp_path: Path) -> None:
    three = ["utf-8", "utf-16", "latin-1"]
    (document,), counts = read(tmp_path, put(tmp_path / "a.txt", FRENCH.encode("utf-16")), encoding=three)
    assert document["text"] == FRENCH
    assert counts["encodings"] == {"utf-8": 0, "utf-16": 1, "latin-1": 0}
    message = r"a\.txt is none of utf-8, utf-16, latin-1: as utf-8 it has NUL characters; convert the file or set"
    with pytest.raises(BertlineError, match=message):
        read(tmp_path, put(tmp_path / "a.txt", ENGLISH.encode("utf-16-le")), encoding=three)
    with pytest.raises(BertlineError, match=r"a\.txt is none of utf-8, ascii: as utf-8 byte 1 is 0xe6 \(invalid"):
        read(tmp_path, put(tmp_path / "a.txt", FRENCH.encode("latin-1")), encoding=["utf-8", "ascii"])


@pytest.mark.parametrize(
    ("content", "advised"),
    [
        ("“Grüße” – ok…".encode("cp1252"), "cp1252"),
        ("Grüße".encode("latin-1"), "latin-1"),
        (b"Gr\xfc\xdfe \x96 \x81", "latin-1"),  # 0x81 is none of cp1252's
    ],
)
def test_the_error_names_cp1252_where_latin_1_would_lose_punctuation(
    tmp_path: Path, content: bytes, advised: str
) -> None:
    file = put(tmp_path / "a.txt", content)
    for encoding in ("utf-8", ["utf-8", "ascii"]):
        with pytest.raises(BertlineError, match=f"convert the file or set the corpus's encoding, such as {advised}$"):
            read(tmp_path, file, encoding=encoding)
    with pytest.raises(BertlineError, match=r"set the corpus's encoding, such as utf-16$"):
        read(tmp_path, put(tmp_path / "b.txt", content.decode("latin-1").encode("utf-16")))
    (document,), _ = read(tmp_path, file, encoding=["utf-8", "cp1252", "latin-1"])
    assert document["text"] == content.decode(advised).replace(" \x96 \x81", "")


@pytest.mark.parametrize("text", [ENGLISH, FRENCH, "Она прочитала письмо дважды.", "Hello"])
@pytest.mark.parametrize("kind", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", ["utf-8", "cp1252"]])
def test_utf_16_without_its_mark_is_refused_and_named(tmp_path: Path, text: str, kind: str, encoding: Any) -> None:
    file = put(tmp_path / "a.txt", text.encode(kind))
    with pytest.raises(BertlineError, match=r"a\.txt is no(t|ne of) .*corpus's encoding, such as ") as raised:
        read(tmp_path, file, encoding=encoding)
    assert str(raised.value).endswith(f"such as {kind}")
    assert text == FRENCH or "it has NUL characters" in str(raised.value)  # the other has a wrong byte as well
    (document,), _ = read(tmp_path, file, encoding=kind)
    assert document["text"] == text


@pytest.mark.parametrize(
    ("nuls", "length", "refused"), [(3, 0, False), (4, 0, True), (9, 1000, False), (11, 900, True)]
)
def test_a_few_nuls_are_spaces_and_many_are_no_text(tmp_path: Path, nuls: int, length: int, refused: bool) -> None:
    file = put(tmp_path / "a.txt", nuls * "a\0b " + length * "c")
    if refused:
        with pytest.raises(BertlineError, match=r"a\.txt is not utf-8: it has NUL characters; convert the file or set"):
            read(tmp_path, file)
    else:
        assert read(tmp_path, file)[0][0]["text"].startswith("a b a b a b")


def test_only_the_first_block_is_judged_by_its_nuls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "CHUNK_BYTES", 100)
    (document,), _ = read(tmp_path, put(tmp_path / "a.txt", 100 * "a" + 100 * "b\0"))
    assert document["text"] == 100 * "a" + " ".join(100 * "b")


def test_an_encoding_that_decodes_anything_is_the_last() -> None:
    check_encoding(["utf-8", "utf-16", "latin-1"])
    check_encoding(["utf-8", "cp1252", "latin-1"])
    for first in ("latin-1", "ISO-8859-1", "utf-16-le", "cp437"):
        with pytest.raises(BertlineError, match=f"the encoding '{first}' decodes anything, so none after it is tried"):
            check_encoding([first, "utf-8"])
    with pytest.raises(BertlineError, match="the encoding 'utf8000' is unknown"):
        check_encoding(["utf-8", "utf8000"])


def test_a_choice_is_made_of_the_bytes_alone(tmp_path: Path) -> None:
    content = FRENCH.encode("latin-1")
    for stream in (io.BytesIO(content), gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(content)))):
        with first_that_decodes(stream, "a", BOTH) as (again, encoding):
            assert (again.read(), encoding) == (content, "latin-1")


def test_a_single_encoding_keeps_its_fingerprint_and_a_list_is_valid() -> None:
    schema = schema_of_configurations()
    form = definition(schema, "files")

    def identity(**settings: object) -> str:
        whole = {"source": "files", "paths": ["a.txt"], **settings}
        validate(whole, {**form, "$defs": schema["$defs"]}, what="corpus")
        return fingerprint(strip_defaults(whole, form, schema))

    assert identity() == identity(encoding="utf-8") == "8a590ff78f017e01"
    assert identity(encoding="latin-1") == "089cc0e367019197"
    assert len({identity(), identity(encoding="latin-1"), identity(encoding=BOTH), identity(encoding=BOTH[::-1])}) == 4
    for wrong in (["utf-8"], ["utf-8", "utf-8"], [], [1, 2], 3):
        with pytest.raises(BertlineError, match="encoding"):
            identity(encoding=wrong)


def test_columns_divided_by_semicolons_are_told(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match=r"a\.csv: its columns are divided by semicolons; convert it to CSV with"):
        read(tmp_path, put(tmp_path / "a.csv", "id;text\n1;A word, and another\n"))
    documents, _ = read(tmp_path, put(tmp_path / "a.csv", 'a;b\n"1;2"\n'), text="a;b")
    assert documents[0]["text"] == "1;2"
