"""Conversion of extracted articles into documents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from bertline.console import BertlineError, progress
from bertline.corpus.cleaning_steps import clean_text
from bertline.corpus.documents import Document, Dropped, tidy, write_documents
from bertline.corpus.filters import counts_of, judge_of, steps_of
from bertline.files import Json, Recipe, one_line_damage, read_object


def clean_part(recipe: Recipe, extracted: Path, documents: Path, counts: Path) -> None:
    """Turn one extracted part of a dump into documents.

    Args:
        recipe: of the corpus, a file of results/recipes. The settings are those of `wikimedia` in
            config/config.schema.yaml.
        extracted: the folder that extract_part.py wrote.
        documents: the `.jsonl.zst` to write, a document per line.
        counts: the `.counts.json` to write. It also contains the numbers of `pages`, `redirects`, `other_namespaces`
            and `articles` in the dump (`read` is `articles`), what was `lost` of a damaged one, and under `cleaning`
            what each step removed. Reasons to drop: `extractor` (no output: oversized pages are not passed to
            extractors, and wikiextractor skips titles that begin with the name of the template namespace), `empty`,
            `short`, those of `filters.judge_of`.

    Raises BertlineError if the folder is incomplete.
    """
    pages = read_object(extracted / "pages.json", "articles", "oversized")
    source = f"{recipe['wiki']}-{recipe['settings']['dump']}" if "wiki" in recipe else recipe["name"]
    steps, minimum_characters = steps_of(recipe["settings"]), recipe["settings"]["minimum_characters"]
    cleaned = counts_of(recipe["settings"])
    judge = judge_of(recipe["settings"], cleaned)

    def converted(article: Json | None, headings: list[str]) -> Document | Dropped:
        if article is None:
            return Dropped("extractor")
        text = clean_text(article["text"], headings, steps, cleaned)
        if not text:
            return Dropped("empty")
        text, reason = judge(text)
        if reason is not None:
            return Dropped(reason)
        if len(text) < minimum_characters:
            return Dropped("short")
        return Document(id=article["id"], title=tidy(article["title"]), text=text, source=source, url=article["url"])

    all_pairs = _pairs(extracted, pages, recipe["settings"]["extractor"])
    pairs = progress(all_pairs, description=source, unit="articles", total=pages["articles"])
    records = (converted(article, headings) for article, headings in pairs)
    write_documents(records, documents, counts, {**pages, "cleaning": cleaned})


def _pairs(extracted: Path, pages: Json, extractor: str) -> Iterator[tuple[Json | None, list[str]]]:
    """Yield every article of the dump as extracted, or None if it was not, with the headings of its sections.

    Both files are in the order of the dump, so neither needs to be held in memory.

    Raises BertlineError if the files are damaged, or lack articles that were counted in `pages`.
    """
    read = missing = 0
    with (
        one_line_damage(extracted),
        (extracted / "articles.jsonl").open("rb") as articles_file,
        (extracted / "headings.jsonl").open("rb") as headings_file,
    ):
        articles = map(json.loads, articles_file)
        article = next(articles, None)
        for read, line in enumerate(headings_file, 1):  # noqa: B007 - the last one is needed
            page_id, headings = json.loads(line)
            if article is not None and article["id"] == page_id:
                yield article, headings
                article = next(articles, None)
            else:
                missing += 1
                yield None, headings
        if article is not None:
            raise BertlineError(f"{extracted}: article {article['id']} is not in the dump's order; extract it again")
        # bertline's extractor leaves out oversized pages alone, wikiextractor others, too.
        if read != pages["articles"] or (extractor == "bertline" and missing > pages["oversized"]):
            raise BertlineError(
                f"{extracted} is incomplete: it holds {read - missing} articles and the headings of {read}, "
                f"of {pages['articles']} in the dump; extract it again"
            )
