"""Conversion of extracted articles into documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertline.console import BertlineError, progress
from bertline.corpus.cleaning_steps import Counts, clean_text, no_counts
from bertline.corpus.documents import Document, Dropped, tidy, write_documents
from bertline.files import read_json

Json = dict[str, Any]


def clean_part(
    extracted: Path | str,
    documents: Path | str,
    counts: Path | str,
    *,
    source: str,
    minimum_characters: int,
    steps: Sequence[str],
) -> None:
    """Turn one extracted part into documents.

    Args:
        extracted: the folder written by `extract.extract_part`.
        documents, counts: the two files to write, see `documents.write_documents`. The counts also contain the numbers
            of `pages`, `redirects`, `other_namespaces` and `articles` in the dump (`read` is `articles`), and under
            `cleaning` what each step removed. Reasons to drop: `extractor` (no output: oversized pages are not passed
            to extractors, and wikiextractor skips titles that begin with the name of the template namespace), `empty`,
            `short`.
        source: the `source` of every document, such as `enwiki-20261101`.
        minimum_characters: shorter texts are dropped.
        steps: names of `cleaning_steps.STEPS`.

    Raises BertlineError if the folder is incomplete.
    """
    extracted = Path(extracted)
    pages = read_json(extracted / "pages.json")
    cleaned = no_counts(steps)

    def records() -> Iterator[Document | Dropped]:
        pairs = _pairs(extracted)
        for article, headings in progress(pairs, description=source, unit="articles", total=pages["articles"]):
            yield _document(article, headings, source, minimum_characters, steps, cleaned)

    write_documents(records(), documents, counts, {**pages, "cleaning": cleaned})


def _pairs(extracted: Path) -> Iterator[tuple[Json | None, list[str]]]:
    """Yield every article of the dump as extracted, or None if it was not, with the headings of its sections.

    Both files are in the order of the dump, so neither needs to be held in memory.
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
    article: Json | None,
    headings: list[str],
    source: str,
    minimum_characters: int,
    steps: Sequence[str],
    cleaned: Counts,
) -> Document | Dropped:
    if article is None:
        return Dropped("extractor")
    text = clean_text(article["text"], headings, steps, cleaned)
    if not text:
        return Dropped("empty")
    if len(text) < minimum_characters:
        return Dropped("short")
    title, page_id, url = tidy(article["title"]), article["id"], article["url"]
    return Document(id=page_id, title=title, text=text, source=source, url=url)
