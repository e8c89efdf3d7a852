"""What a reader of a dump's pages sees: HTML rendered by MediaWiki, without a server, and the words in it by kind.

Debian's package `mediawiki`, `php-sqlite3` and `lua5.1` are needed. If the dump contains templates, as complete dumps
do, they are used; of others those in SHOWN show their words, and the rest nothing.
"""

from __future__ import annotations

import bz2
import json
import os
import subprocess
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import regex

from bertline.corpus.dump import MAX_HEADER_BYTES

KINDS = [
    *("paragraphs", "list items that are sentences", "other list items", "templates", "headings", "captions"),
    *("tables", "preformatted", "other"),
]
EXTENSIONS = ("Cite", "ParserFunctions", "Poem", "Scribunto", "ImageMap", "InputBox")
# Elements of extensions that are not installed; they show nothing that is a word.
OTHER_ELEMENTS = [
    *("math", "chem", "ce", "timeline", "score", "syntaxhighlight", "source", "graph", "mapframe", "maplink", "hiero"),
    *("templatedata", "templatestyles", "section", "indicator", "categorytree", "charinsert", "rss"),
]
SETTINGS = """
$wgLanguageCode = '{language}';
foreach ( {extensions} as $name ) {{ wfLoadExtension( $name ); }}
$wgScribuntoDefaultEngine = 'luastandalone';
$wgScribuntoEngineConf['luastandalone']['luaPath'] = '/usr/bin/lua5.1';
$wgPFEnableStringFunctions = true;
$wgMainCacheType = $wgParserCacheType = $wgMessageCacheType = CACHE_NONE;
$wgHooks['ParserFirstCallInit'][] = static function ( $parser ) {{
    foreach ( array_diff( {elements}, $parser->getTags() ) as $name ) {{
        $parser->setHook( $name, static fn () => '' );
    }}
}};
"""
# Templates that a reader sees as words, by name: their wikitext. Written from their documentation on the English,
# Japanese and other Wikipedias, not from our table.
_FIRST = (
    *("abbr", "allcaps", "as written", "big", "bold", "center", "code", "em", "flag", "flagcountry", "flagu", "ill"),
    *("illm", "interlanguage link", "ipa", "ital", "italic", "kbd", "large", "larger", "lc", "linktext", "literal"),
    *("mono", "nobold", "nobr", "noitalic", "not a typo", "nowrap", "polytonic", "proper name", "samp", "sc", "small"),
    *("smallcaps", "smaller", "strong", "sub", "sup", "typo", "u", "uc", "underline", "unicode", "var", "vanchor"),
    *("visible anchor", "hms", "uss", "ss", "rms", "mv"),
    *(f"lang-{code}" for code in ("ar", "az", "be", "bn", "ca", "cs", "de", "el", "en", "es", "eu", "fa", "fr", "grc")),
    *(f"lang-{code}" for code in ("he", "hi", "hy", "it", "ja", "ko", "la", "nl", "pl", "pt", "ru", "sa", "tr", "uk")),
    *("lang-vi", "lang-zh"),
)
_LAST = ("color", "colour", "font color", "lang", "rtl-lang", "script", "transl", "transliteration")
SHOWN = {
    **dict.fromkeys(_FIRST, "{{{1|}}}"),
    **dict.fromkeys(_LAST, "{{{2|{{{1|}}}}}}"),
    **dict.fromkeys(("convert", "conv", "cvt"), "{{{1|}}} {{{2|}}} {{{1|}}} {{{2|}}}"),  # 3 miles (5 km): twice
    **dict.fromkeys(("circa", "c.", "ca."), "c. {{{1|}}}"),
    **dict.fromkeys(("reign", "r."), "r. {{{1|}}} {{{2|}}}"),
    **dict.fromkeys(("quote", "blockquote", "quotation", "cquote"), "{{{1|{{{text|{{{quote|}}}}}}}}}"),
    "as of": "as of {{{1|}}} {{{2|}}} {{{3|}}}",
    "bc": "{{{1|}}} BC",
    "langx": "{{{2|}}}",
    "nihongo": "{{{1|}}} {{{2|}}} {{{3|}}}",
    "us$": "US$ {{{1|}}}",
    "仮リンク": "{{{label|{{{1|}}}}}}",
}

_HIDDEN_CLASSES = {
    "reference",
    "references",
    "mw-references-wrap",
    "error",
    "toc",
    "mw-editsection",
    "mw-cite-backlink",
}
_BLOCKS = {"p", "li", "dd", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "div", "td", "th", "pre"}
_BLOCKS |= {"ul", "ol", "dl", "table"}
_EMPTY_ELEMENTS = {"br", "img", "hr", "wbr", "link", "meta", "input", "source", "area", "col"}
_KIND_OF_ELEMENT = {
    **{"table": "tables", "figure": "captions", "pre": "preformatted", "p": "paragraphs", "blockquote": "paragraphs"},
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "headings"),
    **dict.fromkeys(("li", "dt", "dd"), "other list items"),
}
_PRECEDENCE = ("hidden", "tables", "captions", "headings", "other list items", "preformatted", "paragraphs")
_SENTENCE_END = regex.compile(r"(?:[\p{SB=STerm}\p{SB=ATerm}][\p{SB=Close}\p{SB=Sp}]*+|[;；؛])$")
_MIN_SENTENCE_BYTES = 40
# Every ideograph and kana is a word: no spaces divide them.
_WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}ー]|(?:(?![\p{Han}\p{Hiragana}\p{Katakana}ー])[\p{L}\p{M}\p{N}])+"
)


def words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", text).lower())


def pages_of(dump: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield namespace, id, title and wikitext of each page that is not a redirect, using an XML parser."""
    with bz2.open(dump) as file:
        for _, element in ElementTree.iterparse(file):  # noqa: S314
            if not element.tag.endswith("}page"):
                continue
            of = element.tag.removesuffix("page")
            if element.find(f"{of}redirect") is None:
                found = (
                    element.findtext(f"{of}{name}") or "" for name in ("ns", "id", "title", "revision/" + of + "text")
                )
                namespace, page_id, title, text = found
                yield namespace, page_id, title, text
            element.clear()


def visible_words(dump: Path, mediawiki: Path, work: Path) -> dict[str, dict[str, Counter[str]]]:
    """Return the words of each article that a reader sees, by kind.

    Args:
        dump: a .xml.bz2 of pages-articles.
        mediawiki: MediaWiki's folder.
        work: a folder for the wiki and the HTML, which is rendered only once.
    """
    with bz2.open(dump) as file:
        header = file.read(MAX_HEADER_BYTES).decode("utf-8", "replace")
    file_names = regex.findall(r'<namespace key="6"[^>]*>([^<]+)<', header)
    output = work / "html.jsonl"
    if not output.exists():
        _render(dump, header, mediawiki, work, output)
    names = [f"{name}:".lower() for name in ("File", "Image", *file_names)]
    with output.open(encoding="utf-8") as lines:
        return {page["id"]: words_by_kind(page["html"], names) for page in map(json.loads, lines)}


def _render(dump: Path, header: str, mediawiki: Path, work: Path, output: Path) -> None:
    pages, shown, unfinished = work / "pages.jsonl", work / "shown.json", work / "unfinished.jsonl"
    has_templates = False
    with pages.open("w", encoding="utf-8") as file:
        for namespace, page_id, title, text in pages_of(dump):
            has_templates |= namespace == "10"
            if namespace == "0":
                file.write(json.dumps({"id": page_id, "title": title, "text": text}) + "\n")
    shown.write_text(json.dumps(SHOWN))
    language = regex.findall(r'xml:lang="([^"]+)"', header)[0]
    environment = _install(mediawiki, work, language)
    if has_templates:
        xml = work / "dump.xml"
        xml.write_bytes(bz2.decompress(dump.read_bytes()))
        _run(environment, mediawiki / "maintenance/importDump.php", "--quiet", "--no-updates", xml)
    script = Path(__file__).with_name("render_pages.php")
    _run(environment, script, "--pages", pages, "--shown", shown, "--output", unfinished)
    unfinished.rename(output)


def _install(mediawiki: Path, work: Path, language: str) -> dict[str, str]:
    """Make a wiki with an SQLite database in `work`, and return the environment that selects it."""
    settings = work / "LocalSettings.php"
    environment = {**os.environ, "MW_INSTALL_PATH": str(mediawiki), "MW_CONFIG_FILE": str(settings)}
    arguments = ["--dbtype", "sqlite", "--dbpath", work, "--server", "http://localhost", "--scriptpath", "", "--pass"]
    arguments += ["not-a-secret-1", "--lang", language, "--confpath", work, "sample", "Admin"]
    _run(environment, mediawiki / "maintenance/install.php", *arguments)
    lists = {"extensions": json.dumps(EXTENSIONS), "elements": json.dumps(OTHER_ELEMENTS)}
    with settings.open("a") as file:
        file.write(SETTINGS.format(language=language, **lists))
    return environment


def _run(environment: dict[str, str], script: Path, *arguments: object) -> None:
    command = ["php", str(script), *map(str, arguments)]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def words_by_kind(html: str, file_names: list[str]) -> dict[str, Counter[str]]:
    """Return the words that a reader of the HTML sees, by KINDS. Links to pictures, whose text is a name, have none."""
    parser = _Reader(file_names)
    parser.feed(html)
    parser.close()
    found = {kind: Counter[str]() for kind in KINDS}
    for block in parser.blocks:
        text, kind = block.text.strip(), block.kind
        if kind == "hidden":
            continue
        if kind == "other list items" and not block.has_other_site and len(text.encode()) >= _MIN_SENTENCE_BYTES:
            kind = "list items that are sentences" if _SENTENCE_END.search(text) else kind
        in_prose = kind in ("paragraphs", "list items that are sentences", "other list items", "other")
        found["templates" if in_prose else kind].update(words(block.of_templates))
        found[kind].update(words(text))
    return found


class _Block:
    def __init__(self, kind: str) -> None:
        self.kind, self.text, self.of_templates, self.has_other_site = kind, "", "", False


class _Reader(HTMLParser):
    """Collects the blocks of a page."""

    def __init__(self, file_names: list[str]) -> None:
        super().__init__()
        self.blocks: list[_Block] = []
        self.opened: list[tuple[str, str | None, bool]] = []  # element, kind, whether it is of a template
        self.file_names = file_names
        self.file_addresses = ["wpDestFile", *(quote(name[:1].upper() + name[1:]) for name in file_names)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _EMPTY_ELEMENTS:
            if tag == "br":
                self.handle_data("\n")
            return
        attributes = {name: value or "" for name, value in attrs}
        classes = set(attributes.get("class", "").split())
        self.opened.append((tag, self._kind_of(tag, attributes, classes), "known-template" in classes))
        if tag in _BLOCKS:
            self.blocks.append(_Block(self._kind()))
        if tag == "a" and "external" in classes and self.blocks:
            self.blocks[-1].has_other_site = True

    def handle_endtag(self, tag: str) -> None:
        for at in range(len(self.opened) - 1, -1, -1):
            if self.opened[at][0] == tag:
                del self.opened[at:]
                break
        if tag in _BLOCKS:
            self.blocks.append(_Block(self._kind()))

    def handle_data(self, data: str) -> None:
        kind = self._kind()
        if not self.blocks or self.blocks[-1].kind != kind:
            self.blocks.append(_Block(kind))
        if any(of_template for _, _, of_template in self.opened):
            self.blocks[-1].of_templates += f" {data} "
            self.blocks[-1].text += " "
        else:
            self.blocks[-1].text += data

    def _kind_of(self, tag: str, attributes: dict[str, str], classes: set[str]) -> str | None:
        is_file = tag == "a" and (
            attributes.get("title", "").lower().startswith(tuple(self.file_names))
            or any(address in attributes.get("href", "") for address in self.file_addresses)
        )
        is_unseen = tag in ("style", "script") or "display:none" in attributes.get("style", "").replace(" ", "")
        if is_file or is_unseen or classes & _HIDDEN_CLASSES:
            return "hidden"
        return "captions" if classes & {"thumb", "gallery"} else _KIND_OF_ELEMENT.get(tag)

    def _kind(self) -> str:
        kinds = {kind for _, kind, _ in self.opened}
        return next((kind for kind in _PRECEDENCE if kind in kinds), "other")
