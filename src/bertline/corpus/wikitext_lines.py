"""The last pass over a page's wikitext: its lines become paragraphs, headings and list items.

https://www.mediawiki.org/wiki/Help:Formatting: an empty line ends a paragraph, a single line end does not; a line that
begins with a mark is a heading, a list item or a rule, and one that begins with a space is preformatted.

Only list items that are sentences are kept: bare names and titles are of little use for training, and the appendices of
an article (See also, References, External links) contain little else. The names of appendices differ between languages,
but they are at the end of a page and have no paragraphs. So an item is kept if

- it ends like a sentence, in any script, or with a semicolon, and has 40 bytes or more, which are seven English words
  or a dozen Chinese characters; in scripts without such marks, as Thai, if it has 120 bytes or more;
- it has no link to another site and no number of a book or an article;
- its own or a later section has a paragraph of text; or its section, at the end of the page, is not a bibliography: few
  of its items have a link, a number of a book, or a year where bibliographies have one;
- the page has a paragraph, or at least half of its items are sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Literal

import regex

ListItems = Literal["sentences", "all", "none"]
# Replaces a link to another site; no dump can contain it, as XML has no control characters.
OTHER_SITE = "\x1f"

# kind, level of a heading (1 to 6, else 0), text
_Line = tuple[Literal["heading", "item", "text"], int, str]

_MIN_SENTENCE_BYTES = 40
_MIN_UNMARKED_BYTES = 120
_SENTENCE_END = regex.compile(r"[\p{SB=STerm}\p{SB=ATerm}][\p{SB=Close}\p{SB=Sp}]*+$")
_UNMARKED_END = regex.compile(r"[\p{Thai}\p{Lao}][\p{SB=Close}\p{SB=Sp}]*+$")
_MAX_SENTENCE_END_LENGTH = 8
_SEMICOLONS = (";", "；", "؛")
_CITATION = re.compile(rf"{OTHER_SITE}|\b(?:ISBN|ISSN|OCLC|LCCN|JSTOR|PMID|arXiv|doi)\b")
# Publications have a year in brackets or before a full stop, or end with one or with a number of pages.
_PUBLICATION = re.compile(r"\([12]\d{3}[a-z]?\)|\b[12]\d{3}\.(?:\s|$)|\d{2}[^\d\w()]*(?:\w{1,2}[^\d\w()]*)?$")
_BIBLIOGRAPHY_SHARE = 1 / 3
_LIST_MARKS = "*#:;"
_FIRST_MARKS = "*#:;=|!- "
_QUOTES = re.compile(r"'{2,}")


def join_lines(wikitext: str, list_items: ListItems) -> tuple[str, list[str], int]:
    """Return text with one paragraph, list item or heading per line; the headings alone; how many items are left out.

    Args:
        wikitext: without templates, tables, links and HTML.
        list_items: which ones to keep: `sentences` as above, `all`, `none`.

    A heading ends with a full stop, as in wikiextractor's output; one whose section is empty is left out.
    """
    lines = _lines(wikitext)
    numbers = range(len(lines) - 1, -1, -1)
    last_prose = next((at for at in numbers if lines[at][0] == "text" and _is_sentence(lines[at][2])), -1)
    # A page without paragraphs is a list of sentences, such as a timeline, or of names, such as a disambiguation.
    by_sections = list_items == "sentences" and (last_prose >= 0 or _are_sentences(lines))
    is_wanted = _WANTED["none" if list_items == "sentences" and not by_sections else list_items]
    shown: list[str] = []
    headings: list[str] = []
    waiting: list[_Line] = []  # headings without text so far
    unread = 0
    for at, line in enumerate(lines):
        kind, level, text = line
        if kind == "heading":
            if by_sections and at > last_prose:
                is_wanted = _WANTED["none" if _is_bibliography(_items_after(lines, at)) else "sentences"]
            waiting = [*(above for above in waiting if above[1] < level), line]
        elif kind == "text" or is_wanted(text):
            for _, _, heading in waiting:
                headings.append(heading)
                shown.append(heading if _ends_as_sentence(heading) else f"{heading}.")
            waiting = []
            shown.append(text)
        else:
            unread += 1
    return "\n".join(shown).replace(OTHER_SITE, ""), headings, unread


def _is_sentence_item(item: str) -> bool:
    sentence = f"{item[:-1]}." if item.endswith(_SEMICOLONS) else item
    return _is_sentence(sentence) and not _CITATION.search(item)


_WANTED: dict[str, Callable[[str], bool]] = {
    "sentences": _is_sentence_item,
    "all": lambda item: True,
    "none": lambda item: False,
}


def _are_sentences(lines: Sequence[_Line]) -> bool:
    """Return whether at least half of the list items are sentences."""
    items = [text for kind, _, text in lines if kind == "item"]
    return 2 * sum(map(_is_sentence_item, items)) >= len(items) > 0


def _items_after(lines: Sequence[_Line], heading: int) -> list[str]:
    rest = (lines[at] for at in range(heading + 1, len(lines)))
    section = takewhile(lambda line: line[0] != "heading", rest)
    return [text for kind, _, text in section if kind == "item"]


def _is_bibliography(items: Sequence[str]) -> bool:
    publications = sum(1 for item in items if _CITATION.search(item) or _PUBLICATION.search(item))
    return publications > _BIBLIOGRAPHY_SHARE * len(items)


def _is_sentence(text: str) -> bool:
    length = len(text.encode("utf-8", "replace"))
    if length >= _MIN_UNMARKED_BYTES and _UNMARKED_END.search(text[-_MAX_SENTENCE_END_LENGTH:]):
        return True
    return length >= _MIN_SENTENCE_BYTES and _ends_as_sentence(text)


def _ends_as_sentence(text: str) -> bool:
    return _SENTENCE_END.search(text[-_MAX_SENTENCE_END_LENGTH:]) is not None


def _lines(wikitext: str) -> list[_Line]:
    lines: list[_Line] = []
    paragraph: list[str] = []
    for given in [*wikitext.split("\n"), ""]:
        line = _without_quotes(given) if "''" in given else given
        stripped, first = line.strip(), given[:1]
        if stripped and (first not in _FIRST_MARKS or not _has_meaning(first, stripped)):
            paragraph.append(stripped)
            continue
        if paragraph:
            lines.append(("text", 0, " ".join(paragraph)))
            paragraph = []
        if not stripped:
            continue
        if first in _LIST_MARKS:
            if item := stripped.lstrip(_LIST_MARKS + " \t"):
                lines.append(("item", 0, item))
        elif first == "=":
            level = _level(stripped)
            if heading := stripped[level:-level].replace(OTHER_SITE, "").strip():
                lines.append(("heading", level, heading))
        elif first == "-":
            paragraph += filter(None, [stripped.lstrip("-").strip()])
        elif first == " ":
            lines.append(("text", 0, stripped))
    return lines


def _has_meaning(first: str, line: str) -> bool:
    """Return whether the mark that begins a line makes it something other than text."""
    if first == "=":
        return _level(line) > 0
    if first == "-":  # a rule, which may be followed by text
        return line.startswith("----")
    if first == "!":  # header cells of an unclosed table; "|" begins its rows and a template's parameters
        return "!!" in line or "|" in line
    return True


def _level(line: str) -> int:
    """Return the number of equal signs that a line begins and ends with, at most 6; 0 if it is not a heading."""
    before = len(line) - len(line.lstrip("="))
    after = len(line) - len(line.rstrip("="))
    return min(before, after, 6) if before < len(line) else min(6, (len(line) - 1) // 2)


def _without_quotes(line: str) -> str:
    """Remove the marks of bold and italic type, two to five quotes, from a line; additional quotes are apostrophes.

    If both are left open, one bold mark is an apostrophe and an italic mark (l'''amour''): preferably one after a word
    of one letter, else one after any word, else the first.
    """
    if "'''" not in line:
        return line.replace("''", "")
    marks = list(_QUOTES.finditer(line))
    lengths = [len(mark[0]) for mark in marks]
    bold, italic = sum(length > 2 for length in lengths), sum(length == 2 or length > 4 for length in lengths)
    apostrophe = None
    if bold % 2 and italic % 2:

        def rank(mark: re.Match[str]) -> tuple[bool, bool]:
            before = f"  {line[max(0, mark.start() - 2) : mark.start()]}"[-2:]
            return before[1] == " ", before[0] != " "

        apostrophe = min((mark for mark in marks if len(mark[0]) in (3, 4)), key=rank, default=None)
    pieces, at = [], 0
    for mark, length in zip(marks, lengths, strict=True):
        apostrophes = (length == 4) + max(0, length - 5) + (mark is apostrophe)
        pieces += [line[at : mark.start()], "'" * apostrophes]
        at = mark.end()
    return "".join([*pieces, line[at:]])
