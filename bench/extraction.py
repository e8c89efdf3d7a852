"""Compare the extractors with what a reader sees, page by page as MediaWiki renders it, and measure their CPU times.

    apt install mediawiki php-sqlite3 lua5.1
    python bench/extraction.py ltgwiki.xml.bz2 enwiki-pages-articles1.xml.bz2 --work rendered

docs/extraction.md explains the columns, and bench/rendering.py the reference.
"""

from __future__ import annotations

import bz2
import json
import platform
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from tabulate import tabulate

sys.path += [str(Path(__file__).parents[1] / "tests/unit"), str(Path(__file__).parent)]

from corpus_recipe import dump_recipe
from rendering import KINDS, visible_words, words

from bertline.command_line import run_command
from bertline.corpus.cleaning_steps import clean_text, no_counts
from bertline.corpus.extract import extract_part

Extractor = Literal["wikiextractor", "bertline"]
EXTRACTORS: tuple[Extractor, ...] = ("wikiextractor", "bertline")
PROSE = ("paragraphs", "list items that are sentences", "templates")
Words = dict[str, Counter[str]]


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def documents_of(extractor: Extractor, dump: Path, rounds: int) -> tuple[Words, dict[str, Any], float]:
    """Return the words of each article after extraction and default cleaning, the counts, and the CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        extracted, seconds = Path(folder, "extracted"), []
        recipe = dump_recipe(extractor=extractor)
        for _ in range(rounds):
            start = cpu_seconds()
            extract_part(recipe, dump, extracted)
            seconds.append(cpu_seconds() - start)
        headings = dict(lines_of(extracted / "headings.jsonl"))
        steps = recipe["settings"]["cleaning"]
        found = {}
        for article in lines_of(extracted / "articles.jsonl"):
            text = clean_text(article["text"], headings[article["id"]], steps, no_counts(steps))
            found[article["id"]] = Counter(words(text))
        return found, json.loads((extracted / "pages.json").read_text()), min(seconds)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def kept_by_kind(taken: Counter[str], visible: Words) -> Counter[str]:
    """Return how many words of each kind were taken: those that the kinds before it do not account for."""
    kept, before = Counter[str](), Counter[str]()
    for kind in KINDS:
        after = before + visible[kind]
        kept[kind] = (taken & after).total() - (taken & before).total()
        before = after
    kept["not visible"] = (taken - before).total()
    kept["all"] = taken.total()
    return kept


def compare(dump: Path, mediawiki: Path, work: Path, rounds: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return the rows of both tables for a dump."""
    name = dump.name.split("-")[0].removesuffix(".xml.bz2")
    (work / name).mkdir(parents=True, exist_ok=True)
    visible = visible_words(dump, mediawiki, work / name)
    sizes = Counter({kind: sum(of_page[kind].total() for of_page in visible.values()) for kind in KINDS})
    with bz2.open(dump) as file:
        megabytes = sum(map(len, iter(lambda: file.read(1 << 20), b""))) / 1e6
    rows, by_kind = [], [[name, kind, f"{sizes[kind]:,}"] for kind in KINDS]
    for extractor in EXTRACTORS:
        taken, counts, seconds = documents_of(extractor, dump, rounds)
        kept = Counter[str]()
        for page_id, of_page in visible.items():
            kept.update(kept_by_kind(taken.get(page_id, Counter()), of_page))
        prose, kept_prose = (sum(sums[kind] for kind in PROSE) for sums in (sizes, kept))
        precision = percent(kept["all"] - kept["not visible"], kept["all"], 2)
        speed = [f"{seconds:.2f}", f"{megabytes / seconds:.1f}"]
        rows.append([name, f"{len(visible)}", extractor, precision, percent(kept_prose, prose), *speed])
        for row, kind in zip(by_kind, KINDS, strict=True):
            row.append(percent(kept[kind], sizes[kind]))
        if "unread" in counts:
            print(f"{name}, not read: {json.dumps(counts['unread'])}", flush=True)
    return rows, by_kind


def percent(part: int, whole: int, digits: int = 1) -> str:
    return f"{100 * part / whole:.{digits}f}" if whole else "-"


def main(dumps: list[Path], *, work: Path, mediawiki: Path = Path("/usr/share/mediawiki"), rounds: int = 3) -> None:
    """Run the benchmark.

    Args:
        dumps: .xml.bz2 of pages-articles.
        work: a folder for the rendered pages, which are rendered only once.
        mediawiki: MediaWiki's folder.
        rounds: number of extractions; the least CPU time counts.
    """
    print(f"{platform.machine()}, Python {platform.python_version()}")
    tables: tuple[list[list[str]], list[list[str]]] = ([], [])
    for dump in dumps:
        for table, rows in zip(tables, compare(dump, mediawiki, work, rounds), strict=True):
            table += rows
    heads = ["dump", "articles", "extractor", "precision %", "prose kept %", "CPU s", "MB of XML a second"]
    print(tabulate(tables[0], heads, tablefmt="github", disable_numparse=True), end="\n\n")
    heads = ["dump", "visible words", "number", *(f"kept by {name} %" for name in EXTRACTORS)]
    print(tabulate(tables[1], heads, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    run_command(main, __doc__)
