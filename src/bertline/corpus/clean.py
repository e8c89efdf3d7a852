"""From wikiextractor's articles to documents."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from bertline.console import BertlineError, progress
from bertline.corpus.documents import Document, Dropped, tidy, write_documents
from bertline.files import read_json

Json = dict[str, Any]

# wikiextractor writes these where a formula or a piece of code stood.
_PLACEHOLDER = re.compile(r"(?:formula|codice)_\d+")
# What is left of "(from {{lang|el|...}}; born 384 BC)" when its templates are gone.
_EMPTY_BRACKETS = re.compile(r"\(\s*(?:[,;:]\s*)*\)|\[\s*\]")
_AFTER_BRACKET = re.compile(r"\(\s*(?:[,;]\s*)+")
_SPACE_BEFORE_MARK = re.compile(r"\s+([,.;:!?)](?:\s|$))")

_HEADING = re.compile(r"(==+)\s*(.*?)\s*\1")
_UNSHOWN = re.compile(r"<!--.*?-->|<ref[^>/]*/>|<ref.*?</ref>|<[^<>]+>|\{\{[^{}]*\}\}")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]")
_EXTERNAL_LINK = re.compile(r"\[\w+://\S+ ([^\]]*)\]")
_QUOTES = str.maketrans("", "", "'\"")


def clean_part(
    extracted: Path | str, documents: Path | str, counts: Path | str, *, source: str, minimum_characters: int
) -> None:
    """Turn one extracted part into documents.

    Parameters
    ----------
    extracted: the folder that `extract.extract_part` made.
    documents, counts: the two files to write, see `documents.write_documents`. The counts also say how many `pages`,
        `redirects`, `other_namespaces` and `articles` the dump holds (`read` is `articles`), and how many
        `headings_removed` and `placeholders_removed`. Reasons to drop: `extractor` (wikiextractor gave nothing for it:
        it skips titles that begin with the name of the template namespace), `empty`, `short`.
    source: stands in every document, as `enwiki-20261101`.
    minimum_characters: shorter texts are dropped.

    Raises BertlineError if the folder is incomplete.
    """
    extracted = Path(extracted)
    pages = read_json(extracted / "pages.json")
    removed: Counter[str] = Counter(headings_removed=0, placeholders_removed=0)
    more: Json = dict(pages)

    def records() -> Iterator[Document | Dropped]:
        pairs = _pairs(extracted)
        for article, headings in progress(pairs, description=source, unit="articles", total=pages["articles"]):
            yield _document(article, headings, source, minimum_characters, removed)
        more.update(removed)

    write_documents(records(), documents, counts, more)


def _pairs(extracted: Path) -> Iterator[tuple[Json | None, list[str]]]:
    """Every article of the dump as wikiextractor gave it, or None if it did not, with the headings of its sections.

    Both files are in the order of the dump, so that neither needs to be held in memory.
    """
    with (
        (extracted / "articles.jsonl").open("rb") as articles_file,
        (extracted / "headings.jsonl").open("rb") as headings_file,
    ):
        articles = map(json.loads, articles_file)
        article = next(articles, None)
        for line in headings_file:
            page_id, headings = json.loads(line)
            if article is not None and article["id"] == page_id:
                yield article, headings
                article = next(articles, None)
            else:
                yield None, headings
        if article is not None:
            raise BertlineError(f"{extracted}: article {article['id']} is not in the dump's order; extract it again")


def _document(
    article: Json | None, headings: list[str], source: str, minimum_characters: int, removed: Counter[str]
) -> Document | Dropped:
    if article is None:
        return Dropped("extractor")
    text = clean_text(article["text"], headings, removed)
    if not text:
        return Dropped("empty")
    if len(text) < minimum_characters:
        return Dropped("short")
    title, page_id, url = tidy(article["title"]), article["id"], article["url"]
    return Document(id=page_id, title=title, text=text, source=source, url=url)


def clean_text(text: str, headings: list[str], removed: Counter[str]) -> str:
    """The paragraphs of an article, tidy, joined by newlines.

    wikiextractor leaves a section's heading as a line of its own with a full stop. Such lines are told from short
    sentences by comparing them with `headings`, the ones that the wikitext really has. `removed` counts them and the
    placeholders.
    """
    known = set(chain.from_iterable(_forms_of_heading(heading) for heading in headings))
    paragraphs = []
    for line in text.split("\n"):
        if line.strip() and _comparable(line) in known:
            removed["headings_removed"] += 1
            continue
        line, placeholders = _PLACEHOLDER.subn(" ", line)
        removed["placeholders_removed"] += placeholders
        if placeholders or "(" in line or "[" in line:
            line = _AFTER_BRACKET.sub("(", _EMPTY_BRACKETS.sub(" ", line))
            line = _SPACE_BEFORE_MARK.sub(r"\1", line)
        paragraph = tidy(line)
        if any(character.isalnum() for character in paragraph):
            paragraphs.append(paragraph)
    return "\n".join(paragraphs)


def _comparable(line: str) -> str:
    return tidy(line.translate(_QUOTES)).rstrip(".").rstrip()


def _forms_of_heading(heading: str) -> Iterator[str]:
    """A heading's wikitext as wikiextractor may have written it: with what it shows, or without its links' words."""
    match = _HEADING.match(heading)
    if match:
        shown = _UNSHOWN.sub("", html.unescape(match[2]))
        yield _comparable(_EXTERNAL_LINK.sub(r"\1", _LINK.sub(r"\1", shown)))
