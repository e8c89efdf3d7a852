"""What wikiextractor leaves out of a page's visible text, beside mwparserfromhell, and the CPU time of both.

    pip install mwparserfromhell==0.7.2
    python bench/extraction.py enwiki-pages-articles1.xml.bz2 --pages 50

The visible text is read from the wikitext by mwparserfromhell: without comments, references, tables, files, categories
and templates, but with `convert`. docs/extraction.md explains the columns.
"""

from __future__ import annotations

import argparse
import bz2
import json
import re
import resource
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import mwparserfromhell
from mwparserfromhell.wikicode import Wikicode
from tabulate import tabulate

from bertline.console import run_command
from bertline.corpus.cleaning_steps import STEPS, clean_text, no_counts
from bertline.corpus.extract import extract_part

WORD = re.compile(r"\w+")
APPENDIX = re.compile(
    r"see also|references|notes|external links|further reading|bibliography|sources|works|footnotes", re.I
)
HIDDEN_LINK = re.compile(r"(?:file|image|category|media|[a-z]{2,3}(?:-[a-z]+)?):", re.IGNORECASE)
KINDS = ("paragraphs", "headings", "list items", "list items of appendices", "convert")


def articles(dump: Path) -> Iterator[tuple[str, str, str]]:
    """Id, title and wikitext of each article, by an XML parser."""
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


def visible_words(wikitext: str) -> dict[str, Counter[str]]:
    """The words that a reader of the page sees, by the kind of line that they stand in."""
    code = mwparserfromhell.parse(wikitext)
    for tag in code.filter_tags(matches=lambda node: node.tag in ("ref", "table", "gallery", "math", "code")):
        remove(code, tag)
    for link in code.filter_wikilinks():
        if HIDDEN_LINK.match(str(link.title).strip()):
            remove(code, link)
    converted = Counter()
    for template in code.filter_templates():
        if template.name.strip().lower() in ("convert", "cvt") and len(template.params) > 1:
            value, unit = (str(part.value) for part in template.params[:2])
            converted.update(words(f"{value} {unit} {value} {unit}"))  # 3 miles (5 km): twice a number and a unit
        remove(code, template)
    found = {kind: Counter[str]() for kind in KINDS}
    found["convert"] = converted
    in_appendix = False
    for line in str(code).split("\n"):
        shown = mwparserfromhell.parse(line).strip_code()
        if line.startswith("="):
            in_appendix = bool(APPENDIX.search(line)) or (in_appendix and line.startswith("==="))
            kind = "headings"
        elif line.startswith(("*", "#", ":", ";")):
            kind = "list items of appendices" if in_appendix else "list items"
        else:
            kind = "paragraphs"
        found[kind].update(words(shown))
    return found


def remove(code: Wikicode, node: object) -> None:
    try:
        code.remove(node)
    except ValueError:  # it went with one around it
        return


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def kept_by_wikiextractor(dump: Path) -> tuple[dict[str, Counter[str]], float]:
    """The words of each article after extraction and the default cleaning, and the CPU seconds of the extraction."""
    with tempfile.TemporaryDirectory() as folder:
        start = cpu_seconds()
        extract_part(dump, Path(folder, "extracted"))
        seconds = cpu_seconds() - start
        headings = dict(lines_of(Path(folder, "extracted/headings.jsonl")))
        steps = [step for step in STEPS if step not in ("lists", "tables", "markup")]
        kept = {}
        for article in lines_of(Path(folder, "extracted/articles.jsonl")):
            text = clean_text(article["text"], headings[article["id"]], steps, no_counts(steps))
            kept[article["id"]] = Counter(words(text))
    return kept, seconds


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path, help="a .xml.bz2 of pages-articles")
    parser.add_argument("--pages", type=int, default=50, help="how many of its articles to compare")
    arguments = parser.parse_args()
    kept, seconds = kept_by_wikiextractor(arguments.dump)
    rows, totals, of_both = [], Counter[str](), Counter[str]()
    for identity, title, wikitext in list(articles(arguments.dump))[: arguments.pages]:
        found = visible_words(wikitext)
        sizes = {kind: found[kind].total() for kind in KINDS}
        visible = sum((found[kind] for kind in KINDS), Counter[str]())
        taken = kept.get(identity, Counter())
        totals.update(sizes)
        of_both.update(visible=visible.total(), taken=(taken & visible).total(), other=(taken - visible).total())
        of_both.update(paragraphs=(taken & found["paragraphs"]).total())
        share = [f"{100 * sizes[kind] / visible.total():.1f}" if visible else "-" for kind in KINDS]
        rows.append(
            [title, visible.total(), *share, f"{100 * (taken & visible).total() / max(1, visible.total()):.1f}"]
        )
    visible_total = of_both["visible"]
    shares = [f"{100 * totals[kind] / visible_total:.1f}" for kind in KINDS]
    rows.append(["all", visible_total, *shares, f"{100 * of_both['taken'] / visible_total:.1f}"])
    names = ["page", "visible words", *(f"{kind} %" for kind in KINDS), "kept %"]
    print(tabulate(rows, names, tablefmt="github", disable_numparse=True))
    start, characters = time.process_time(), 0
    for _, _, wikitext in articles(arguments.dump):
        characters += len(mwparserfromhell.parse(wikitext).strip_code())
    other = time.process_time() - start
    print(f"\nof the paragraphs' words kept: {100 * of_both['paragraphs'] / totals['paragraphs']:.1f} %")
    print(f"words kept that are not visible: {100 * of_both['other'] / visible_total:.1f} % of the visible")
    print(f"CPU: wikiextractor {seconds:.2f} s, mwparserfromhell {other:.2f} s, {other / seconds:.1f} times")


if __name__ == "__main__":
    run_command(main)
