"""Cleaning steps for text, each with a count of what it removed.

A step takes a line, which is a paragraph, and the headings of its document, and returns the cleaned line; an empty line
is dropped. A corpus lists its cleaning steps in the order in which they run. Their time is linear in a line's length,
whatever it contains: no expression passes over text again from a later start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from bertline.corpus.documents import tidy
from bertline.corpus.entities import unescape

# The lines that a document's headings may have become.
Headings = Collection[str]
Step = Callable[[str, Headings], str]
# step -> lines dropped, characters removed, documents changed
Counts = dict[str, dict[str, int]]

# What is removed closes the gap before a mark that follows it. French has a space of its own before some marks.
_GAP = r"(\s*(?=\)|[,.،؛](?:\s|$))|(?=[;:!?](?:\s|$)))?"
# wikiextractor replaces formulas and code with these.
_PLACEHOLDERS = re.compile(rf"(?<!\s)(?:\s*(?:formula|codice)_\d+)+{_GAP}")
# The remains of "(from {{lang|el|...}}; born 384 BC)" without its templates.
_EMPTY_BRACKET = re.compile(r"\(\s*(?:[,;:،؛]\s*)*\)|\[\s*\]")
_EMPTY_BRACKETS = re.compile(rf"(?<!\s)(?:\s*(?:{_EMPTY_BRACKET.pattern}))+{_GAP}")
_AFTER_BRACKET = re.compile(r"\(\s*(?:[,;،؛]\s*)+")
# The same in Chinese and Japanese, where no spaces are left.
_EMPTY_WIDE_BRACKETS = re.compile(r"（\s*(?:[,;:，、；：]\s*)*）")
_AFTER_WIDE_BRACKET = re.compile(r"（\s*(?:[,;，、；]\s*)+")
# And where the template was the last: "(ふじさん、{{Audio|x}})". A semicolon after a space is an emoticon's.
_BEFORE_BRACKET = re.compile(r"(?<![,;、；，،؛\s])(?:\s*[,、，،]|[;；؛])[,;、；，،؛\s]*(?=[)）])")
_LIST_ITEM = re.compile(r"\s*[*#:;•·]+\s*\S")
_TABLE_ROW = re.compile(
    r"\s*(?:\{\||\|[-+}|]|[|!]\s)|.*\|\||.*\b(?:style|class|colspan|rowspan|align|bgcolor)\s?=\s?[\"'\d]"
)
_MARKUP = re.compile(r"\{\{[^{}]*\}\}|\[\[|\]\]|\{\{|\}\}|\{\||\|\}|</?[a-z][^<>]*>|'{2,}")

_EQUAL_SIGNS = re.compile("=+")
_COMMENT_OR_REFERENCE = re.compile("<!--|<ref(?!erences)[^<>]*>?")
_UNSHOWN = re.compile(r"<[^<>]+>|\{\{[^{}]*\}\}")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]")
_EXTERNAL_LINK = re.compile(r"\[\w+://[^\s\[\]]+ ([^\[\]]*)\]")
# The line of a heading is at most this much longer than its shortest form, if it is not full of quotes and spaces.
_MAX_LENGTHENING = 100


def _without_heading(line: str, headings: Headings) -> str:
    return "" if headings and _comparable(line) in headings else line


def _without_placeholders(line: str, headings: Headings) -> str:
    return _PLACEHOLDERS.sub(_closed_gap, line) if "formula_" in line or "codice_" in line else line


def _without_empty_brackets(line: str, headings: Headings) -> str:
    if ")" in line or "）" in line:
        line = _BEFORE_BRACKET.sub("", line)
    if "（" in line:
        line = _AFTER_WIDE_BRACKET.sub("（", _EMPTY_WIDE_BRACKETS.sub("", line))
    # Looking for the bracket first is several times faster than the expression.
    if ("(" in line or "[" in line) and _EMPTY_BRACKET.search(line):
        line = _EMPTY_BRACKETS.sub(_closed_gap, line)
    return _AFTER_BRACKET.sub("(", line) if "(" in line else line


def _closed_gap(match: re.Match[str]) -> str:
    return " " if match[1] is None else ""


def _unless(matches: Callable[[str], object]) -> Step:
    return lambda line, headings: "" if matches(line) else line


def _without_markup(line: str, headings: Headings) -> str:
    return _MARKUP.sub(" ", line) if any(mark in line for mark in ("{", "}", "[[", "]]", "<", "''")) else line


# config/config.schema.yaml lists the names, too, with each corpus's defaults. Only dumps have headings.
STEPS: dict[str, Step] = {
    "headings": _without_heading,
    "placeholders": _without_placeholders,
    "empty_brackets": _without_empty_brackets,
    "lists": _unless(_LIST_ITEM.match),
    "tables": _unless(_TABLE_ROW.match),
    "markup": _without_markup,
    "symbols": _unless(lambda line: not any(map(str.isalnum, line))),
}
# Unicode's NFC, no control characters, single spaces. Always runs, after the steps.
NORMALISATION = "normalisation"


def no_counts(steps: Sequence[str]) -> Counts:
    """Return counts of zero."""
    return {name: {"lines": 0, "characters": 0, "documents": 0} for name in (*steps, NORMALISATION)}


def clean_text(text: str, headings: Sequence[str], steps: Sequence[str], counts: Counts) -> str:
    """Return the cleaned, tidy paragraphs of a text, joined by newlines.

    Args:
        headings: of its sections, as wikitext. wikiextractor keeps headings as lines with a full stop; comparing lines
            with these distinguishes headings from short sentences.
        steps, counts: see `clean_paragraphs`.
    """
    known = set(chain.from_iterable(_forms_of_heading(heading) for heading in headings))
    return "\n".join(clean_paragraphs(text.split("\n"), known, steps, counts))


def clean_paragraphs(lines: Iterable[str], headings: Headings, steps: Sequence[str], counts: Counts) -> Iterator[str]:
    """Yield the cleaned, tidy paragraphs of a document.

    Args:
        lines: one paragraph each.
        headings: the lines that the document's headings may have become.
        steps: names of STEPS, in the order in which they run.
        counts: from `no_counts`; what each step removes is added, completely once the last paragraph was consumed.
    """
    changed = set()
    longest_heading = max(map(len, headings), default=0) + _MAX_LENGTHENING
    for line in lines:
        if not line.strip():
            continue
        for name in steps:
            if name == "headings" and len(line) > longest_heading:
                continue
            rest = STEPS[name](line, headings)
            if rest is not line and rest != line:
                changed.add(name)
                counts[name]["characters"] += len(line) - len(rest)
                line = rest
                if not line.strip():
                    counts[name]["lines"] += 1
                    break
        paragraph = tidy(line)
        if paragraph != line:
            changed.add(NORMALISATION)
            counts[NORMALISATION]["characters"] += len(line) - len(paragraph)
            # Of control characters; a line that a step emptied is that step's.
            counts[NORMALISATION]["lines"] += not paragraph and bool(line.strip())
        if paragraph:
            yield paragraph
    for name in changed:
        counts[name]["documents"] += 1


def _comparable(line: str) -> str:
    return tidy(line.replace("'", "").replace('"', "")).rstrip(".").rstrip()


def _forms_of_heading(heading: str) -> Iterator[str]:
    """Yield the text that wikiextractor may have written for a heading's wikitext."""
    title = _title_of_heading(heading)
    if title is not None:
        shown = _UNSHOWN.sub("", _without_comments_and_references(unescape(title)))
        yield _comparable(_EXTERNAL_LINK.sub(r"\1", _LINK.sub(r"\1", shown)))


def _title_of_heading(heading: str) -> str | None:
    r"""Return the title of a heading as wikiextractor finds it, or None: the second group of `(==+)\s*(.*?)\s*\1`."""
    lengths = [len(run[0]) for run in _EQUAL_SIGNS.finditer(heading)] if heading.startswith("==") else [0]
    # The longest run of equal signs at the beginning that appears again after it.
    level = max(lengths[0] // 2, min(lengths[0], max(lengths[1:], default=0)))
    return heading[level : heading.index("=" * level, level)].strip() if level > 1 else None


def _without_comments_and_references(text: str) -> str:
    pieces, at = [], 0
    endless: set[str] = set()
    for match in _COMMENT_OR_REFERENCE.finditer(text):
        end_mark = "-->" if match[0] == "<!--" else "</ref>"
        if match.start() < at or end_mark in endless or match[0].endswith("/>"):
            continue
        end = text.find(end_mark, match.end())
        if end < 0:
            endless.add(end_mark)
            continue
        pieces.append(text[at : match.start()])
        at = end + len(end_mark)
    return "".join([*pieces, text[at:]])
