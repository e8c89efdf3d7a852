"""The encodings of a user's texts."""

from __future__ import annotations

import gzip
import os
import re
import tracemalloc
import zipfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from user_texts import SCHEMA, text_of, write_texts

from bertline.console import BertlineError
from bertline.corpus.plain_text import decoded_lines
from bertline.corpus.unpacking import Allowance, open_unpacked
from bertline.proposal.encodings import advice_on_encoding
from bertline.proposal.text import look_at


def test_the_encodings_to_give_are_told_and_never_guessed(tmp_path: Path) -> None:
    def refusal(encoding: str = "utf-8") -> str:
        with pytest.raises(BertlineError) as raised:
            look_at([str(tmp_path)], SCHEMA, language="de", encoding=encoding)
        return str(raised.value)

    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{number}: {text_of(number)}")
    (tmp_path / "2.txt").write_bytes(("a" * 100_000 + " Ein Stück Käse.").encode("latin-1"))
    (tmp_path / "5.txt").write_bytes("Noch ein Stück.".encode("latin-1"))
    line = refusal()
    assert "2.txt is not utf-8, as 2 of 8 files (2.txt, 5.txt): byte 100007 is 0xfc; if latin-1 reads it well" in line
    assert "('Stück'), give ENCODING=utf-8,latin-1" in line
    found = look_at([str(tmp_path)], SCHEMA, language="de", encoding="utf-8,latin-1")
    assert found.corpora[0].settings["encoding"] == ["utf-8", "latin-1"]
    assert "ENCODING=utf-8,latin-1" in refusal("ascii,utf-8").replace("ascii,", "")
    # What Windows calls Unicode.
    (tmp_path / "2.txt").write_bytes("Ein Stück Käse.".encode("utf-16"))
    (tmp_path / "5.txt").write_bytes("Noch ein Stück.".encode("utf-16"))
    assert refusal().endswith("it begins with the mark of utf-16; give ENCODING=utf-8,utf-16")
    look_at([str(tmp_path)], SCHEMA, language="de", encoding="utf-8,utf-16")
    assert refusal("latin-1").endswith("it begins with the mark of utf-16; give ENCODING=utf-16,latin-1")
    # No text at all.
    (tmp_path / "2.txt").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "5.txt").unlink()
    assert "it has NUL bytes; leave it out if it is no text; text in UTF-16 without a mark has to be" in refusal()
    assert "latin-1 reads it well" not in refusal()
    for unknown in ("utf8000", "utf-8,nonsense", "latin-1,utf-8"):
        assert refusal(unknown).startswith("the encoding '")


def test_of_a_file_that_is_utf_8_no_other_encoding_is_advised(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.txt").write_bytes(f"{number}: 雨が降っていました。".encode("shift_jis"))
    (tmp_path / "2.txt").write_text("Et voilà, 5 €.")

    def refusal() -> str:
        with pytest.raises(BertlineError) as raised:
            look_at([str(tmp_path)], SCHEMA, language="de", encoding="shift_jis")
        return str(raised.value).partition(" as ")[2]

    line = "1 of 8 files (2.txt): byte 8 is 0xa0; it is valid UTF-8, give ENCODING=utf-8,shift_jis"
    assert refusal() == line
    assert look_at([str(tmp_path)], SCHEMA, language="ja", encoding="utf-8,shift_jis").documents == 8
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text("Et voilà, 5 €.")
    assert refusal().endswith("it is valid UTF-8, give ENCODING=utf-8")


def test_the_encodings_to_give_are_accepted(tmp_path: Path) -> None:
    """In their order: `latin-1`, which decodes anything, stays the last."""
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{number}: {text_of(number)}")
    (tmp_path / "1.txt").write_bytes("Ein Stück Käse.".encode("latin-1"))
    (tmp_path / "2.txt").write_bytes("Ein Stück Käse.".encode("utf-16"))
    given = "utf-8"
    for following in ("utf-8,latin-1", "utf-8,utf-16,latin-1"):
        with pytest.raises(BertlineError) as raised:
            look_at([str(tmp_path)], SCHEMA, encoding=given, language="de")
        given = str(raised.value).partition("ENCODING=")[2].partition(", otherwise")[0]
        assert given == following
    assert look_at([str(tmp_path)], SCHEMA, encoding=given, language="de").documents == 8


@pytest.mark.parametrize(
    ("contents", "advice"),
    [
        (["“Ein Stück Käse”"], "if cp1252 reads it well ('“Ein'), give ENCODING=utf-8,cp1252, otherwise"),
        (
            ["Ein Stück. " + "a" * (1 << 20) + " – ja"],
            "if cp1252 reads it well ('Stück.'), give ENCODING=utf-8,cp1252,",
        ),
        (["Ein Stück", "“ja”"], "if latin-1 reads it well ('Stück'), give ENCODING=utf-8,cp1252,latin-1,"),
        (["“ja”", "St\u00fc\x81ck"], "if cp1252 reads it well ('“ja”'), give ENCODING=utf-8,cp1252,latin-1,"),
        (
            ["St\u00fcck – ja", "Ein St\u00fcck".encode("utf-16")],
            "if cp1252 reads it well ('Stück'), give ENCODING=utf-8,cp1252,",
        ),
        (9 * ["“ja”"], "if cp1252 reads it well ('“ja”'), give ENCODING=cp1252, otherwise"),
    ],
)
def test_text_from_windows_is_told_to_be_cp1252(tmp_path: Path, contents: list[str | bytes], advice: str) -> None:
    """Latin-1 would read its quotation marks and dashes as control characters, and lose them."""
    if len(contents) < 9:
        write_texts(tmp_path)
    for number, content in enumerate(contents):
        if isinstance(content, str):  # 0x81 is not defined
            content = b"\x81".join(part.encode("cp1252") for part in content.split("\x81"))
        (tmp_path / f"{number}.txt").write_bytes(content)
    with pytest.raises(BertlineError, match=re.escape(advice)) as raised:
        look_at([str(tmp_path)], SCHEMA, language="de")
    assert ("iconv -f cp1252 -t utf-8" if "if cp1252" in advice else "iconv -f latin1 -t utf-8") in str(raised.value)


@pytest.mark.parametrize(
    ("text", "encoding", "shown", "given"),
    [
        ("老人说磨坊很老，然后走了。", "gb18030", "gb18030 ('老人说磨坊很老然') or euc-kr ('", "NAME"),
        ("雨が降っていました。", "shift_jis", " or shift_jis ('雨が降っていまし') reads it well, ", "NAME"),
        ("비가 오랫동안 내렸다.", "euc-kr", " or euc-kr ('비가오랫동안내렸') or cp874 ('", "NAME"),
        ("วันนี้อากาศดี", "tis-620", " or cp874 ('วันนี้อา') reads it well, ", "NAME"),
        ("แม่ ", "tis-620", "if cp874 ('แม่แม่แม') reads it well, ", "cp874"),
        ("Дождь шёл весь день, и никто не пришёл.", "cp1251", "if latin-1 reads it well ('", "latin-1"),
        ("Ein Stück “Käse”", "cp1252", "if cp1252 reads it well ('Stück'), ", "cp1252"),
    ],
)
@pytest.mark.parametrize("texts", [8, 3])
def test_encodings_of_two_bytes_are_told_with_what_they_read(
    tmp_path: Path, texts: int, text: str, encoding: str, shown: str, given: str
) -> None:
    """One of several is not chosen. Cyrillic has bytes of the same range, but an odd number of them in some words."""
    write_texts(tmp_path, 8)
    for number in range(texts):
        (tmp_path / f"{number}.txt").write_bytes((9000 * text).encode(encoding))
    with pytest.raises(BertlineError) as raised:
        look_at([str(tmp_path)], SCHEMA)
    assert shown in str(raised.value)
    assert f" ENCODING={'utf-8,' if texts < 8 else ''}{given}, otherwise another encoding, or " in str(raised.value)
    assert f"(iconv -f {given.replace('latin-1', 'latin1')} -t utf-8)" in str(raised.value)


def test_an_encoding_that_was_given_is_not_told_again(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.txt").write_bytes((9000 * "雨が降っていました。").encode("shift_jis") + b"\xff")
    with pytest.raises(BertlineError, match=r"if gb18030 \('\w+'\) reads it well, give ENCODING=gb18030,"):
        look_at([str(tmp_path)], SCHEMA, encoding="shift_jis")


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        ("“Grüße” – ok".encode("cp1252"), "utf-8,cp1252"),
        ("Grüße".encode("latin-1"), "utf-8,latin-1"),
        ("A line of text.".encode("utf-16-le"), "utf-8,utf-16-le"),
    ],
)
def test_the_encoding_of_an_archive_s_member_is_told(tmp_path: Path, content: bytes, advice: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(8):
            archive.writestr(f"{number}.txt", text_of(number))
        archive.writestr("9.txt", content)
    with pytest.raises(BertlineError, match=rf"member '9\.txt', is not .* give its encoding, as ENCODING={advice}$"):
        look_at([str(tmp_path)], SCHEMA, language="de")
    assert look_at([str(tmp_path)], SCHEMA, language="de", encoding=advice).documents == 9


def test_utf_16_without_a_mark_is_told_for_one_encoding(tmp_path: Path) -> None:
    (write_texts(tmp_path) / "2.txt").write_bytes("Noch ein Absatz.".encode("utf-16-be"))
    for encoding in ("utf-8", "latin-1"):
        with pytest.raises(BertlineError, match=r"2\.txt is not .* it has NUL bytes; .* or ENCODING=utf-16-be given$"):
            look_at([str(tmp_path)], SCHEMA, language="de", encoding=encoding)
    look_at([str(tmp_path)], SCHEMA, language="de", encoding="utf-8,utf-16-be")


@pytest.mark.parametrize(
    ("encoding", "content", "message"),
    [
        (
            "utf-8,cp1252",
            3000 * text_of(1).encode() + b"\0",
            "2.txt is not any of utf-8, cp1252, as 1 of 8 files (2.txt):"
            " it has NUL characters; leave it out if it is no text",
        ),
        (
            "utf-16",
            b"A line.",
            "0.txt is not utf-16, as 8 of 8 files (0.txt, 1.txt, 2.txt, ...): it has no byte "
            "order mark; give another ENCODING, or convert the files",
        ),
        ("utf-8,utf-16", "A line.".encode("utf-16")[:-1], "(2.txt): it begins with the mark of utf-16; replace it"),
    ],
)
def test_a_text_without_a_wrong_byte_has_the_reason_why_it_cannot_be_read(
    tmp_path: Path, encoding: str, content: bytes, message: str
) -> None:
    (write_texts(tmp_path) / "2.txt").write_bytes(content)
    with pytest.raises(BertlineError, match=re.escape(message)):
        look_at([str(tmp_path)], SCHEMA, encoding=encoding, language="de")


def test_only_what_is_read_with_the_encoding_is_checked_and_not_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal() -> str:
        with pytest.raises(BertlineError) as raised:
            look_at([str(tmp_path)], SCHEMA, language="de")
        return str(raised.value)

    stories = [f"Ein Stück Käse. {text_of(number)}" for number in range(9)]
    pyarrow.parquet.write_table(pyarrow.table({"text": stories}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("text\n" + "\n".join(f'"{story}"' for story in stories))
    (tmp_path / "c.csv").write_bytes((tmp_path / "b.csv").read_text().encode("latin-1"))
    assert f"{tmp_path}/c.csv is not utf-8, as 1 of 2 files (c.csv): byte 12 is 0xfc; " in refusal()
    monkeypatch.setattr("bertline.proposal.encodings.BYTES_TO_CHECK", 100)
    assert "c.csv is not utf-8, as 1 of the 1 files that were checked (c.csv): byte 12 is 0xfc; " in refusal()
    assert "give ENCODING=utf-8,latin-1" in refusal()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_the_text_before_a_wrong_byte_is_not_kept_in_memory(tmp_path: Path, name: str) -> None:
    size = 40 << 20
    content = 20 * os.urandom(1 << 20).hex().encode() + b" \xfc"
    (tmp_path / name).write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    del content
    tracemalloc.start()
    try:
        with (
            pytest.raises(BertlineError, match=rf"byte {size + 1} is 0xfc; if latin-1 reads it well \('ü'\)"),
            advice_on_encoding([tmp_path / name], "utf-8"),
            open_unpacked(tmp_path / name, Allowance(tmp_path / name, 1000)) as stream,
        ):
            for _ in decoded_lines(stream, str(tmp_path / name), "utf-8"):
                pass
        assert tracemalloc.get_traced_memory()[1] < size // 2
    finally:
        tracemalloc.stop()
