"""The last pass over a page's wikitext: its lines become paragraphs, headings and list items.

https://www.mediawiki.org/wiki/Help:Formatting: an empty line ends a paragraph, a single line end does not; a line that
begins with a mark is a heading, a list item or a rule, and one that begins with a space is preformatted.

Only list items that are sentences are kept: bare names and titles are of little use for training, and the appendices of
an article (See also, References, External links) contain nothing else. The names of appendices differ between
languages, but they are at the end of a page and have no paragraphs. So an item is kept if

- it ends like a sentence, in any script, or with a semicolon, and has 40 bytes or more, which are seven English words
  or a dozen Chinese characters;
- its own or a later section has a paragraph of text;
- it has no link to another site and no number of a book or an article.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import regex

ListItems = Literal["sentences", "all", "none"]
# Replaces a link to another site; no dump can contain it, as XML has no control characters.
OTHER_SITE = "\x1f"

_MIN_SENTENCE_BYTES = 40
_SENTENCE_END = regex.compile(r"[\p{SB=STerm}\p{SB=ATerm}][\p{SB=Close}\p{SB=Sp}]*+$")
_MAX_SENTENCE_END_LENGTH = 8
_SEMICOLONS = (";", "；", "؛")
_CITATION = re.compile(rf"{OTHER_SITE}|\b(?:ISBN|ISSN|OCLC|LCCN|JSTOR|PMID|arXiv|doi)\b")
_LIST_MARKS = "*#:;"
_FIRST_MARKS = "*#:;=|!- "
_QUOTES = re.compile(r"'{2,}")


class _Line(NamedTuple):
    kind: Literal["heading", "item", "text"]
    level: int  # of a heading, 1 to 6
    text: str


def join_lines(wikitext: str, list_items: ListItems) -> tuple[str, list[str]]:
    """Return text with one paragraph, list item or heading per line, and the headings alone.

    Args:
        wikitext: without templates, tables, links and HTML.
        list_items: which ones to keep: `sentences` as above, `all`, `none`.

    A heading ends with a full stop, as in wikiextractor's output; one whose section is empty is left out.
    """
    lines = list(_lines(wikitext))
    prose = [at for at, line in enumerate(lines) if line.kind == "text" and _is_sentence(line.text)]
    last_prose = prose[-1] if prose else -1
    in_appendix = not prose
    shown: list[str] = []
    headings: list[str] = []
    waiting: list[_Line] = []  # headings without text so far
    for at, line in enumerate(lines):
        if line.kind == "heading":
            in_appendix = at > last_prose
            waiting = [*(above for above in waiting if above.level < line.level), line]
        elif line.kind == "text" or _is_wanted(line.text, list_items, in_appendix):
            for heading in waiting:
                headings.append(heading.text)
                shown.append(heading.text if _ends_as_sentence(heading.text) else f"{heading.text}.")
            waiting = []
            shown.append(line.text)
    return "\n".join(shown).replace(OTHER_SITE, ""), headings


def _is_wanted(item: str, list_items: ListItems, in_appendix: bool) -> bool:
    if list_items != "sentences":
        return list_items == "all"
    sentence = f"{item[:-1]}." if item.endswith(_SEMICOLONS) else item
    return not in_appendix and _is_sentence(sentence) and not _CITATION.search(item)


def _is_sentence(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) >= _MIN_SENTENCE_BYTES and _ends_as_sentence(text)


def _ends_as_sentence(text: str) -> bool:
    return _SENTENCE_END.search(text[-_MAX_SENTENCE_END_LENGTH:]) is not None


def _lines(wikitext: str) -> Iterator[_Line]:
    paragraph: list[str] = []
    for given in [*wikitext.split("\n"), ""]:
        line = _without_quotes(given) if "''" in given else given
        stripped = line.strip()
        if stripped and (given[0] not in _FIRST_MARKS or not _has_meaning(given[0], stripped)):
            paragraph.append(stripped)
            continue
        if paragraph:
            yield _Line("text", 0, " ".join(paragraph))
            paragraph = []
        if not stripped:
            continue
        first = given[0]
        if first in _LIST_MARKS:
            if item := stripped.lstrip(_LIST_MARKS + " \t"):
                yield _Line("item", 0, item)
        elif first == "=":
            level = _level(stripped)
            if heading := stripped[level:-level].replace(OTHER_SITE, "").strip():
                yield _Line("heading", level, heading)
        elif first == "-":
            paragraph += filter(None, [stripped.lstrip("-").strip()])
        elif first == " ":
            yield _Line("text", 0, stripped)


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
