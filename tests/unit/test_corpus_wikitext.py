"""Wikitext to text by MediaWiki's published rules, one by one, and whatever anybody may have saved."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter as Numbers
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertline.corpus import wikitext as module
from bertline.corpus import wikitext_lines, wikitext_tables, wikitext_templates
from bertline.corpus.documents import tidy
from bertline.corpus.wikitext import text_of_page
from bertline.corpus.wikitext_templates import known_name, show_arguments, show_call

HIDDEN = frozenset({"file", "image", "category", "fails"})
PROSE = "The river rises in the hills, runs to the sea, and is navigable."


def text_of(wikitext: str, list_items: Any = "sentences", tables: Any = "none") -> str:
    """The text as the cleaning leaves it."""
    text = text_of_page(wikitext, HIDDEN, list_items, tables=tables).text
    return "\n".join(map(tidy, text.split("\n")))


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        # Help:Formatting
        ("''italic'' and '''bold''' and '''''both'''''", "italic and bold and both"),
        ("''''four'''' and ''''''six''''''", "'four' and 'six'"),
        ("l'''amour'' and d''été''", "l'amour and dété"),
        ("un '''amour''", "un 'amour"),
        ("a '''''{{box}}''''' b '''''{{box|{{box}}}}''''', ''{{box}}'' c '''''{{box}} d'''''", "a b , c d"),
        ("''A''<ref>x</ref>''B'', '''C'''[[File:x.svg]]'''D'''<ref name=x />, ''[[fr:x]]''E", "AB, CD, E"),
        ("vers'''a '' l'''amour '''b", "versa l'amour b"),
        ("an '' open quote", "an open quote"),
        ("rock 'n' roll, isn't it", "rock 'n' roll, isn't it"),
        ("one line\nand the next", "one line and the next"),
        ("a paragraph\n\nand another", "a paragraph\nand another"),
        ("above\n----\nbelow", "above\nbelow"),
        ("above\n---- below", "above\nbelow"),
        ("above\n- a dash", "above - a dash"),
        ("text\n preformatted\nmore", "text\npreformatted\nmore"),
        ("a<br>b<br />c</br>d", "a b c d"),
        ("a<blockquote>b</blockquote>c<p>d", "a\nb\nc\nd"),
        ("H<sub>2</sub>O <SPAN style='x'>is</SPAN> <small>wet</small>", "H2O is wet"),
        ("<u>1 < 2</u>, 3 > 2, and <word> is shown", "1 < 2, 3 > 2, and <word> is shown"),
        ("<code>printf</code> <tt>x</tt>", "printf x"),
        ("a<!-- [[b]] {{c -->d", "ad"),
        ("a\n<!-- line -->\nb", "a b"),
        ("a <!-- no end", "a"),
        # Lines of comments and spaces alone are no lines (Preprocessor_Hash.php); others keep their ends.
        ("a\n <!-- x --> \nb\n<!-- y -->\t<!-- z -->\nc\n<!-- v\n\nw -->\n\nd", "a b c\nd"),
        ("a\n\n<!-- x -->\n<!-- y -->b <!-- z -->\n\n<!-- w --><!-- no end", "a\nb"),
        ("<nowiki>''[[a]]''</nowiki> {{b}}", "''[[a]]''"),
        ("<nowiki>\n* a\n</nowiki>", "* a"),
        ("<nowiki />* a <pre>b</pre>", "* a codice_1"),
        ("1&nbsp;km &amp; &lt;b&gt; &#8211; &#xE9; &eacute;", "1 km & <b> – é é"),
        # References end with a semicolon, and their names are those of HTML 5 (Sanitizer.php).
        ("http://x.org/?a=1&copy=2 &lt b &notit; &NotEqualTilde;", "http://x.org/?a=1&copy=2 &lt b &notit; ≂̸"),
        ("&#; &#x; &#abc;", "&#; &#x; &#abc;"),
        ("&#91;[a] &#" + "9" * 5000 + ";", "[[a]"),
        ("&#" + "0" * 5000 + "65;&#12345678; &#12345678 x", "A &#12345678 x"),
        # Help:Links
        ("[[hill]] and [[hill|the hills]], [[hill]]s", "hill and the hills, hills"),
        ("[[#Course|below]] [[River#Course]]", "below River#Course"),
        ("[[a|b|c]]", "b|c"),
        ("[[:Category:Rivers]] and [[:File:a.jpg|a picture]]", "Category:Rivers and a picture"),
        ("[[wikt:river|river]] and [[Star Trek: Picard]]", "river and Star Trek: Picard"),
        ("The [[hdl:1/2|handle]] and [[wp:Foo|policy]]", "The handle and policy"),
        ("See [[voy:Paris|the travel guide]]", "See the travel guide"),
        ("a [[fr:Rivière]] [[zh-min-nan:x]] [[simple:River]] [[mwl:Riu]] [[mw:Help|b]]", "a b"),
        ("a [[Category:Rivers]] [[category: Rivers|sorted]]", "a"),
        ("[https://example.org a site], [//example.org/ b], [mailto:a@b.c c], [https://example.org]", "a site, b, c,"),
        ("[[https://example.org a site]] [not a link]", "[a site] [not a link]"),
        ("https://example.org/a", "https://example.org/a"),
        # A label ends at the first bracket that closes; links within the site come first (Parser.php).
        ("See [http://x.org/a [[Foo]] bar] now.", "See Foo bar now."),
        ("Download [http://x.org/a.pdf [PDF] Report] here.", "Download [PDF Report] here."),
        ("[http://x.org/a [[File:a.png]] ] [[File:a.png|thumb|by [http://a.org [b] c]]b [[c|d", "b c|d"),
        ("[[open and [[closed]]", "open and closed"),
        ("closed]] and [[", "closed and"),
        # Help:Images
        ("[[File:a.jpg|thumb|left|A [[hill|low hill]] [sic] by [https://example.org him]]]text", "text"),
        ("[[Image:a.jpg|thumb|with [[File:b.png|x]] inside]]text", "text"),
        ("[[fails:a.jpg]] [[FILE : a.jpg]] [[Attēls:a b.svg|thumb|caption]]text", "text"),
        (
            "[[Media:a.ogg|listen]] [[commons:File:a.jpg|the map]] [[Bild:a.jpg|thumb|c]] [[:Bild:a.jpg|d]]",
            "listen the map d",
        ),
        # Help:Tables
        ("a\n{| class='x'\n! head\n|-\n| [[cell]] || cell\n|}\nb", "a\nb"),
        ("a\n{|\n| b\n:{|\n| c\n|}\n| d\n|}\ne", "a\ne"),
        ("a\n{| class=x\n| never closed\n|-\n|b\n\nc", "a\nc"),
        ("a<table><tr><td>b<table>c</table></td></tr></TABLE>d", "a\nd"),
        ("a |} b", "a |} b"),
        ("!Kung is a language", "!Kung is a language"),
        # Help:Templates
        ("a {{cite|b={{c}}|[[d]]}}e", "a e"),
        ("{{Infobox\n| a = [[b]]\n| c = {{d|\n{{e}}}}\n}}\ntext", "text"),
        ("{{#if:{{{1|}}}|a|{{{2}}}}} b", "b"),
        ("{{never closed|a\n\nb {{c}} d", "never closed|a\nb d"),
        ("a }} b", "a b"),
        # Three braces are those of a parameter; another one is text.
        ("x {{nowrap|y}}} z {{math|{1,2}}}.", "x y} z {1,2}."),
        ("{{{1|a}}} b {{{{{1}}}|c}} d {{{{{e}}|f}}} g {{x|{{{1|{{y}}}}}}} h", "b d g h"),
        ("-{zh-hans:甲;zh-hant:{{lang|en|PC}}}- b", "甲 b"),
        # Extension tags
        ("a<ref name='x'>b {{c [[d</ref>e<ref name=x />f<references />", "aef"),
        ("a<REF>b</Ref>c", "ac"),
        ("a<ref>never closed", "anever closed"),
        ("<math>x^2</math> and <chem>H2O</chem>, <ce>x</ce>", "formula_1 and formula_2, formula_3"),
        ("<syntaxhighlight lang=c>\nint a[[1]];\n</syntaxhighlight><source>b</source>", "codice_1codice_2"),
        ("a<gallery>\nFile:a.jpg|b\n</gallery>c<score>d</score>e<timeline>f</timeline>g", "aceg"),
        ("<poem>\n[[a|one]]\ntwo\n</poem>", "one\ntwo"),
        ("<includeonly>a</includeonly><noinclude>b</noinclude>", "b"),
        # Help:Magic words
        ("__NOTOC__a __目次__ __init__ __EXPECTED_UNCONNECTED_PAGE____TOC__b", "a __init__ b"),
        # MessagesEn.php: some are the same in lower case.
        ("__notoc__a __NoEditSection__ __noindex__ b", "a __noindex__ b"),
        ("<code>__FILE__</code> and __LINE__ expand", "__FILE__ and __LINE__ expand"),
        # MessagesDe.php: notoc, forcetoc, noeditsection
        ("__KEIN_INHALTSVERZEICHNIS__\n__INHALTSVERZEICHNIS_ERZWINGEN__ __ABSCHNITTE_NICHT_BEARBEITEN__\na", "a"),
        ("a __INIT_ONCE__ __SIN_ÍNDICE__ b\n__A__B__\n__Init_Once__", "a __INIT_ONCE__ b __A__B__ __Init_Once__"),
        ("a\n__SINTDC__ __NOTOC__ __ÍNDICE__\nb\n__FILE__ c\n__AUCUNSOMMAIRE__", "a\nb __FILE__ c"),
        # Writing systems/Syntax
        ("-{zh-hans:计算机; zh-hant:電腦}- -{raw}- -{H|zh:x}-", "计算机 raw"),
        ("-{X=>zh-cn:甲; Y=>zh-tw:乙;}-", "甲"),
        # Before a bar are flags, also the names of variants (ConverterRule.php).
        ("-{zh-hans;zh-hant|计算机}- -{zh|a}- -{A|zh-hans:b;zh-hant:c}- -{A; H|zh:d}--{-|zh:e}-", "计算机 a b"),
        # {{!}} is a bar, as in the link [[Foo|bar]]; but within a call no bar of the call (Help:Magic words).
        ("[[Foo{{!}}bar]] {{nowrap|a{{!}}b}} {{nowrap|[[Foo{{!}}bar]]}}", "bar a|b bar"),
        # A call that is dropped closes the gap before the mark that follows it; French has a space of its own.
        ("The town (pop. 5 {{cn}}) is {{x}}, old {{y}} {{z|{{a}}}}.", "The town (pop. 5) is, old."),
        ("({{lang|el|x}} {{y}}; born {{z}})\n {{q}} : c {{r}} ; d {{s}}.5 {{t}}", "(x; born)\n: c ; d .5"),
    ],
)
def test_markup_by_example(wikitext: str, text: str) -> None:
    assert text_of(wikitext).strip() == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("convert|324|m|ft", "324 m"),
        ("Convert|5|to|8|sqmi|km2|abbr=on", "5 to 8 sq mi"),
        ("cvt|6|ft|2|in|m", "6 ft 2 in"),
        ("convert|100|ft|0", "100 ft"),
        ("convert|3+1/2|x|4|C", "3+1/2 × 4 °C"),
        ("convert|{{frac|1|2}}|mi", "1/2 mi"),
        ("convert|", ""),
        ("convert|many|km", ""),
        ("lang|fr|[[mot|mots]]", "mots"),
        ("lang-fr|été|links=no", "été"),
        ("lang|fr|mot|}} {{lang|fr|}} {{lang|fr|mot|0=a|", "mot mot"),
        ("ill|Foo|de|Foo (de)|lt=the foo}} {{ill|Foo|de", "the foo Foo"),
        ("nowrap|1=a = b", "a = b"),
        ("Transliteration|ar|''al-jabr''", "al-jabr"),
        ("IPA|/a/", "/a/"),
        ("IPA|fr|[paʁi]}} {{IPA|zh-Hans|[pa]|audio.ogg}} {{IPA|pa}} {{IPA|/a/|/b/", "[paʁi] [pa] pa /a/"),
        ("frac|1|2|3}} {{frac|2}} {{frac|3|4", "1 2/3 1/2 3/4"),
        ("frac}}{{sfrac|}}{{fraction|a=b", ""),
        ("nowrap|0=x}} {{nowrap|a|0=x|00=y", "a"),
        ("snd}}{{ndash}}{{mdash}}{{nbsp}}{{'}}{{=}}{{·}}", "– –— '= ·"),
        ("as of|2010|3}} {{as of|2010|lc=y}} {{as of|2010|alt=since 2010", "As of 2010-3 as of 2010 since 2010"),
        ("circa|300}} {{r.|1|2}} {{bc|3", "c. 300 r. 1–2 3 BC"),
        ("circa|1500|1600}} {{c.|1500|", "c. 1500 – c. 1600 c. 1500"),
        ("circa}} 1500, {{c.|", "c. 1500, c."),  # en.wikipedia.org/wiki/Template:Circa
        # MediaWiki takes whatever precedes an equal sign for a name, but not in what templates show, or in links.
        ("lang|de|Wort|größe=3}} {{lang|ja|日本|Italic=no|サイズ=1", "Wort 日本"),
        ("nowrap|{{math|1=n=5}} and E{{=}}mc}} {{nowrap|[[E=m|E = m]]}} {{nowrap|[[E=1]]", "n=5 and E=mc E = m E=1"),
        ("val|6.02|e=23|u=mol", "6.02 × 10^23 mol"),
        ("HMS|Victory|1765}} {{ship|HMS|Victory", "HMS Victory HMS Victory"),
        ("nihongo|Aikido|合気道|aikidō|lead=yes}} {{nihongo||合", "Aikido (合気道, aikidō) 合"),
        ("chem|H|2|O}} {{formatnum:1234", "H2O 1234"),
        # www.mediawiki.org/wiki/Help:Magic_words, "Formatting"
        ("uc:aé&nbsp;b}} {{LC:ABC}} {{ucfirst:abc}} {{lcfirst:ABC}} {{uc|a}} {{uc", "AÉ B abc Abc aBC A"),
        ("quote|text=No [[man]] is an island.|author=Donne", "No man is an island."),
        ("unknown|a", ""),
    ],
)
def test_templates_that_represent_words(call: str, text: str) -> None:
    assert text_of("{{" + call + "}}").strip() == text


PARAMETERS = ["", " ", "a", "324", "fr", "0=", "0=a", "00=a", "1=", "7=a", "99=a", "-1=", "lt=a", "e=", "text=a", "="]
SHOWN = wikitext_templates._SHOWN


def test_every_template_shows_calls_with_few_or_strange_parameters() -> None:
    for name, shown in SHOWN.items():
        for number in range(3):
            for parameters in itertools.product(PARAMETERS, repeat=number):
                assert isinstance(show_call("|".join([name, *parameters]), shown), str)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(SHOWN)), st.lists(st.sampled_from(PARAMETERS) | st.text(max_size=5), max_size=4))
def test_every_template_shows_any_parameters(name: str, parameters: list[str]) -> None:
    assert isinstance(show_call("|".join([name, *parameters]), SHOWN[name]), str)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("{{仮リンク|川|en|River}}", "川"),
        ("{{仮リンク|川|en|River|label=その川}}", "その川"),
        ("{{仮リンク|label=}}", ""),
        ("{{ 仮リンク | 2 = en | 1 = [[丘|その丘]] }}", "その丘"),
        ("{{Last_one|a|b}}{{last one}}", "b"),
        ("{{lang|fr|mot|title=word}}", "word"),  # instead of the table's
    ],
)
def test_a_configuration_can_add_templates(call: str, text: str) -> None:
    given = {"仮リンク": ["label", 1], "Last one": -1, "lang": "title"}
    templates = {known_name(name): show_arguments(arguments) for name, arguments in given.items()}
    assert tidy(text_of_page(call, HIDDEN, "all", templates).text) == text


def test_a_quotation_is_a_paragraph_of_its_own() -> None:
    assert text_of("He said: {{quote|No man is an island.}} And died.") == "He said:\nNo man is an island.\nAnd died."


def test_headings_end_with_a_full_stop_and_those_of_empty_sections_are_left_out() -> None:
    page = (
        f"Lead.\n== A [[b|c]] &amp; ''d'' ==<!-- x -->\n=== Empty ===\n{{{{x}}}}\n=== Why? ===\n{PROSE}\n"
        "== Empty too ==\n=== Below ===\n[[Category:X]]\n== Text ==\n=no=heading\n======= Seven =======\n"
        f"{PROSE}\n\n=\n"
    )
    text, headings = text_of_page(page, HIDDEN, "sentences")
    assert headings == ["A c & d", "Why?", "Text", "= Seven ="]
    assert [line for line in text.split("\n") if line != PROSE] == [
        *("Lead.", "A c & d.", "Why?"),
        *("Text.", "=no=heading", "= Seven =.", "="),
    ]


LISTS = f"""
* {PROSE}
* [[Name]]
** {PROSE[:-1]}
# {PROSE}<ref>x</ref>
: ''{PROSE}''
; Term
* It is one.
* {PROSE} [https://example.org Source].
* A. Author: The river and all of its hills and dales. ISBN 0-123.
* 这条河发源于山区，流入大海，可以通航。
{PROSE}
== Any name ==
* {PROSE}
"""


def test_list_items_that_are_sentences_are_kept() -> None:
    chinese = "这条河发源于山区，流入大海，可以通航。"
    assert text_of(LISTS).split("\n") == [PROSE, PROSE, PROSE, chinese, PROSE, "Any name.", PROSE]
    assert text_of(LISTS, "none") == PROSE
    every = text_of(LISTS, "all").split("\n")
    assert len(every) == 13
    assert every[1] == "Name"
    assert every[-2:] == ["Any name.", PROSE]
    law = "the owner of the land through which the river runs;"
    assert text_of(f"* {law}\n* A name;\n* 流入大海的河流的所有者和居民们；\n\n{PROSE}").split("\n") == [
        *(law, "流入大海的河流的所有者和居民们；", PROSE)
    ]


PUBLICATIONS = """
* Duffy, Christopher. The Military Experience in the Age of Reason. Routledge, 1987.
* Ehret, Christopher. 1995. Reconstructing Proto-Afroasiatic. University of California Press.
* Державний гімн України: популярний нарис / В. Н. Балязин та ін. — К.: Музична Україна, 2006. — 56 с.
* 作花文雄『詳解著作権法』ぎょうせい、2004年。
* Fisher, David Hackett. Washington's Crossing (2004). Oxford University Press.
"""
EVENTS = """
* 1772 — the town becomes a part of the empire, with its castle.
* 22 July — Richard Davies, a musician and singer of the group (d. 2023).
* In 1917 the bridge over the river was blown up by the army.
"""


@pytest.mark.parametrize("section", ["", "\n== Any name ==\n=== Another ===\n"])
def test_sentences_at_the_end_of_a_page_are_kept_unless_they_are_a_bibliography(section: str) -> None:
    events = [item.removeprefix("* ") for item in EVENTS.strip().split("\n")]
    before = f"{PROSE}\n{section}"
    assert text_of(before + EVENTS).split("\n")[-3:] == events
    assert text_of(f"{before}\n== Books ==\n{PUBLICATIONS}") == PROSE
    assert text_of(f"{before}\n== Links ==\n* {PROSE} [https://example.org a]\n* [https://example.org b]") == PROSE
    one = PUBLICATIONS.strip().split("\n")[0]
    assert text_of(f"{before}\n== Events ==\n{EVENTS}{one}").split("\n")[-1] == one.removeprefix("* ")


def test_a_section_is_a_bibliography_if_more_than_a_third_of_it_are_publications() -> None:
    book = "* Duffy, Christopher. The Military Experience in the Age of Reason. Routledge, 1987."
    for publications, kept in ((3, 9), (4, 0)):
        items = "\n".join([*[f"* {PROSE}"] * (9 - publications), *[book] * publications])
        assert text_of(f"{PROSE}\n\n== Any name ==\n{items}").count("\n") == (kept + 1 if kept else 0)


def test_nested_constructs_are_read_to_a_limit() -> None:
    assert [text_of("{{nowrap|" * depth + "a" + "}}" * depth + "b") for depth in (40, 41)] == ["ab", "b"]
    assert [text_of("[[a|[b] " * depth + "c" + "]]" * depth) for depth in (4, 5)] == [
        *("[b] [b] [b] [b] c", "a|[b] [b] [b] [b] [b] c")
    ]
    tables = ["\n".join(["{|", "| a", *["{|", "| b"] * inner, *["|}"] * (inner + 1)]) for inner in (7, 8)]
    assert [text_of(table, tables="text").strip() for table in tables] == ["a b b b b b b b"] * 2


def test_a_page_that_is_a_list_is_kept_if_half_of_it_are_sentences() -> None:
    assert text_of(f"* {PROSE}\n* {PROSE}") == f"{PROSE}\n{PROSE}"
    assert text_of(f"* {PROSE}\n* A name") == PROSE
    assert text_of(f"* {PROSE}\n* A name\n* Another, of a place in the hills") == ""
    assert text_of(PUBLICATIONS.replace("*", "\n== A ==\n*", 1)) == ""


def test_long_list_items_are_sentences_in_scripts_without_marks() -> None:
    thai = "แม่น้ำสายนี้มีต้นกำเนิดจากภูเขาทางตอนเหนือและไหลลงสู่ทะเลทางตอนใต้ของประเทศ"
    assert text_of(f"* {thai}\n* {thai[:20]}") == thai
    assert text_of(f"* {'The river and the hills of it ' * 9}\n* {PROSE}") == PROSE


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (
            "{| class='x'\n|+ Caption\n! Head !! [[b|Second]]\n|-\n| style='x' | 1 || a<br>b\n|}",
            ["Caption", "Head | Second", "1 | a b"],
        ),
        ("{|\n| one\n* two\n\nthree\n| four\n|}", ["one two three | four"]),
        ("{|\n|-\n|\n|-\n| = a =\n|-\n| * b || || ''c''\n|}", ["= a =", "* b | c"]),
        ("<table><tr><th>a</th><td>[[File:x.jpg]]b</td></tr>\n<TR><TD class=x>c</table>", ["a | b", "c"]),
        ("{|\n| a\n{|\n| b || c\n|}\n| d\n|}", ["a b | c | d"]),
        ("{|\n| {{x|a}} <ref>b</ref>\n|}", []),
        # What precedes a cell's first bar are attributes, whatever it is; but no link that is not closed (Parser.php).
        ("{|\n| nowrap | five || [[six | seven\n! scope=row| a | b\n|}", ["five | six seven | a | b"]),
        # Two exclamation marks divide header cells only (Help:Tables).
        ("{|\n! a !! b || c\n|-\n| Help!! || d\n|}", ["a | b | c", "Help!! | d"]),
        # In HTML a bar divides nothing.
        ("<table><tr><td>5 | 6</td><td class=x>A|B [[c|d]]\n|-\ne</td></tr></table>", ["5 | 6 | A|B d |- e"]),
    ],
)
def test_tables_are_text_on_request(table: str, rows: list[str]) -> None:
    assert text_of(f"above\n{table}\nbelow", tables="text").split("\n") == ["above", *rows, "below"]
    assert text_of(f"above\n{table}\nbelow") == "above\nbelow"


def test_constructs_that_are_not_read_are_counted() -> None:
    unread = Numbers[str]()
    page = (
        f"{{{{box|{{{{inner}}}}}}}} {{{{lang|fr|mot}}}} {{{{box}}}} {PROSE}<ref>a</ref><ref name=x>{{{{b}}}}</ref>\n"
        "{|\n|a\n{|\n|b\n|}\n|}\n<math>x</math> <gallery>a</gallery> <nowiki>[[</nowiki>\n"
        f"* name\n* {PROSE}\n[[File:a.jpg|thumb|b]] [[Category:c]] [[fr:d]] [[word]]"
    )
    text_of_page(page, HIDDEN, "sentences", unread=unread)
    found = {"templates": 2, "ref": 2, "tables": 1, "math": 1, "gallery": 1, "list_items": 1}
    assert +unread == {**found, "files_and_categories": 2, "language_links": 1}


MARKS = st.sampled_from(
    [
        *("[[", "]]", "[", "]", "{{", "}}", "{", "}", "{{{", "}}}", "{|", "|}", "|-", "|", "\n", "\n\n", " "),
        *("*", "#", ":", ";", "-", "=", "==", "''", "'''", "'", "-{", "}-", "__", "TOC", "File:", "fr:", ".jpg"),
        *("<ref>", "</ref>", "<ref", "/>", "<", ">", "<!--", "-->", "<math>", "</math>", "<table>", "</table>"),
        *("<poem>", "</poem>", "{{lang|", "{{convert|", "{{nowrap|", "http://a ", "[http://a ", "a word.", "\x1f"),
        *("\ud800", "é"),
    ]
)
MARKUP = st.lists(st.one_of(MARKS, st.text(max_size=4)), max_size=60).map("".join)
ENTITY_OR_LITERAL = re.compile(r"&|<nowiki", re.IGNORECASE)


@settings(max_examples=400, deadline=None)
@given(MARKUP, st.sampled_from(["sentences", "all", "none"]), st.sampled_from(["none", "text"]))
def test_any_markup_ends_as_text_without_marks(wikitext: str, list_items: Any, tables: Any) -> None:
    text, headings = text_of_page(ENTITY_OR_LITERAL.sub("", wikitext), HIDDEN, list_items, tables=tables)
    assert not re.search(r"\[\[|\]\]|\{\{|\}\}", text)
    lines = text.split("\n")
    for heading in headings:
        assert heading in lines or f"{heading}." in lines


class Counting:
    """A compiled pattern that counts the characters that it is given to look at."""

    seen = 0

    def __init__(self, pattern: Any) -> None:
        self.pattern = pattern

    def __getattr__(self, name: str) -> Any:
        def method(*arguments: Any) -> Any:
            result = getattr(self.pattern, name)(*arguments)
            if name in ("search", "match"):  # from a place on, as far as it takes
                text, at = (*arguments, 0)[:2]
                Counting.seen += (result.end() if result else len(text)) - at
            else:
                Counting.seen += len(arguments[-1])
            return result

        return method


@pytest.mark.parametrize(
    "piece",
    [
        *("{{", "[[", "[[a|", "[[a:", "{{nowrap|", "{{nowrap|[[a|", "[[File:a|[", "}}", "]]", "]", "{{{", "-{", "="),
        *("<ref>", "<ref", "<!--", "<poem>", "<math>a", "<table>", "\n{|", "\n*", "\n=", "\n:;", "[http://a "),
        *("'''a''", "__A", "__A_", "&#1", "[http://a [", "{{!}}", "{{nowrap|a{{!}}"),
    ],
)
@pytest.mark.parametrize("tables", ["none", "text"])
def test_every_pass_looks_at_a_page_a_bounded_number_of_times(
    piece: str, tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in (module, wikitext_lines, wikitext_tables):
        for name, value in vars(room).items():
            if hasattr(value, "fullmatch") and name.startswith("_"):
                monkeypatch.setattr(room, name, Counting(value))
    monkeypatch.setattr(module, "_END", {name: Counting(pattern) for name, pattern in module._END.items()})
    for page in (piece * 30_000, piece * 15_000 + "]]}}|}</ref>" * 15_000, (piece + "b c]] }}\n|}") * 10_000):
        Counting.seen = 0
        text_of_page(page, HIDDEN, "all", tables=tables)
        assert Counting.seen < 60 * len(page)


@pytest.mark.parametrize(
    ("before", "piece", "after"),
    [
        (f"{PROSE}\n", "==a==\n", ""),
        ("{|\n| a\n", "b\n", "|}"),
        ("{{convert|1", "|to|1", "}}"),
        ("{{convert|1", "|ft|1", "}}"),
        ("", "{{{a|", "}}}" * 1000),
    ],
)
def test_the_time_of_a_page_grows_with_its_length(before: str, piece: str, after: str) -> None:
    """Eight times the text takes eight times as long; 64 times if the rest were copied for each piece."""

    def seconds(times: int) -> float:
        page = before + piece * times + after
        start = time.process_time()
        text_of_page(page, HIDDEN, "sentences", tables="text")
        return time.process_time() - start

    assert seconds(160_000) < 24 * max(seconds(20_000), seconds(20_000))
