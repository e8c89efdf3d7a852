"""bertline's own extractor of the articles of one part of a dump.

https://www.mediawiki.org/wiki/Help:Export describes the XML of a page.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import unescape

from bertline.console import progress
from bertline.corpus.dump_files import read_pages
from bertline.corpus.wikitext import text_of_page
from bertline.corpus.wikitext_templates import known_name, show_arguments
from bertline.files import Json

_BASE = re.compile(rb"<base>([^<]*)/[^/<]*</base>")
_HIDING_NAMESPACE = re.compile(rb'<namespace key="(?:6|14)"[^<>]*>([^<]+)<')  # files, categories
_TITLE = re.compile(rb"<title>([^<]*)</title>")
_REVISION = re.compile(rb"<revision>\s*<id>(\d+)</id>")
# A namespace may have aliases, which a dump does not list: pages in Chinese write [[分类:日本]] and [[分類:日本]].
# These are the aliases of the category namespace in MediaWiki's languages (languages/messages/Messages*.php), except
# those that are other words elsewhere, as Class, Rang, Sanat, Тоба and 类.
_NAMES_OF_CATEGORIES = (
    "Categoria Categorie Categoría Categuria Catégorie Kadegorie Kategori Kategoria Kategorie Kategorija Kategoriya "
    "Kategoriye Kategoría Katejori Kattegerie Kattejori Katēggoría Kaurian Saachjrop Saachjropp Sachjrop Törkem "
    "Ébéonọr Кадегар Категория Категорија Төркөм קאטעגאריע رده श्रेणी ବିଭାଗ വിഭാഗം ចំណាត់ក្រុម ចំនាត់ថ្នាក់ក្រុម 分类 分類"
)
_QUOTES = {"&quot;": '"', "&apos;": "'", "&#039;": "'"}


class _Site(NamedTuple):
    address: str
    hidden: frozenset[str]  # see `wikitext.text_of_page`


def write_articles(part: Path, folder: Path, number: int, of: int, settings: Json) -> Json:
    """Write `articles.jsonl` and `headings.jsonl` of a part, or of one slice of it, and return the counts of its pages.

    The counts also contain `unread`, the constructs that are not read: see `wikitext.text_of_page`. The settings
    `list_items`, `templates` and `tables` are used.

    See `extract.extract_part` for the contents of both files and the errors raised. Without a <siteinfo>, which names
    the namespaces of files and categories, `articles.jsonl` is empty.
    """
    more = {known_name(name): show_arguments(arguments) for name, arguments in settings["templates"].items()}
    choices = settings["list_items"], more, settings["tables"]
    unread: Counter[str] = Counter()
    counts: Json = {}
    site: _Site | None = None
    with (
        (folder / "articles.jsonl").open("w", encoding="utf-8", errors="replace") as articles,
        (folder / "headings.jsonl").open("w", encoding="utf-8", errors="replace") as of_articles,
    ):
        found = read_pages(part, number, of, settings, counts)
        for page, article in progress(found, description=part.name, unit="pages"):
            if site is None and b"</siteinfo>" in page:
                site = _site(page)
            if article is None:
                continue
            headings: list[str] = []
            if site and page:
                text, headings = text_of_page(_wikitext(page), site.hidden, *choices, unread)
                fields = {
                    "id": article,
                    "revid": _field(_REVISION, page),
                    "url": f"{site.address}?curid={article}",
                    "title": _field(_TITLE, page),
                    "text": text,
                }
                articles.write(json.dumps(fields, ensure_ascii=False) + "\n")
            # As wikitext, which the cleaning expects.
            as_wikitext = [f"== {html.escape(heading, quote=False)} ==" for heading in headings]
            of_articles.write(json.dumps([article, as_wikitext], ensure_ascii=False) + "\n")
    return {**counts, "unread": dict(sorted(unread.items()))}


def _site(header: bytes) -> _Site:
    base = _BASE.search(header)
    names = {"file", "image", "category", *_NAMES_OF_CATEGORIES.lower().split()}  # valid on every wiki
    names.update(_unescaped(name).lower() for name in _HIDING_NAMESPACE.findall(header))
    return _Site(_unescaped(base[1]) if base else "", frozenset(names))


def _field(pattern: re.Pattern[bytes], page: bytes) -> str:
    match = pattern.search(page)
    return _unescaped(match[1]) if match else ""


def _wikitext(page: bytes) -> str:
    start, end = page.find(b"<text"), page.rfind(b"</text>")
    return _unescaped(page[page.index(b">", start) + 1 : end]) if 0 <= start < end else ""


def _unescaped(xml: bytes) -> str:
    return unescape(xml.decode("utf-8", "replace"), _QUOTES)
