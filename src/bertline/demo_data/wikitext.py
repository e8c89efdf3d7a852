"""A mirror in the layout of dumps.wikimedia.org: dumpstatus.json and multistream bz2 parts with MediaWiki markup.

Format: https://www.mediawiki.org/xml/export-0.11.xsd. A multistream file consists of bz2 streams: the site's
description, then up to a hundred pages each, then the closing tag; an index file lists where each page's stream begins.
"""

from __future__ import annotations

import bz2
import hashlib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from bertline.demo_data.articles import Article, Section
from bertline.demo_data.language import Sentence
from bertline.demo_data.world import Person, random_stream
from bertline.files import write_atomically, write_json

NAMESPACES = {
    **{-2: "Media", -1: "Special", 0: "", 1: "Talk", 2: "User", 3: "User talk", 4: "Wikipedia", 5: "Wikipedia talk"},
    **{6: "File", 7: "File talk", 8: "MediaWiki", 9: "MediaWiki talk", 10: "Template", 11: "Template talk"},
    **{12: "Help", 13: "Help talk", 14: "Category", 15: "Category talk"},
}
PAGES_PER_STREAM = 100
# Relations whose values have articles of their own.
LINKED_RELATIONS = ("birthplace", "residence", "school", "spouse", "teacher", "mayor")


@dataclass(frozen=True)
class Page:
    """A page without its number: `redirect` is the target's title, empty for other pages."""

    title: str
    namespace: int
    text: str
    redirect: str = ""


def article_text(rng: Random, article: Article) -> str:
    """Return an article's wikitext: infobox, bold title, links, notes, headings, a table, a list, categories."""
    subject = article.subject
    kind = "person" if isinstance(subject, Person) else "town"
    box = [f"{{{{Infobox {kind}", f"| name = {article.title}"]
    box += [f"| {relation} = {value}" for relation, value in subject.facts.items()]
    lines = ["{{Short description|" + kind.capitalize() + "}}"] if rng.random() < 0.3 else []
    lines += [*box, "}}"]
    if rng.random() < 0.4:
        lines.append(
            f"[[File:{article.title.replace(' ', '_')}.jpg|thumb|upright=1.2|A picture of [[{article.title}]]]]"
        )
    linked = {article.title}
    for section in article.sections:
        if section.heading:
            lines += ["", f"== {section.heading} =="]
        lines.append(_paragraph(rng, section, article.title, linked))
    if rng.random() < 0.5:
        lines += ["", "== Overview ==", _table(subject.facts)]
    related = sorted(linked - {article.title})
    if related:
        lines += ["", "== See also ==", *(f"* [[{title}]]" for title in related[:4])]
    lines += ["", "== References ==", "{{reflist}}", "", f"[[Category:{kind.capitalize()}s of the {subject.province}]]"]
    return "\n".join(lines)


def _paragraph(rng: Random, section: Section, title: str, linked: set[str]) -> str:
    pieces = []
    for number, sentence in enumerate(section.sentences):
        text = _link(sentence, linked)
        if not section.heading and number == 0:
            text = text.replace(title, f"'''{title}'''", 1)
        if rng.random() < 0.08:
            text += "<ref>{{cite book |title=Annals |year=1931 |page=" + str(rng.randint(1, 400)) + "}}</ref>"
        elif rng.random() < 0.02:
            text += "<!-- to be checked -->"
        pieces.append(text)
    return " ".join(pieces)


def _link(sentence: Sentence, linked: set[str]) -> str:
    """Return the sentence with its value as a link, if the value has an article that was not linked before."""
    fact = sentence.fact
    if fact is None or fact.relation not in LINKED_RELATIONS or fact.value in linked:
        return sentence.text
    linked.add(fact.value)
    start, end = sentence.value_start, sentence.value_start + len(fact.value)
    return f"{sentence.text[:start]}[[{fact.value}]]{sentence.text[end:]}"


def _table(facts: dict[str, str]) -> str:
    rows = [f"|-\n| {relation.replace('_', ' ')} || ''{value}''" for relation, value in facts.items()]
    return "\n".join(['{| class="wikitable"', "! Matter !! Fact", *rows, "|}"])


def make_pages(seed: int, articles: list[Article]) -> list[Page]:
    """Return all pages of the wiki: articles in order, mixed with redirects, stubs, talk, templates, categories."""
    rng = random_stream(seed, "pages")
    pages = [Page(article.title, 0, article_text(rng, article)) for article in articles]
    extra = [
        Page("Template:Infobox person", 10, '{| class="infobox"\n! {{{name}}}\n|-\n| {{{birthplace|}}}\n|}'),
        Page("Template:Infobox town", 10, '{| class="infobox"\n! {{{name}}}\n|-\n| {{{river|}}}\n|}'),
        Page("Template:Reflist", 10, "<references />"),
        Page("Wikipedia:About", 4, "This wiki was generated. Nothing in it is true."),
        Page("MediaWiki:Sidebar", 8, "* navigation\n** mainpage|mainpage-description"),
    ]
    extra += [
        Page(f"Category:{kind}s of the {province}", 14, f"{kind}s that lie in the {province}.\n\n[[Category:{kind}s]]")
        for kind in ("Person", "Town")
        for province in ("east", "west")
    ]
    for article in rng.sample(articles, 60):
        old_title = f"{article.title} ({'person' if isinstance(article.subject, Person) else 'town'})"
        extra.append(Page(old_title, 0, f"#REDIRECT [[{article.title}]]\n\n{{{{R from move}}}}", article.title))
    for article in rng.sample(articles, 40):
        text = f"== A question ==\nIs it spelt {article.title}? ~~~~\n: It is.\n:: Good & thanks <small>again</small>."
        extra.append(Page(f"Talk:{article.title}", 1, text))
    for article in rng.sample(articles, 20):
        title = f"Street of {article.title}"
        extra.append(Page(title, 0, f"'''{title}''' is a street.\n\n{{{{stub}}}}\n[[Category:Streets]]"))
    for page in extra:
        pages.insert(rng.randint(0, len(pages)), page)
    return pages


def site_header(wiki: str) -> str:
    """Return the beginning of an export: schema, site name, namespaces."""
    schema = "http://www.mediawiki.org/xml/export-0.11/"
    names = "\n".join(
        f'      <namespace key="{key}" case="first-letter"' + (f">{name}</namespace>" if name else " />")
        for key, name in NAMESPACES.items()
    )
    return (
        f'<mediawiki xmlns="{schema}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:schemaLocation="{schema} http://www.mediawiki.org/xml/export-0.11.xsd" version="0.11" xml:lang="en">\n'
        f"  <siteinfo>\n    <sitename>Sample</sitename>\n    <dbname>{wiki}</dbname>\n"
        "    <base>https://sample.example.org/wiki/Main_Page</base>\n    <generator>MediaWiki 1.45.0</generator>\n"
        f"    <case>first-letter</case>\n    <namespaces>\n{names}\n    </namespaces>\n  </siteinfo>\n"
    )


def page_xml(page: Page, page_id: int) -> str:
    """Return a page element with its latest revision."""
    content = page.text.encode()
    digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    sha1 = np.base_repr(int(digest, 16), 36).lower().rjust(31, "0")
    redirect = f"    <redirect title={quoteattr(page.redirect)} />\n" if page.redirect else ""
    return (
        f"  <page>\n    <title>{escape(page.title)}</title>\n    <ns>{page.namespace}</ns>\n    <id>{page_id}</id>\n"
        f"{redirect}"
        f"    <revision>\n      <id>{page_id * 7 + 100000}</id>\n      <parentid>{page_id * 7 + 99993}</parentid>\n"
        "      <timestamp>2025-12-24T12:00:00Z</timestamp>\n"
        "      <contributor>\n        <username>Generator</username>\n        <id>1</id>\n      </contributor>\n"
        f"      <comment>/* new */ {escape(page.title)}</comment>\n      <origin>{page_id * 7 + 100000}</origin>\n"
        "      <model>wikitext</model>\n      <format>text/x-wiki</format>\n"
        f'      <text bytes="{len(content)}" sha1="{sha1}" xml:space="preserve">'
        f"{escape(page.text, {chr(34): '&quot;'})}</text>\n      <sha1>{sha1}</sha1>\n    </revision>\n  </page>\n"
    )


def multistream(wiki: str, numbered: list[tuple[int, Page]]) -> tuple[bytes, bytes]:
    """Return a part in streams of a hundred pages and its index of `offset:page id:title` lines, both compressed."""
    streams = [bz2.compress(site_header(wiki).encode())]
    index = []
    for start in range(0, len(numbered), PAGES_PER_STREAM):
        chunk = numbered[start : start + PAGES_PER_STREAM]
        offset = sum(map(len, streams))
        index += [f"{offset}:{page_id}:{page.title}\n" for page_id, page in chunk]
        streams.append(bz2.compress("".join(page_xml(page, page_id) for page_id, page in chunk).encode()))
    streams.append(bz2.compress(b"</mediawiki>\n"))
    return b"".join(streams), bz2.compress("".join(index).encode())


def write_mirror(directory: Path, pages: list[Page], *, wiki: str, date: str, parts: int) -> None:
    """Write `directory/{wiki}/{date}/` with `parts` multistream parts, their indexes and dumpstatus.json."""
    folder = directory / wiki / date
    numbered = list(enumerate(pages, start=1))
    size = -(-len(numbered) // parts)
    files = {}
    for part in range(parts):
        chunk = numbered[part * size : (part + 1) * size]
        span = f"p{chunk[0][0]}p{chunk[-1][0]}"
        stem = f"{wiki}-{date}-pages-articles-multistream"
        data, index = multistream(wiki, chunk)
        for name, content in (
            (f"{stem}{part + 1}.xml-{span}.bz2", data),
            (f"{stem}-index{part + 1}.txt-{span}.bz2", index),
        ):
            with write_atomically(folder / name) as temporary:
                temporary.write_bytes(content)
            files[name] = {
                "size": len(content),
                "url": f"/{wiki}/{date}/{name}",
                "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
                "sha1": hashlib.sha1(content, usedforsecurity=False).hexdigest(),
            }
    job = {"status": "done", "updated": f"{date[:4]}-{date[4:6]}-{date[6:]} 12:00:00", "files": files}
    write_json(folder / "dumpstatus.json", {"version": "0.8", "jobs": {"articlesmultistreamdump": job}})


def describe(pages: list[Page]) -> dict[str, int]:
    """Return the numbers of pages by kind, which a reader of the dump must reproduce."""
    in_main = [page for page in pages if page.namespace == 0]
    return {
        "pages": len(pages),
        "articles": sum(not page.redirect for page in in_main),
        "redirects": sum(bool(page.redirect) for page in in_main),
        "other_namespaces": len(pages) - len(in_main),
    }
