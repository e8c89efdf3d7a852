"""Measure the share of a page's visible text that each extractor keeps, and CPU times, including mwparserfromhell's.

    pip install mwparserfromhell==0.7.2
    python bench/extraction.py enwiki-pages-articles1.xml.bz2 --pages 50

The visible text is read from the wikitext by mwparserfromhell: without comments, references, tables, files, categories
and templates, except those that represent words, such as `convert`. docs/extraction.md explains the columns.
"""

from __future__ import annotations

import bz2
import json
import re
import resource
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

import mwparserfromhell
from mwparserfromhell.wikicode import Wikicode
from tabulate import tabulate

sys.path.append(str(Path(__file__).parents[1] / "tests/unit"))

from corpus_recipe import dump_recipe

from bertline.command_line import run_command
from bertline.corpus.cleaning_steps import STEPS, clean_text, no_counts
from bertline.corpus.extract import extract_part

WORD = re.compile(r"\w+")
APPENDIX = re.compile(
    r"see also|references|notes|external links|further reading|bibliography|sources|works|footnotes", re.I
)
HIDDEN_LINK = r"(?:file|image|category|media|[a-z]{{2,3}}(?:-[a-z]+)?|{names}):"
HIDDEN_TAGS = ("ref", "table", "gallery", "math", "chem", "syntaxhighlight", "source", "pre", "score", "timeline")
# Templates whose first or last parameter is a word of the text.
WORDS_FIRST = re.compile(
    r"abbr|angbr|big|ipa|lang-.+|linktext|nobold|nowrap|sc|small(?:er)?|vanchor|nihongo|(?:block|c)?quote|quotation",
    re.I,
)
WORDS_LAST = re.compile(r"lang|transl(?:iteration)?|script|rtl-lang|resize", re.I)
KINDS = ("paragraphs", "headings", "list items", "list items of appendices", "templates")
Extractor = Literal["wikiextractor", "bertline"]
EXTRACTORS: tuple[Extractor, ...] = ("wikiextractor", "bertline")


def articles(dump: Path) -> Iterator[tuple[str, str, str]]:
    """Yield id, title and wikitext of each article, using an XML parser."""
    with bz2.open(dump) as file:
        yield from pages_of(file)


def pages_of(file: IO[bytes]) -> Iterator[tuple[str, str, str]]:
    for _, element in ElementTree.iterparse(file):  # noqa: S314
        if element.tag.endswith("}page"):
            prefix = element.tag.removesuffix("page")
            if element.findtext(f"{prefix}ns") == "0" and element.find(f"{prefix}redirect") is None:
                text = element.findtext(f"{prefix}revision/{prefix}text") or ""
                yield element.findtext(f"{prefix}id") or "", element.findtext(f"{prefix}title") or "", text
            element.clear()


def hidden_link(dump: Path) -> re.Pattern[str]:
    """Return the prefixes of links to pictures, categories and other languages in this wiki."""
    with bz2.open(dump) as file:
        for _, element in ElementTree.iterparse(file):  # noqa: S314
            if element.tag.endswith("}namespaces"):
                names = [child.text or "" for child in element if child.get("key") in ("6", "14")]
                return re.compile(HIDDEN_LINK.format(names="|".join(map(re.escape, names))), re.IGNORECASE)
    raise ValueError(f"{dump} names no namespaces")


def visible_words(wikitext: str, hidden: re.Pattern[str]) -> dict[str, Counter[str]]:
    """Return the words visible to a reader of the page, by the kind of their line."""
    code = mwparserfromhell.parse(wikitext)
    for tag in code.filter_tags(matches=lambda node: str(node.tag).lower() in HIDDEN_TAGS):
        remove(code, tag)
    for comment in code.filter_comments():
        remove(code, comment)
    for link in code.filter_wikilinks():
        if hidden.match(str(link.title).strip()):
            remove(code, link)
    of_templates = Counter[str]()
    for template in code.filter_templates():
        name, values = template.name.strip(), [str(part.value) for part in template.params]
        if name.lower() in ("convert", "cvt") and len(values) > 1:
            of_templates.update(words(" ".join(values[:2] * 2)))  # 3 miles (5 km): a number and a unit, twice
        elif name.lower() == "as of":
            of_templates.update(words(" ".join(["as of", *values])))
        elif values and WORDS_FIRST.fullmatch(name):
            of_templates.update(words(shown_of(values[0])))
        elif values and WORDS_LAST.fullmatch(name):
            of_templates.update(words(shown_of(values[-1])))
        remove(code, template)
    found = {kind: Counter[str]() for kind in KINDS}
    found["templates"] = of_templates
    in_appendix = False
    for line in str(code).split("\n"):
        shown = shown_of(line)
        if line.startswith("="):
            in_appendix = bool(APPENDIX.search(line)) or (in_appendix and line.startswith("==="))
            kind = "headings"
        elif line.startswith(("*", "#", ":", ";")):
            kind = "list items of appendices" if in_appendix else "list items"
        else:
            kind = "paragraphs"
        found[kind].update(words(shown))
    return found


def shown_of(wikitext: str) -> str:
    return str(mwparserfromhell.parse(wikitext).strip_code())


def remove(code: Wikicode, node: object) -> None:
    try:
        code.remove(node)
    except ValueError:  # removed together with an enclosing node
        return


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def kept_by(extractor: Extractor, dump: Path, rounds: int) -> tuple[dict[str, Counter[str]], float]:
    """Return the words of each article after extraction and default cleaning, and the CPU seconds of the extraction."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for _ in range(rounds):
            start = cpu_seconds()
            extract_part(dump_recipe(extractor=extractor), dump, Path(folder, "extracted"))
            seconds.append(cpu_seconds() - start)
        headings = dict(lines_of(Path(folder, "extracted/headings.jsonl")))
        steps = [step for step in STEPS if step not in ("lists", "tables", "markup")]
        kept = {}
        for article in lines_of(Path(folder, "extracted/articles.jsonl")):
            text = clean_text(article["text"], headings[article["id"]], steps, no_counts(steps))
            kept[article["id"]] = Counter(words(text))
    return kept, min(seconds)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def main(dump: Path, *, pages: int = 50, rounds: int = 3) -> None:
    """Run the benchmark.

    Args:
        dump: a .xml.bz2 of pages-articles.
        pages: number of articles to compare.
        rounds: number of extractions; the least CPU time counts.
    """
    kept: dict[str, dict[str, Counter[str]]] = {}
    seconds: dict[str, float] = {}
    for extractor in EXTRACTORS:
        kept[extractor], seconds[extractor] = kept_by(extractor, dump, rounds)
    rows = []
    sizes = Counter[str]()
    sums = {extractor: Counter[str]() for extractor in EXTRACTORS}
    hidden = hidden_link(dump)
    for page_id, title, wikitext in list(articles(dump))[:pages]:
        found = visible_words(wikitext, hidden)
        visible = sum((found[kind] for kind in KINDS), Counter[str]())
        sizes.update({kind: found[kind].total() for kind in KINDS})
        shares = [percent(found[kind].total(), visible.total()) for kind in KINDS]
        for extractor in EXTRACTORS:
            taken = kept[extractor].get(page_id, Counter())
            of_page = {kind: taken_of(kind, taken, found) for kind in KINDS}
            of_page["all visible words"] = (taken & visible).total()
            of_page["not visible"] = (taken - visible).total()
            sums[extractor].update(of_page)
            shares.append(percent(of_page["all visible words"], visible.total()))
        rows.append([title, visible.total(), *shares])
    total = sizes.total()
    overall = [percent(sums[extractor]["all visible words"], total) for extractor in EXTRACTORS]
    rows.append(["all", total, *(percent(sizes[kind], total) for kind in KINDS), *overall])
    names = ["page", "visible words", *(f"{kind} %" for kind in KINDS), *(f"{name} %" for name in EXTRACTORS)]
    print(tabulate(rows, names, tablefmt="github", disable_numparse=True), end="\n\n")
    kept_rows = [
        [kind, percent(sizes[kind], total), *(percent(sums[name][kind], sizes[kind]) for name in EXTRACTORS)]
        for kind in KINDS
    ]
    for name in ("all visible words", "not visible"):
        kept_rows.append([name, "", *(percent(sums[extractor][name], total) for extractor in EXTRACTORS)])
    start, characters = time.process_time(), 0
    for _, _, wikitext in articles(dump):
        characters += len(mwparserfromhell.parse(wikitext).strip_code())
    seconds["mwparserfromhell"] = time.process_time() - start
    print(tabulate(kept_rows, ["of", "visible %", *(f"kept by {name} %" for name in EXTRACTORS)], tablefmt="github"))
    print("\nCPU seconds, the whole dump:", ", ".join(f"{name} {spent:.2f}" for name, spent in seconds.items()))


def taken_of(kind: str, taken: Counter[str], found: dict[str, Counter[str]]) -> int:
    """Return how many words of a kind were kept: those that the kinds before it do not account for."""
    before = sum((found[other] for other in KINDS[: KINDS.index(kind)]), Counter[str]())
    return (taken & (before + found[kind])).total() - (taken & before).total()


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


if __name__ == "__main__":
    run_command(main, __doc__)
