"""A dump's pages through either extractor to documents: nothing disappears uncounted."""

from __future__ import annotations

import bz2
import io
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from corpus_recipe import dump_recipe, read_part
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.console import BertlineError
from bertline.corpus import extract
from bertline.corpus.clean import clean_part
from bertline.corpus.cleaning_steps import STEPS, _title_of_heading, clean_text, no_counts
from bertline.corpus.documents import tidy
from bertline.corpus.dump import headings_of, read_dump, scan_pages
from bertline.corpus.extract import extract_part
from bertline.corpus.filters import FILTERS, LINE_FILTER
from bertline.files import read_json, write_json

DUMPS = ("enwiki-p10p30302-shortened", "ltgwiki-smallwiki-pages-articles", "enwiki-3page-sample")
EITHER = pytest.mark.parametrize("extractor", ["wikiextractor", "bertline"])
DEFAULT = ("headings", "placeholders", "empty_brackets", "symbols")

HEADER = """<mediawiki xml:lang="en">
  <siteinfo>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="10" case="first-letter">Template</namespace>
    </namespaces>
  </siteinfo>
"""
LONG = "The river rises in the hills and runs to the sea. " * 10


def page(number: int, title: str, text: str | None, namespace: int = 0, more: str = "") -> str:
    content = '<text bytes="0" />' if text is None else f'<text xml:space="preserve">{text}</text>'
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n{more}"
        f"    <revision>\n      <id>9{number}</id>\n      {content}\n    </revision>\n  </page>\n"
    )


REDIRECT = '    <redirect title="River" />\n'
PAGES = [
    page(
        1,
        "River",
        f"'''River''' {LONG}\n== Course ==\n{LONG}\n=== In ''the'' [[hill|hills]] &amp;amp; dales ===\nA. B.",
    ),
    page(2, "Stream", "#REDIRECT [[River]]", more=REDIRECT),
    page(3, "Talk:River", f"Talk. {LONG}", namespace=1),
    page(4, "Talk:Stream", "#REDIRECT [[Talk:River]]", namespace=1, more=REDIRECT),
    page(5, "Template of rivers", f"An article whose title wikiextractor takes for a template. {LONG}"),
    page(6, "Nothing", None),
    page(7, "Short", "A stub."),
    page(8, "Formula", f"It flows at &lt;math&gt;v&lt;/math&gt;. {LONG}"),
]
COUNTS = {"pages": 8, "redirects": 1, "other_namespaces": 2, "articles": 5}
NONE_OVERSIZED = {"oversized": 0, "not_utf_8": 0}


def write_dump(path: Path, pages: list[str], header: str = HEADER, footer: str = "</mediawiki>\n") -> Path:
    path.write_bytes(bz2.compress((header + "".join(pages) + footer).encode()))
    return path


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path / "dump.xml.bz2", PAGES)


def clean(extracted: Path, folder: Path, **settings: Any) -> tuple[list[Any], dict[str, Any]]:
    paths = folder / "part.jsonl.zst", folder / "part.counts.json"
    clean_part(dump_recipe(**settings), extracted, *paths)
    return read_part(*paths)


def test_every_page_is_a_document_or_is_counted(dump: Path, tmp_path: Path) -> None:
    extract_part(dump_recipe(extractor="wikiextractor"), dump, tmp_path / "extracted")
    documents, counts = clean(tmp_path / "extracted", tmp_path, extractor="wikiextractor")
    assert [document["title"] for document in documents] == ["River", "Formula"]
    assert counts == {
        **COUNTS,
        **NONE_OVERSIZED,
        "read": 5,
        "kept": 2,
        "dropped": {"extractor": 1, "empty": 1, "short": 1},
        "cleaning": {
            "headings": {"lines": 2, "characters": len("Course.") + len("""In "the" hills & dales."""), "documents": 1},
            "placeholders": {"lines": 0, "characters": 10, "documents": 1},
            "empty_brackets": {"lines": 0, "characters": 0, "documents": 0},
            "symbols": {"lines": 0, "characters": 0, "documents": 0},
            "normalisation": {"lines": 0, "characters": 3, "documents": 2},
        },
        "characters": sum(len(document["text"]) for document in documents),
        "bytes": sum(len(document["text"].encode()) for document in documents),
    }
    tidy_long = LONG.strip()
    assert documents[0] == {
        "id": "1",
        "title": "River",
        "text": f"River {tidy_long}\n{tidy_long}\nA. B.",
        "source": "samplewiki-20260101",
        "url": "https://en.wikipedia.org/wiki?curid=1",
    }
    assert documents[1]["text"] == f"It flows at. {tidy_long}"


@EITHER
@pytest.mark.parametrize("order", [r"MODEL\1", r"\1MODEL"])  # in older formats the model comes after the text
def test_pages_that_are_not_wikitext_are_counted_with_other_namespaces(
    tmp_path: Path, extractor: Any, order: str
) -> None:
    """As the items of Wikidata, which are JSON in the main namespace."""
    models = [("wikitext", f"The river. {LONG}"), ("wikibase-item", f'{{"a": "{LONG}"}}')]
    pages = [
        re.sub(
            r"( *<text.*</text>\n)", order.replace("MODEL", f"      <model>{model}</model>\n"), page(number, "Q1", text)
        )
        for number, (model, text) in enumerate(models, 1)
    ]
    extract_part(dump_recipe(extractor=extractor), write_dump(tmp_path / "dump.xml.bz2", pages), tmp_path / "extracted")
    documents, counts = clean(tmp_path / "extracted", tmp_path)
    assert [document["id"] for document in documents] == ["1"]
    assert (counts["pages"], counts["articles"], counts["other_namespaces"], counts["read"]) == (2, 1, 1, 1)


def test_an_article_of_exactly_the_minimum_of_characters_is_kept(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml.bz2", [page(1, "A", "x" * 60), page(2, "B", "x" * 59)])
    recipe, paths = dump_recipe(minimum_characters=60), (tmp_path / "part.jsonl.zst", tmp_path / "part.counts.json")
    extract_part(recipe, dump, tmp_path / "extracted")
    clean_part(recipe, tmp_path / "extracted", *paths)
    documents, counts = read_part(*paths)
    assert [document["id"] for document in documents] == ["1"]
    assert counts["dropped"] == {"short": 1}


@pytest.mark.parametrize(
    ("namespace", "link", "rest"),
    [
        # An alias of MediaWiki's MessagesZh_hans.php and MessagesZh_hant.php, of MessagesUk.php, of MessagesSq.php
        ("Category", "[[分类:日本]] [[分類:歷史|Z]]", ""),
        ("Категорія", "[[Категория:Реки]]", ""),
        ("Kategoria", "[[kategori:Lumenj|*]]", ""),
        # Aliases of other languages, which are words in titles
        ("Category", "[[Class: A Guide]] and [[Rang: 1]]", " Class: A Guide and Rang: 1"),
    ],
)
def test_categories_by_an_alias_of_their_namespace_are_no_text(
    tmp_path: Path, namespace: str, link: str, rest: str
) -> None:
    header = HEADER.replace(
        "    </namesp", f'      <namespace key="14" case="first-letter">{namespace}</namespace>\n    </namesp'
    )
    dump = write_dump(tmp_path / "dump.xml.bz2", [page(1, "River", f"{LONG}\n{link}")], header)
    extract_part(dump_recipe(), dump, tmp_path / "extracted")
    documents, _ = clean(tmp_path / "extracted", tmp_path)
    assert documents[0]["text"] == LONG.strip() + rest


@pytest.mark.parametrize(
    ("output", "problem"), [("mine", "mine contains thesis.tex, which would be"), (".", "the source")]
)
def test_a_folder_with_other_files_is_not_replaced(dump: Path, tmp_path: Path, output: str, problem: str) -> None:
    kept = tmp_path / "mine/thesis.tex"
    kept.parent.mkdir()
    kept.touch()
    with pytest.raises(BertlineError, match=problem):
        extract_part(dump_recipe(extractor="bertline"), dump, tmp_path / output)
    assert kept.exists()
    assert dump.exists()


def test_our_own_extractor_takes_no_article_for_a_template(dump: Path, tmp_path: Path) -> None:
    extract_part(dump_recipe(extractor="bertline"), dump, tmp_path / "extracted")
    documents, counts = clean(tmp_path / "extracted", tmp_path)
    assert [document["title"] for document in documents] == ["River", "Template of rivers", "Formula"]
    accounts = {**COUNTS, **NONE_OVERSIZED, "read": 5, "kept": 3, "dropped": {"empty": 1, "short": 1}}
    assert {key: counts[key] for key in accounts} == accounts
    assert counts["cleaning"]["headings"]["lines"] == 2
    assert documents[0] == {
        "id": "1",
        "title": "River",
        "text": f"River {LONG.strip()}\n{LONG.strip()}\nA. B.",
        "source": "samplewiki-20260101",
        "url": "https://en.wikipedia.org/wiki?curid=1",
    }


@EITHER
def test_the_extracted_folder_contains_nothing_undocumented(dump: Path, tmp_path: Path, extractor: Any) -> None:
    extract_part(dump_recipe(extractor=extractor), dump, tmp_path / "extracted")
    names = sorted(path.name for path in (tmp_path / "extracted").iterdir())
    assert names == ["articles.jsonl", "headings.jsonl", "pages.json"]
    unread = {"unread": {"list_items": 0, "math": 1}} if extractor == "bertline" else {}
    assert read_json(tmp_path / "extracted" / "pages.json") == COUNTS | NONE_OVERSIZED | unread


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("truncated", "is truncated; delete it and download it again"),
        ("cut between streams", "ends before </mediawiki>"),
        ("no dump", "is no dump of a wiki: it does not begin with <mediawiki; name a dump of pages-articles"),
        ("broken off", "ends within page "),
        ("not bz2", "is damaged"),
        ("missing", "does not exist"),
        ("no pages", "holds no articles (0 pages, including 0 redirects and 0 in other namespaces or not wikitext)"),
        ("no articles", "holds no articles (3 pages, including 1 redirects and 2 in other namespaces or not wikitext)"),
        ("no siteinfo", " found no articles in"),
        ("a history", "holds several revisions of page 7, and a text of each; name a dump of the current ones: pages-"),
        ("no namespaces", "page 1 has no <ns>; export formats of MediaWiki before 0.6 are not supported; name a newer"),
    ],
)
@EITHER
def test_a_dump_without_articles_is_one_line_and_leaves_nothing(
    tmp_path: Path, content: str, message: str, extractor: Any
) -> None:
    part, output = tmp_path / "dump.xml.bz2", tmp_path / "results" / "extracted"
    if content == "truncated":
        part.write_bytes(write_dump(part, PAGES).read_bytes()[:-30])
    elif content == "cut between streams":
        write_dump(part, PAGES, footer="")
    elif content == "no dump":
        part.write_bytes(bz2.compress(b"<TEI><p>It rained.</p></TEI>\n"))
    elif content == "broken off":
        write_dump(part, [PAGES[0].replace("</page>", ""), PAGES[0]])
    elif content == "not bz2":
        part.write_bytes(b"<html>")
    elif content == "no pages":
        write_dump(part, [])
    elif content == "no articles":
        write_dump(part, PAGES[1:4])
    elif content == "no siteinfo":
        write_dump(part, PAGES, header="<mediawiki>\n")
    elif content == "a history":
        revision = re.search(r" *<revision>.*</revision>\n", PAGES[6], re.DOTALL)
        assert revision
        write_dump(part, [PAGES[0], PAGES[6].replace(revision[0], revision[0] * 2)])
    elif content == "no namespaces":
        write_dump(part, [re.sub(" *<ns>0</ns>\n", "", one) for one in PAGES])
    with pytest.raises(BertlineError) as caught:
        extract_part(dump_recipe(extractor=extractor), part, output)
    assert message in str(caught.value)
    assert str(part) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(output.parent.iterdir()) == []


def program(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def test_an_extractor_that_fails_is_reported_with_its_last_words(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract, "PROGRAM", program(tmp_path, "import sys; sys.stdin.close(); sys.exit('it broke')"))
    with pytest.raises(BertlineError, match=r"failed on .* with status 1, last message: it broke; run it again"):
        extract_part(dump_recipe(extractor="wikiextractor"), dump, tmp_path / "extracted")
    assert not (tmp_path / "extracted").exists()


def test_an_extractor_that_hangs_is_stopped_with_its_children(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child_file = tmp_path / "child"
    hanging = program(
        tmp_path,
        "import os, pathlib, sys, time\n"
        "child = os.fork()\n"
        f"if child: pathlib.Path({str(child_file)!r}).write_text(str(child)); sys.stderr.write('no memory\\n')\n"
        "sys.stderr.flush()\n"
        "time.sleep(60)\n",
    )
    monkeypatch.setattr(extract, "PROGRAM", hanging)
    monkeypatch.setattr(extract, "PATIENCE_SECONDS", 1.5)
    started = time.monotonic()
    with pytest.raises(
        BertlineError,
        match=r"was stopped after \d\.\d s: .*lack of memory; .* its last message: no memory",
    ):
        extract_part(dump_recipe(extractor="wikiextractor"), dump, tmp_path / "extracted")
    assert time.monotonic() - started < 30  # it was stopped, and did not end by itself
    child = int(child_file.read_text())
    wait_until(lambda: not is_running(child))  # a killed process takes a moment to end


def test_an_extractor_that_lost_one_of_its_processes_is_not_waited_for(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the disk is full: the process that writes ends, the others wait for it."""
    lost = program(
        tmp_path,
        "import os, sys, time\n"
        "sys.stderr.write('OSError: [Errno 28] No space left on device\\n')\n"
        "sys.stderr.flush()\n"
        "if os.fork(): time.sleep(60)\n",
    )
    monkeypatch.setattr(extract, "PROGRAM", lost)
    monkeypatch.setattr(extract, "LOST_SHARE", 0.005)
    with pytest.raises(BertlineError, match=r"was stopped after \d\.\d s: .*one that has ended.*No space left"):
        extract_part(dump_recipe(extractor="wikiextractor"), dump, tmp_path / "extracted")


def test_an_extractor_at_work_on_one_page_is_distinguished_from_one_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = page(9, "Breaks", f"{LONG} {'&lt;br' * 30_000}")
    monkeypatch.setattr(extract, "PATIENCE_SECONDS", 1.5)
    with pytest.raises(
        BertlineError,
        match=r"was stopped after \d\.\d s: it is still working on one of the next pages; use",
    ):
        extract_part(
            dump_recipe(extractor="wikiextractor"),
            write_dump(tmp_path / "dump.xml.bz2", [*PAGES, long]),
            tmp_path / "extracted",
        )


@EITHER
def test_bytes_that_are_not_utf_8_are_replaced_and_counted(
    tmp_path: Path, extractor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extract, "PATIENCE_SECONDS", 20.0)
    dump = tmp_path / "dump.xml.bz2"
    content = HEADER + page(1, "River", f"Caf!. {LONG}") + page(2, "Hill", LONG) + "</mediawiki>\n"
    dump.write_bytes(bz2.compress(content.encode().replace(b"!", b"\xe9")))
    extract_part(dump_recipe(extractor=extractor), dump, tmp_path / "extracted")
    documents, counts = clean(tmp_path / "extracted", tmp_path)
    assert documents[0]["text"].startswith("Caf\ufffd. The river")
    assert (counts["kept"], counts["not_utf_8"]) == (2, 1)


def test_templates_of_the_configuration_reach_our_own_extractor(tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml.bz2", [page(1, "River", f"The {{{{ill-ja|hill|ja}}}} is high. {LONG}")])
    for templates, start in (({}, "The is high."), ({"Ill-ja": 1}, "The hill is high.")):
        extract_part(dump_recipe(extractor="bertline", templates=templates), dump, tmp_path / "extracted")
        assert clean(tmp_path / "extracted", tmp_path)[0][0]["text"].startswith(start)


def test_an_extractor_ends_when_its_parent_is_killed(dump: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hanging = program(
        tmp_path,
        "import os, pathlib, time\n"
        "child = os.fork()\n"
        f"if child: pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{child}} .')\n"
        "time.sleep(60)\n",
    )
    settings = dump_recipe()["settings"]
    code = (
        "from pathlib import Path\n"
        "from bertline.corpus import extract\n"
        f"extract.PROGRAM = {hanging!r}\n"
        f"extract._run_wikiextractor(Path({str(dump)!r}), Path({str(tmp_path)!r}), 1, 0, 1, {settings})\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: pids.exists() and pids.read_text().endswith("."))
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()[:2]))


def wait_until(condition: Callable[[], bool]) -> None:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < 30
        time.sleep(0.05)


def is_running(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_articles_that_do_not_fit_the_dump_are_an_error(dump: Path, tmp_path: Path) -> None:
    extract_part(dump_recipe(), dump, tmp_path / "extracted")
    with (tmp_path / "extracted" / "articles.jsonl").open("a") as file:
        file.write(json.dumps({"id": "99", "text": LONG, "title": "x", "url": ""}) + "\n")
    with pytest.raises(BertlineError, match="article 99 is not in the dump's order"):
        clean(tmp_path / "extracted", tmp_path)
    assert not (tmp_path / "part.jsonl.zst").exists()


@pytest.mark.parametrize("slice", [(0, 0), (5, 2), (-1, 2)])
def test_a_slice_that_is_none_is_one_line(tmp_path: Path, slice: tuple[int, int]) -> None:
    dump = write_dump(tmp_path / "dump.xml.bz2", [page(1, "One", "Text.")])
    with pytest.raises(BertlineError, match=r"^--slice .*: the first number is counted from 0 and below the second$"):
        extract_part(dump_recipe(extractor="bertline"), dump, tmp_path / "extracted", slice=slice)


@pytest.mark.parametrize(
    ("shortened", "within_a_line", "message"),
    [
        (("articles", "headings"), False, "it holds 4 articles and the headings of 4, of 5 in the dump; extract it"),
        (("articles",), False, "it holds 4 articles and the headings of 5, of 5 in the dump; extract it again"),
        (("headings",), False, "article 8 is not in the dump's order"),
        (("articles",), True, "extracted is damaged"),
        (("headings",), True, "extracted is damaged"),
    ],
)
def test_files_that_lack_articles_are_one_line(
    dump: Path, tmp_path: Path, shortened: tuple[str, ...], within_a_line: bool, message: str
) -> None:
    """As a faulty disk leaves them: cut after a line, or within one."""
    extract_part(dump_recipe(), dump, tmp_path / "extracted")
    for name in shortened:
        path = tmp_path / "extracted" / f"{name}.jsonl"
        *lines, last = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines) + (last[: len(last) // 2] if within_a_line else b""))
    with pytest.raises(BertlineError, match=message) as caught:
        clean(tmp_path / "extracted", tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "part.jsonl.zst").exists()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Rome (; ) is old.", "Rome is old."),
        ("Aristotle (;, 384 BC) thought.", "Aristotle (384 BC) thought."),
        ("with codice_12 and formula_3, it", "with and, it"),
        ("formula_1formula_2.", ""),
        ("A ?b c", "A ?b c"),
        # Only where something was removed: French has a space before some marks.
        *((line, line) for line in ("Il dit : « Non ! » (Paris, 1990) ; oui.", "Er ( x ) : y", "It (1990) . . . went")),
        ("Le mot () : « Quoi [ ] ? » (1990) !", "Le mot : « Quoi ? » (1990) !"),
        ("La valeur formula_1 : elle ; () et formula_2 ; codice_3 .", "La valeur : elle ; et ;."),
        ("a () [ ], b ( ) . c (formula_1 formula_2) [;]; (,) d", "a, b. c [;]; d"),
        ("f (with formula_1). a (b formula_2), c () ، d", "f (with). a (b), c، d"),
        ("東京（）は、日本（ 、；）の首都（、英語）である（注）。", "東京は、日本の首都（英語）である（注）。"),
        ("History.", ""),
        ("History is long.", "History is long."),
        ("Early life.", "Early life."),
    ],
)
def test_lines_are_cleaned_by_example(line: str, expected: str) -> None:
    assert clean_text(line, ["== History =="], DEFAULT, no_counts(DEFAULT)) == expected


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        ("==Life and ''work''==", 'Life and "work".'),
        ("== The [[Rome|city]] &amp; [[Po]] ==", "The city & Po."),
        ("=== Why? ===", "Why?"),
        ('== Notes<ref name="a"/> <!-- x --> ==', "Notes."),
        ("== U.S. ==", "U.S.."),
        ("==  [https://example.org Site] ==  ", "Site."),
        ("== A<ref>b</ref> <!-- c --> and<ref name=d/> E ==", "A and E."),
    ],
)
def test_headings_are_recognised_by_their_visible_text(heading: str, line: str) -> None:
    counts = no_counts(DEFAULT)
    assert clean_text(f"{line}\nText.", [heading], DEFAULT, counts) == "Text."
    assert counts["headings"] == {"lines": 1, "characters": len(line), "documents": 1}


@pytest.mark.parametrize(
    ("step", "line", "expected"),
    [
        ("lists", "* Koraput: 7 languages", ""),
        ("lists", "• one", ""),
        ("lists", "C* algebras are algebras.", "C* algebras are algebras."),
        ("tables", "| 1990 || 3", ""),
        ("tables", '! style="width: 3em" | Year', ""),
        ("tables", "|}", ""),
        ("tables", "The class = struggle of |x|.", "The class = struggle of |x|."),
        ("markup", "CO2 {{eqm}} H2CO3 and [[salt", "CO2 H2CO3 and salt"),
        ("markup", "for x < 3 and <small>y</small> > 4", "for x < 3 and y > 4"),
        ("symbols", "— * —", ""),
        ("headings", "History.", ""),
        ("placeholders", "at codice_3.", "at."),
        ("empty_brackets", "It (, born) fell ().", "It (born) fell."),
        ("empty_brackets", "It (Ἀχιλλεύς, Akhilleus,) fell (1776,, ,) ;)", "It (Ἀχιλλεύς, Akhilleus) fell (1776) ;)"),
        ("empty_brackets", "القاهرة (،) مدينة (؛ نص) (نص؛ ) (نص، ).", "القاهرة مدينة (نص) (نص) (نص)."),
        ("empty_brackets", "Oh no ;) and (so ;)", "Oh no ;) and (so ;)"),
        ("empty_brackets", "富士山（ふじさん、）は山、（a ，b；）", "富士山（ふじさん）は山、（a ，b）"),
    ],
)
def test_each_step_by_itself(step: str, line: str, expected: str) -> None:
    counts = no_counts([step])
    assert clean_text(line, ["== History =="], [step], counts) == expected
    # What the step did not remove is white space.
    removed = sum(of_step["characters"] for of_step in counts.values())
    assert removed == len(line) - len(expected)
    assert counts[step]["lines"] == (not expected)
    assert clean_text(line, ["== History =="], [], no_counts([])) == tidy(line)


PIECES = [
    " ",
    "\t\n",
    "(",
    "( ",
    "[",
    "[ ",
    "(,",
    "()",
    " ()",
    " ()  ",
    " formula_1  ",
    "formula_",
    "{{",
    "{{a",
    "[[",
    "[[a|",
    "<",
    "<a",
    "<!--",
    "<ref",
    "<ref>",
    "=",
    " ==",
]
PIECES += ["</", "''", "|", "a", "1", ".", " .", "&lt;ref", "&lt;!--", "[http://a", "[http://a b ", "://", "style"]


def seconds(function: Callable[[str], object], text: str) -> float:
    """The least processor time of three calls."""
    times = []
    for _ in range(3):
        started = time.process_time()
        function(text)
        times.append(time.process_time() - started)
    return min(times)


@pytest.mark.parametrize("step", [*STEPS, "title"])
def test_the_time_of_a_step_grows_with_the_length_and_not_with_its_square(step: str) -> None:
    """16 times the length takes 16 times the time, or 256 times if it is quadratic."""

    def clean_line(text: str) -> object:
        return STEPS[step](text, ()) if step in STEPS else clean_text("x", [f"=={text}=="], (), no_counts(()))

    for piece in PIECES:
        text, long = (f"formula_1 (b {piece * times} c" for times in (1000, 16_000))
        assert seconds(clean_line, long) < 64 * seconds(clean_line, text) + 0.02, piece


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("== a"), max_size=16))
def test_the_title_of_a_heading_is_what_wikiextractor_finds(heading: str) -> None:
    match = re.match(r"(==+)\s*(.*?)\s*\1", heading)
    assert _title_of_heading(heading) == (match[2].strip() if match else None)


def test_the_steps_of_the_configuration_are_those_there_are() -> None:
    schema = yaml.safe_load((Path(__file__).parents[2] / "config/config.schema.yaml").read_text())
    cleaning = schema["$defs"]["wikimedia"]["properties"]["cleaning"]
    names = [*STEPS, "gopher_quality", "gopher_repetition", "c4", "fineweb"]
    assert (cleaning["items"]["enum"], tuple(cleaning["default"])) == (names, DEFAULT)
    assert {*names} - {*STEPS} == {*FILTERS, LINE_FILTER}
    # Of other texts nobody says which lines are headings.
    cleaning = schema["$defs"]["cleaning"]
    assert (["headings", *cleaning["items"]["enum"]], cleaning["default"]) == (names, [])


def counted_by_element_tree(path: Path) -> dict[str, int]:
    """The counts by a reader that shares nothing with ours."""
    counts = dict.fromkeys(COUNTS, 0)
    for _, element in ElementTree.iterparse(io.BytesIO(bz2.decompress(path.read_bytes()))):  # noqa: S314
        if not element.tag.endswith("}page"):
            continue
        prefix = element.tag.removesuffix("page")
        counts["pages"] += 1
        if element.findtext(f"{prefix}ns") != "0":
            counts["other_namespaces"] += 1
        elif element.find(f"{prefix}redirect") is not None:
            counts["redirects"] += 1
        else:
            counts["articles"] += 1
        element.clear()
    return counts


@pytest.mark.parametrize("name", [*DUMPS, "enwiki-table-markup"])
def test_real_dumps_are_counted_as_an_xml_parser_counts_them(test_data: Path, name: str) -> None:
    path = test_data / "wiki" / f"{name}.xml.bz2"
    counts: dict[str, int] = {}
    for _ in scan_pages(read_dump(path, 0, 1, unpack_ratio=100, advice="get it again"), counts):
        pass
    assert counts == counted_by_element_tree(path) | NONE_OVERSIZED


@EITHER
@pytest.mark.parametrize("name", DUMPS)
def test_every_article_of_a_real_dump_comes_out(test_data: Path, tmp_path: Path, name: str, extractor: Any) -> None:
    path = test_data / "wiki" / f"{name}.xml.bz2"
    extract_part(dump_recipe(extractor=extractor), path, tmp_path / "extracted", processes=2)
    documents, counts = clean(tmp_path / "extracted", tmp_path)
    expected = counted_by_element_tree(path)
    assert {key: counts[key] for key in expected} == expected
    assert counts["read"] == expected["articles"] == len(documents) + sum(counts["dropped"].values())
    assert "extractor" not in counts["dropped"]
    assert len({document["id"] for document in documents}) == len(documents)


@EITHER
def test_no_heading_is_left_in_a_real_dump(test_data: Path, tmp_path: Path, extractor: Any) -> None:
    extract_part(dump_recipe(extractor=extractor), test_data / "wiki" / f"{DUMPS[0]}.xml.bz2", tmp_path / "extracted")
    documents, counts = clean(tmp_path / "extracted", tmp_path)
    lines = [line for document in documents for line in document["text"].split("\n")]
    assert not {"History.", "Etymology.", "Further reading.", "Classification.", "See also."} & set(lines)
    # What is left of short lines without a verb can be counted on two hands; there were over 1,600 headings.
    assert counts["cleaning"]["headings"]["lines"] > 1600
    assert sum(len(line.split()) <= 2 and line.endswith(".") for line in lines) < 10


def test_both_extractors_name_the_same_articles_and_ours_finds_more_text(test_data: Path, tmp_path: Path) -> None:
    of_each = []
    for extractor in ("wikiextractor", "bertline"):
        extract_part(dump_recipe(extractor=extractor), test_data / "wiki" / f"{DUMPS[1]}.xml.bz2", tmp_path / extractor)
        of_each.append({document["id"]: document for document in clean(tmp_path / extractor, tmp_path)[0]})
    theirs, ours = of_each
    in_both = theirs.keys() & ours.keys()
    assert len(in_both) > 0.95 * len(theirs)  # the others are lists of names
    for identity in in_both:
        assert {**ours[identity], "text": ""} == {**theirs[identity], "text": ""}
    assert sum(len(ours[key]["text"]) for key in in_both) > sum(len(theirs[key]["text"]) for key in in_both)


@EITHER
def test_the_same_bytes_come_out_whatever_the_processes_and_hash_seed(
    test_data: Path, tmp_path: Path, extractor: str
) -> None:
    dump = test_data / "wiki" / f"{DUMPS[1]}.xml.bz2"
    scripts = Path(__file__).parents[2] / "workflow" / "scripts"
    recipe = tmp_path / "recipe.json"
    write_json(recipe, dump_recipe(extractor=extractor, cleaning=list(STEPS)))
    for run, processes, hash_seed in (("a", "1", "1"), ("b", "3", "2")):
        folder = tmp_path / run
        commands = (
            f"extract_part.py --recipe {recipe} --part {dump} --processes {processes} --output {folder}/extracted",
            f"clean_part.py --recipe {recipe} --extracted {folder}/extracted"
            f" --documents {folder}/part.jsonl.zst --counts {folder}/part.counts.json",
        )
        for command in commands:
            script, *arguments = command.split()
            environment = os.environ | {"PYTHONHASHSEED": hash_seed}
            subprocess.run([sys.executable, scripts / script, *arguments], env=environment, check=True)
    for name in ("part.jsonl.zst", "part.counts.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_reference_of_thousands_of_digits_in_a_heading_is_no_error() -> None:
    reference = "&amp;#" + "1" * 5000 + ";"
    (heading,) = headings_of(f"<text>\n== A{reference}B ==\n</text>".encode())
    assert clean_text("Hello.", [heading], ["headings"], no_counts(["headings"])) == "Hello."
