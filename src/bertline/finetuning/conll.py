"""Reading of CoNLL files: sentences as words and tags in columns; of CoNLL-U, the words of the trees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bertline.console import BertlineError
from bertline.finetuning.tables import read_lines

SUFFIXES = (".conll", ".conllu")  # of inputs to predict from; a table's files may have other names

DOCUMENT_START = "-DOCSTART-"
# Of CoNLL-U: https://universaldependencies.org/format.html
COMMENT = re.compile(r"# ?(sent_id|text|newdoc|newpar|global\.columns)\b")
COMMENT_WITH_VALUE = re.compile(r"# ?(sent_id|text|(newdoc|newpar)( id)?|global\.columns) = ")
COMMENT_OF_ANY_NAME = re.compile(r"# [^\t=]+ = ")
OF_SEVERAL_WORDS = re.compile(r"[0-9]+[-.][0-9]+")  # the id of a token of several words, or of an empty node
COLUMNS_OF_CONLL_U = 10
FORM = 1  # its column of words

Line = tuple[int, str, list[str]]  # its number, and its columns


def is_conll_u(path: Path | str) -> bool:
    """Return whether a file is of CoNLL-U, by its name."""
    return Path(path).suffix.lower() == ".conllu"


def read_sentences(
    path: Path | str, *, word: int, tag: int, tagged: bool = True
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words and the tags of each sentence; an empty line ends one, -DOCSTART- lines are skipped.

    In a .conllu, comments, tokens of several words and empty nodes are skipped, too. A word may begin with #: a comment
    has not the columns of the sentence's other lines.

    Args:
        word, tag: the columns, counted from 0; negative ones count from the end. Columns are separated by tabs if the
            line contains one, otherwise by spaces.
        tagged: whether the file must have tags. If not, they are what is in that column, "" if it is absent.

    Raises BertlineError naming a line that lacks a column, has another number of them or is not UTF-8, or a file
    without sentences.
    """
    conll_u = is_conll_u(path)
    expected, is_empty = 0, True
    form = (True, COLUMNS_OF_CONLL_U) if conll_u else None
    for lines in _blocks(Path(path)):
        form = next((_form(line, columns) for _, line, columns in lines if not line.startswith("#")), form)
        words: list[str] = []
        tags: list[str] = []
        for number, line, columns in lines:
            where = f"{path}: line {number}"
            if _is_of_conll_u(line, columns, form, conll_u):
                if conll_u:
                    continue
                raise BertlineError(
                    f"{where}: of CoNLL-U; let the file's name end in .conllu, so that such lines are skipped"
                )
            found = _word_and_tag(columns, word, tag, tagged, where)
            expected = expected or len(columns)
            if tagged and len(columns) != expected:
                raise BertlineError(
                    f"{where}: {len(columns)} columns, the lines before have {expected}; correct the line"
                )
            words.append(found[0])
            tags.append(found[1])
        if words:
            yield words, tags
            is_empty = False
        if word >= 0 and tag >= 0:  # then columns behind them may vary between sentences
            expected = 0
    if is_empty:
        raise BertlineError(f"{path} contains no sentence; name a file with at least one")


def _blocks(path: Path) -> Iterator[list[Line]]:
    """Yield the lines between those that are empty or begin a document."""
    lines: list[Line] = []
    for number, line in read_lines(path):
        # Not str.split: a word may contain a no-break space.
        columns = line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
        if line.strip(" \t") and columns[0] != DOCUMENT_START:
            lines.append((number, line, columns))
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def _form(line: str, columns: list[str]) -> tuple[bool, int]:
    """Return whether a line's columns are separated by tabs, and their number."""
    return "\t" in line, len(columns)


def _is_of_conll_u(line: str, columns: list[str], form: tuple[bool, int] | None, conll_u: bool) -> bool:
    """Return whether a line is a comment, a token of several words or an empty node of CoNLL-U.

    `form` is that of the lines that are none, if there are any.
    """
    if line.startswith("#"):
        is_other = form is not None and _form(line, columns) != form
        if conll_u:
            return is_other
        return bool(
            COMMENT_WITH_VALUE.match(line) or (is_other and (COMMENT.match(line) or COMMENT_OF_ANY_NAME.match(line)))
        )
    return len(columns) == COLUMNS_OF_CONLL_U and OF_SEVERAL_WORDS.fullmatch(columns[0]) is not None


def _word_and_tag(columns: list[str], word: int, tag: int, tagged: bool, where: str) -> tuple[str, str]:
    places = [column % len(columns) if -len(columns) <= column < len(columns) else -1 for column in (word, tag)]
    if places[0] == -1 or (tagged and (places[1] == -1 or places[0] == places[1])):
        wanted = f"words are in column {word}" + (f" and tags in {tag}" if tagged else "")
        raise BertlineError(
            f"{where}: {len(columns)} columns, {wanted}; correct the line, or the columns in the configuration"
        )
    for place in places if tagged else places[:1]:
        if not columns[place].strip(" \t"):  # a word may be a no-break or an ideographic space
            raise BertlineError(f"{where}: column {place} is empty; correct or remove the line")
    has_tag = places[1] not in (-1, places[0])
    return columns[places[0]], columns[places[1]].strip(" ") if has_tag else ""
