"""Web pages as files: their main text, in the encoding that they declare, and what is not read is counted."""

from __future__ import annotations

import gzip
import io
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_corpus_text_files import read
from test_corpus_unpacking import zip_bytes

from bertline.corpus import web_pages
from bertline.corpus.documents import Dropped
from bertline.corpus.web_pages import WebPage, read_web_page

PARAGRAPHS = [
    f"The old mill number {n} stood by the river; nobody had lived there since Dr. Harrow left." for n in range(9)
]


def page(paragraphs: list[str], head: str = "<title>The  mill</title>") -> str:
    menu = "".join(f"<li><a href='/{number}'>Menu {number}</a></li>" for number in range(20))
    text = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return (
        f"<!doctype html><html><head>{head}<script>var x = '<p>x</p>'</script></head><body><nav><ul>{menu}</ul></nav>"
        f"<main><article><h1>Mills</h1>{text}</article></main><footer>Imprint</footer></body></html>"
    )


def test_a_page_is_a_document_of_its_main_text_with_its_title(tmp_path: Path) -> None:
    (tmp_path / "mill.html").write_text(page(PARAGRAPHS))
    (tmp_path / "short.HTM.gz").write_bytes(gzip.compress(page(["Only one line,<br>and a second one."]).encode()))
    (tmp_path / "many.zip").write_bytes(zip_bytes({"a/b.xhtml": page(PARAGRAPHS[:2]).encode(), "style.css": b"p {}"}))
    (tmp_path / "empty.html").write_text("<html><body><nav><a href='/'>Home</a></nav></body></html>")
    names = ["mill.html", "short.HTM.gz", "many.zip", "empty.html"]
    documents, counts = read(tmp_path, *(tmp_path / name for name in names))
    assert [document["id"] for document in documents] == ["mill.html", "short.HTM.gz", "many.zip!a/b.xhtml"]
    assert documents[0]["title"] == "The mill"
    assert documents[0]["text"].split("\n") == ["Mills", *PARAGRAPHS]
    assert "Menu" not in documents[1]["text"]
    assert (documents[2]["title"], documents[2]["text"].split("\n")) == ("The mill", ["Mills", *PARAGRAPHS[:2]])
    assert counts["dropped"] == {"empty": 1}
    assert counts["members_skipped"] == {"not a text": 1}


@pytest.mark.parametrize(
    ("head", "encoding", "given_encoding"),
    [
        ("<meta charset=utf-8>", "utf-8", "latin-1"),
        ("<meta http-equiv='Content-Type' content='text/html; charset=windows-1257'>", "windows-1257", "utf-8"),
        ("<meta charset='iso-8859-1'>", "windows-1252", "utf-8"),  # as browsers read it
        ("<meta charset=utf-16>", "utf-8", "utf-8"),
        ("", "utf-16", "utf-8"),  # with its mark
        ("", "utf-32", "utf-8"),
        ("", "utf-8-sig", "latin-1"),
        ("", "cp1257", "cp1257"),
    ],
)
def test_the_encoding_is_the_mark_s_the_page_s_or_the_corpus_s(head: str, encoding: str, given_encoding: str) -> None:
    text = "Žluté “müll”" if encoding not in ("windows-1257", "cp1257", "windows-1252") else "Ž “müll”"
    found = read_web_page(io.BytesIO(page([text], head).encode(encoding)), given_encoding)
    assert isinstance(found, WebPage)
    assert found.text.endswith(text)


@pytest.mark.parametrize(
    ("label", "content", "text"),
    [
        ("ISO-8859-1", "“Ž”".encode("cp1252"), "“Ž”"),
        ("l1", "“Ž”".encode("cp1252"), "“Ž”"),
        ("us-ascii", "“Ž”".encode("cp1252"), "“Ž”"),
        ("iso-8859-9", "“ğ”".encode("cp1254"), "“ğ”"),
        ("iso-8859-11", "“ก”".encode("cp874"), "“ก”"),
        ("TIS-620", "“ก”".encode("cp874"), "“ก”"),
        ("windows-874", "“ก”".encode("cp874"), "“ก”"),
        ("gb2312", "鎔基€".encode("gb18030"), "鎔基€"),
        ("gbk", "㐀".encode("gb18030"), "㐀"),
        ("big5", "嗰".encode("big5hkscs"), "嗰"),
        ("Shift_JIS", "①髙".encode("cp932"), "①髙"),
        ("x-sjis", "①髙".encode("cp932"), "①髙"),
        ("euc-kr", "똠".encode("cp949"), "똠"),
        ("ks_c_5601-1987", "똠".encode("cp949"), "똠"),
        ("iso-8859-8-i", "שלום".encode("iso8859-8"), "שלום"),
        ("unicode", "Ž".encode(), "Ž"),
        ("iso88591", "“Ž”".encode("cp1252"), "“Ž”"),
        ("x-cp1251", "Дом".encode("cp1251"), "Дом"),
        ("koi8-ru", "Їжак".encode("koi8-u"), "Їжак"),
        ("x-mac-roman", "á — ﬁn".encode("mac-roman"), "á — ﬁn"),
        ("x-mac-cyrillic", "Дом".encode("mac-cyrillic"), "Дом"),
        ("x-user-defined", b"A", "A"),
        ("x-euc-jp", "水車".encode("euc-jp"), "水車"),
        ("cn-big5", "嗰".encode("big5hkscs"), "嗰"),
        ("x-x-big5", "嗰".encode("big5hkscs"), "嗰"),
        ("gb_2312-80", "鎔基€".encode("gb18030"), "鎔基€"),
        ("ks_c_5601-1989", "똠".encode("cp949"), "똠"),
    ],
)
def test_a_declared_encoding_is_read_as_in_browsers(label: str, content: bytes, text: str) -> None:
    found = read_web_page(io.BytesIO(f"<meta charset={label}><p>A page: ".encode() + content), "utf-8")
    assert isinstance(found, WebPage)
    assert found.text == f"A page: {text}"


LATIN_1 = "<meta http-equiv=Content-Type content='text/html; charset=iso-8859-1'>"


@pytest.mark.parametrize(
    "head",
    [
        f"<!-- {LATIN_1} -->",
        f"<!--[if lt IE 9]>{LATIN_1}<![endif]-->",
        f"<!--> <!-- a --> <!---> <!-- -- > {LATIN_1} -->",
        f"<!-- > {LATIN_1}{' ' * 1024}-->",
        "<meta\vcharset=iso-8859-1>",  # a vertical tab is no white space in HTML
        "<meta a\vcharset=iso-8859-1>",
        "<meta charset=\viso-8859-1>",
        "<meta http-equiv=Content-Type content='text/html; charset\v=iso-8859-1'>",
        "<meta name=description content='write charset=iso-8859-1 in pages'>",
        "<meta content='text/html; charset=iso-8859-1'>",
        f'<link title="{LATIN_1}" href=a>',
        f"</p title='>'><a title='{LATIN_1}'>",
        f'<?php "{LATIN_1[:-1]}"?>',
        f"<metadata charset=iso-8859-1><meta-x {LATIN_1[5:]}",
        "<meta charset=no-such-thing>",
        "<meta charset=no-such-thing http-equiv=Content-Type content='text/html; charset=iso-8859-1'>",
        "<meta charset='utf-8' charset='iso-8859-1'>",
        "<meta http-equiv=Content-Type content='text/html' charset=utf-8>",
        "<META\nHTTP-EQUIV = 'content-TYPE' / CONTENT = \"text/html;Charset='UTF-8'\"/>",
    ],
)
@pytest.mark.parametrize("following", ["<meta charset=utf-8>", "<meta charset = ' UTF8 '/>", ""])
def test_an_encoding_that_browsers_do_not_see_is_not_declared(head: str, following: str) -> None:
    found = read_web_page(io.BytesIO(page(["“Müll”"], head + following).encode()), "utf-8")
    assert isinstance(found, WebPage)
    assert found.text.endswith("“Müll”")


@pytest.mark.parametrize(
    "beginning", ["", "<!DOCTYPE html>", "<html lang=de><!-- a --><!-->", "<p a=1 b='>'/>", "<a b"]
)
def test_an_encoding_is_declared_within_1024_bytes(beginning: str) -> None:
    for at in (900, 1024 - len(LATIN_1), 1025 - len(LATIN_1)):
        content = f"{beginning.ljust(at - 1)}>{LATIN_1}<p>“Müll”".encode("cp1252")
        found = read_web_page(io.BytesIO(content), "utf-8")
        if at + len(LATIN_1) > 1024:
            assert found == Dropped("encoding")
        else:
            assert isinstance(found, WebPage)
            assert found.text.endswith("“Müll”")


@pytest.mark.parametrize("label", ["windows-1252", "iso-8859-1", "iso-8859-9", "windows-1257", "tis-620"])
def test_a_byte_that_windows_does_not_define_costs_no_page(tmp_path: Path, label: str) -> None:
    content = f"<meta charset={label}><p>A page".encode() + b"\x81 \x90" + "– that is read.".encode("cp1252")
    (tmp_path / "page.html").write_bytes(content)
    (document,), counts = read(tmp_path, tmp_path / "page.html")
    assert document["text"] == "A page – that is read."
    assert counts["dropped"] == {}


def test_a_byte_that_browsers_do_not_read_either_is_a_reason() -> None:
    """0xFF is no letter of windows-874."""
    assert read_web_page(io.BytesIO(b"<meta charset=tis-620><p>A page \xff"), "utf-8") == Dropped("encoding")


@pytest.mark.parametrize(
    ("beginning", "encoding"),
    [
        ("<?xml version='1.0' encoding='iso-8859-1'?><!DOCTYPE html>", "cp1252"),
        ('<?xml version="1.0" encoding="Shift_JIS" standalone="yes"?>', "cp932"),
        ("<?xml version='1.0' encoding='UTF-16'?>", "utf-8"),
        ("<?xml version='1.0' encoding='koi8-r'?><meta charset=cp1252>", "cp1252"),  # HTML's comes first
    ],
)
def test_an_xml_declaration_declares_the_encoding(tmp_path: Path, beginning: str, encoding: str) -> None:
    text = "① and ②" if encoding == "cp932" else "“mañana”"  # another word in cp1257
    (tmp_path / "page.xhtml").write_bytes(f"{beginning}<p>A page: {text}".encode(encoding))
    (document,), _ = read(tmp_path, tmp_path / "page.xhtml", encoding="cp1257")
    assert document["text"] == f"A page: {text}"


def test_an_xml_declaration_is_at_the_start_of_a_page() -> None:
    content = "<p>A page: Ž <?xml version='1.0' encoding='koi8-r'?>".encode("cp1257")
    found = read_web_page(io.BytesIO(content), "cp1257")
    assert isinstance(found, WebPage)
    assert found.text == "A page: Ž"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (page(["Käse"], "").encode("latin-1"), "encoding"),
        (page(["Käse"], "<meta charset=no-such-thing>").encode("latin-1"), "encoding"),
        (b"<div>" * 300 + b"text", "complex"),
        (b"<select>" + b"<option>x" * 5000, "complex"),
        (b"<ruby>" + b"<rt>x" * 5000, "complex"),
        (b"<p>" + b"x" * (1 << 23), "oversized"),
    ],
)
def test_a_page_that_cannot_be_read_is_counted(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "page.html").write_bytes(content)
    documents, counts = read(tmp_path, tmp_path / "page.html")
    assert (documents, counts["read"], counts["dropped"]) == ([], 1, {reason: 1})


HOSTILE = [
    "<",
    "<!--",
    "<p>x",
    "<a href=x>x</a>",
    "<table><tr><td>x</table>",
    "&amp",
    "<p a=1 ",
    "<rt>x</rt>",
    "\0",
    "<b><p>",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_of_a_hostile_page_is_bounded(piece: str) -> None:
    started = time.process_time()
    read_web_page(io.BytesIO((piece * 20_000).encode()), "utf-8")
    assert time.process_time() - started < 5  # what is quadratic takes minutes


@settings(deadline=None, max_examples=150)
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([*HOSTILE, "</p>", "<title>", "é", "x"]), max_size=20).map("".join).map(str.encode)
)
@example(b"")
@example(b"<title>\xed\xa0\x80")
@example("<p>\ud800".encode("utf-16", "surrogatepass"))
def test_any_bytes_are_a_page_or_a_reason(content: bytes) -> None:
    found = read_web_page(io.BytesIO(content), "utf-8")
    assert isinstance(found, WebPage) or found in (Dropped("encoding"), Dropped("complex"))


def test_the_depth_of_a_page_counts_what_is_open() -> None:
    deep: Any = web_pages._depth
    assert deep("<div><p>a<p>b<br><div>c</div></div>" * 400) == 2
    assert deep("<div><span>" * 50 + "</span>" * 500) == 100
    assert deep("</div>" * 500 + "<div>" * 50) == 50


@pytest.mark.parametrize(
    "label", ["utf8mb4", "utf-8-bom", "no-such-thing", "base64", "punycode", "idna", "unicode_escape"]
)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1257", ["utf-8", "cp1257"]])
def test_a_label_that_browsers_do_not_know_is_ignored(label: str, encoding: str | list[str]) -> None:
    """Punycode takes quadratic time: 6 seconds for this page."""
    started = time.process_time()
    content = f"<meta charset={label}><p>{'a' * 200_000}-{'a' * 200_000} Ž\\x41".encode(
        encoding if isinstance(encoding, str) else "cp1257"
    )
    found = read_web_page(io.BytesIO(content), encoding)
    assert isinstance(found, WebPage)
    assert found.text.endswith("a Ž\\x41")
    assert time.process_time() - started < 3
