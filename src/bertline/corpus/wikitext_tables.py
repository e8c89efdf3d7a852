"""Tables in wikitext: removed, or written as text with one row per line.

https://www.mediawiki.org/wiki/Help:Tables. Tables may be nested, and may be written as wikitext or as HTML.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

Tables = Literal["none", "text"]

MAX_TABLE_DEPTH = 8  # deeper ones are left out, so that work is bounded

_HTML_TABLE = re.compile(r"</?[tT][aA][bB][lL][eE](?=[\s>])[^<>]*+>")
_BEFORE_TABLE = " \t:*#;"
_HTML_ROW = re.compile(r"<tr\b[^<>]*+>", re.I)
_HTML_CELL = re.compile(r"<t[dh]\b[^<>]*+>", re.I)
_BLOCK = re.compile(r"</?(?:br|div|p|center|[uod]l|d[td]|li|tr|t[dh]|caption)\b[^<>]*+>", re.I)
_CELLS = {"|": re.compile(r"\|\|"), "!": re.compile(r"\|\||!!")}  # by the mark that begins their line


def replace_tables(text: str, tables: Tables, without_links: Callable[[str], str]) -> tuple[str, int]:
    """Return text without its tables, or with their rows as paragraphs; and how many outermost tables are left out.

    Args:
        text: wikitext without templates.
        tables: what becomes of a table.
        without_links: replaces links by their visible text. A link's bar would divide its cell.

    A table that is not closed is left as it is.
    """
    pieces: list[str] = []
    opened: list[int] = []  # where the pieces of each table begin
    unread = at = 0
    for place, mark in _marks(text):
        start = place if mark[0] == "<" else _start_of_line(text, at, place)
        if start < at:
            continue
        if mark == "{|" or mark[1] in "tT":
            pieces.append(text[at:start])
            opened.append(len(pieces))
            at = _end_of_line(text, place) if mark == "{|" else place + len(mark)
        elif opened:
            pieces.append(text[at:start])
            first = opened.pop()
            is_text = tables == "text" and len(opened) < MAX_TABLE_DEPTH
            content = without_links("".join(pieces[first:])) if is_text else ""
            if mark[0] == "<":
                content = content.replace("|", "&#124;")  # divides no cells of HTML
            rows = _rows(content) if is_text else ""
            unread += tables == "none" and not opened
            pieces[first:] = [f"\n\n{rows}\n\n" if rows else "\n\n"]
            at = place + len(mark)
    pieces.append(text[at:])
    return "".join(pieces), unread


def _marks(text: str) -> list[tuple[int, str]]:
    """Return the marks that begin and end tables, each with its place, in order. Finding each kind is fastest."""
    marks = []
    for mark in ("{|", "|}"):
        at = text.find(mark)
        while at >= 0:
            marks.append((at, mark))
            at = text.find(mark, at + 2)
    marks += [(match.start(), match[0]) for match in _HTML_TABLE.finditer(text)]
    return sorted(marks)


def _start_of_line(text: str, least: int, at: int) -> int:
    """Return where the newline is that begins the line, or -1 if more than indentation precedes the place `at`."""
    while at > least and text[at - 1] in _BEFORE_TABLE:
        at -= 1
    return at - 1 if at > least and text[at - 1] == "\n" else -1


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _rows(table: str) -> str:
    """Return the rows of a table as paragraphs, their cells divided by bars."""
    if "<t" in table or "<T" in table:
        table = _HTML_CELL.sub("\n|", _HTML_ROW.sub("\n|-\n", table))
    rows: list[list[list[str]]] = [[]]  # the lines of each cell
    for line in _BLOCK.sub(" ", table).split("\n"):
        stripped = line.strip()
        if stripped.startswith("|-"):
            rows.append([])
        elif stripped.startswith("|+"):
            rows += [[[_content(stripped[2:])]], []]
        elif stripped.startswith(("|", "!")):
            rows[-1] += ([_content(cell)] for cell in _CELLS[stripped[0]].split(stripped[1:]))
        elif text := stripped.lstrip("*#:; "):
            if not rows[-1]:
                rows[-1].append([])
            rows[-1][-1].append(text)
    lines = (" | ".join(filter(None, (" ".join(filter(None, cell)) for cell in row))) for row in rows)
    # The invisible character keeps a row from being taken for a list item or a heading.
    return "\n\n".join(f"&#8203;{line}" for line in lines if line)


def _content(cell: str) -> str:
    """Return a cell without its attributes."""
    attributes, bar, content = cell.partition("|")
    return (content if bar and "[[" not in attributes else cell.replace("|", " ")).strip()
