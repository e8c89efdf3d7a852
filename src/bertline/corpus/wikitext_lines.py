"""The last pass over a page's wikitext: its lines become paragraphs, headings and list items.

https://www.mediawiki.org/wiki/Help:Formatting: an empty line ends a paragraph, a single line end does not; a line that
begins with a mark is a heading, a list item or a rule, and one that begins with a space is preformatted.

Of list items those are wanted that are sentences: names and titles without a word about them teach a language model
little, and the appendices of an article (See also, References, External links) are only that. What the appendices are
called differs between languages, but they stand at the end of a page and have no paragraphs. So an item is kept if

- it ends as a sentence does, in whatever script, and has 40 bytes or more, which are seven English words or a dozen
  Chinese characters;
- a section with a paragraph of text follows, or is its own;
- it has no link to another site and no number of a book or an article.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import regex

ListItems = Literal["sentences", "all", "none"]
# Stands where a link to another site stood; no dump can hold it, as XML has no control characters.
OTHER_SITE = "\x1f"

_SHORTEST_SENTENCE_BYTES = 40
_SENTENCE_END = regex.compile(r"[\p{SB=STerm}\p{SB=ATerm}][\p{SB=Close}\p{SB=Sp}]*+$")
_MAX_SENTENCE_END_LENGTH = 8
_CITATION = re.compile(rf"{OTHER_SITE}|\b(?:ISBN|ISSN|OCLC|LCCN|JSTOR|PMID|arXiv|doi)\b")
_LIST_MARKS = "*#:;"
_FIRST_MARKS = "*#:;=|!- "
_QUOTES = re.compile(r"'{2,}")


class _Line(NamedTuple):
    kind: Literal["heading", "item", "text"]
    level: int  # of a heading, 1 to 6
    text: str


def join_lines(wikitext: str, list_items: ListItems) -> tuple[str, list[str]]:
    """Text of which a line is a paragraph, a list item or a heading, and the headings alone.

    Parameters
    ----------
    wikitext: without templates, tables, links and HTML.
    list_items: which are kept: `sentences` as above, `all`, `none`.

    A heading ends with a full stop, as wikiextractor writes it; one whose section shows nothing is left out.
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
    return not in_appendix and _is_sentence(item) and not _CITATION.search(item)


def _is_sentence(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) >= _SHORTEST_SENTENCE_BYTES and _ends_as_sentence(text)


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
    """Whether the mark that begins a line makes it something else than text."""
    if first == "=":
        return _level(line) > 0
    if first == "-":  # a rule, which text may follow
        return line.startswith("----")
    if first == "!":  # the heads of a table that was never closed; of its rows, and of a template's parameters, the bar
        return "!!" in line or "|" in line
    return True


def _level(line: str) -> int:
    """How many equal signs a line begins and ends with, at most 6; 0 if it is no heading."""
    before = len(line) - len(line.lstrip("="))
    after = len(line) - len(line.rstrip("="))
    return min(before, after, 6) if before < len(line) else min(6, (len(line) - 1) // 2)


def _without_quotes(line: str) -> str:
    """A line without the marks of bold and italic type, two to five quotes; what is more are apostrophes.

    Where both are left open, one bold mark is an apostrophe and an italic mark (l'''amour''): best one after a word of
    one letter, else one after any word, else the first.
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
