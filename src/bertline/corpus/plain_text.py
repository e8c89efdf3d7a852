"""Conversion of a text's bytes into documents: encoding, lines, paragraphs, the licence of Project Gutenberg."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, BinaryIO, NamedTuple

from bertline.console import BertlineError
from bertline.corpus.cleaning_steps import Counts, clean_paragraphs
from bertline.corpus.documents import Document, Dropped, tidy
from bertline.corpus.encodings import Encodings, decoded, first_that_decodes
from bertline.corpus.filters import counts_of, judge_of, steps_of
from bertline.files import Json

# A line of more columns than this is not wrapped; a Han character counts as two. In ten wrapped books none is longer;
# with a paragraph a line, 13 to 58 percent of their lines are. So every line is a paragraph if more than five percent
# are longer. A few may be URLs or rows of tables; then every line is a paragraph if the others do not look full: if
# half of those that would be joined are shorter than 0.7 times the third quartile. For the ten books that ratio is 0.77
# to 0.98, for nine of ten web pages with few long lines 0.40 to 0.65.
MAX_WRAPPED_LINE_LENGTH = 200
MAX_LONG_LINES = 0.05
MIN_FULL = 0.7
# Every line is also a paragraph if more than half of the lines that would be joined end as sentences, with room for the
# next word: in ten books in wrapped lines 2 to 23 percent do.
MAX_WRAPPED_ENDS = 0.5
# Longer lines and texts are divided, so that no job's memory grows with the size of a file. No novel comes near: the
# King James Bible has four million characters.
MAX_LINE_LENGTH = 1 << 20
MAX_DOCUMENT_LENGTH = 1 << 24
# Fewer than those of all scripts, as in `quality`: one more may alter any corpus of plain text.
SENTENCE_MARKS = (".", "!", "?", "…", "。", "！", "？", "।", "॥", "؟", "۔", "։", "။")
MIN_LINES_TO_JUDGE = 5  # within documents, and at their ends
# Project Gutenberg's has about 19,000 characters. A marker among other texts costs no more of them than this.
MAX_LICENCE_LENGTH = 1 << 16
SOFT_HYPHEN = "\u00ad"

# Kana and Han with the marks of their width; with Thai, Lao, Burmese and Khmer: there is no space between two of these.
_WIDE = "\u3000-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff"
_UNSPACED = f"\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff{_WIDE}"
# Chinese and Japanese also use these marks of other scripts, without a space before or after them.
_MARKS = "“”‘’…‥—―·"
_BEGINS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_UNSPACED_BREAK = re.compile(
    rf"\n(?:(?<=[{_UNSPACED}]\n)(?=[{_UNSPACED}])|(?<=[{_WIDE}]\n)(?=[{_MARKS}])|(?<=[{_MARKS}]\n)(?=[{_WIDE}]))"
)
_GUTENBERG_MARKER = re.compile(
    r"(?P<start>\*\*\* ?START OF TH(?:E|IS) PROJECT GUTENBERG|\*END\*? ?THE SMALL PRINT)"
    r"|(?P<end>\*\*\* ?END OF (?:TH(?:E|IS) )?PROJECT GUTENBERG)"
    r"|(?P<old_end>END OF (?:TH(?:E|IS) )?PROJECT GUTENBERG)",
    re.IGNORECASE,
)


class Origin(NamedTuple):
    """Origin of a text: the fields of its documents besides the text."""

    id: str
    title: str
    url: str = ""


class Converter:
    """Conversion of the texts of a part into documents, with counts of what it changed.

    Args:
        corpus: a corpus's recipe, see `sources`. Its cleaning steps are names of `cleaning_steps.STEPS`, all but
            headings, which only dumps have, and of `filters.FILTERS`.
    """

    def __init__(self, corpus: Json) -> None:
        self.source: str = corpus["name"]
        self.minimum_characters: int = max(1, corpus["settings"]["minimum_characters"])
        self.steps: Sequence[str] = steps_of(corpus["settings"])
        self.lines_are_sentences: bool = corpus["settings"]["sentences"] == "lines"
        self.cleaning: Counts = counts_of(corpus["settings"])
        self.judge = judge_of(corpus["settings"], self.cleaning)
        self.gutenberg_lines_removed = self.divided = 0
        self.paragraphs_removed = {"symbols": 0, "punctuation": 0}

    def counts(self) -> dict[str, Any]:
        """Return the part's counts.

        They are `gutenberg_lines_removed`; `divided`, the additional documents made by dividing long ones;
        `paragraphs_removed`, those without a letter or digit: with `symbols`, such as emoji, or of `punctuation` alone;
        and, if there are steps, `cleaning`, what each of them removed.
        """
        counts = {
            "gutenberg_lines_removed": self.gutenberg_lines_removed,
            "divided": self.divided,
            "paragraphs_removed": self.paragraphs_removed,
        }
        return {**counts, "cleaning": self.cleaning} if len(self.cleaning) > 1 else counts

    def documents(self, lines: Iterable[str], origin: Origin) -> Iterator[Document | Dropped]:
        """Yield the document of a text, or the reason to drop it: `empty`, `short`, or those of `filters.judge_of`.

        A text of more than MAX_DOCUMENT_LENGTH characters becomes several, with the ids `id`, `id@1`, `id@2`, ...

        Args:
            lines: without their line ends; streamed.
        """
        for number, piece in enumerate(_pieces(without_licence(lines, self))):
            self.divided += number > 0
            yield self._document(piece, origin._replace(id=f"{origin.id}@{number}") if number else origin)

    def _document(self, piece: list[str], origin: Origin) -> Document | Dropped:
        whole = self._with_letters(paragraphs(piece, wrapped=not self.lines_are_sentences))
        text = "\n".join(clean_paragraphs(whole, (), self.steps, self.cleaning) if self.steps else whole)
        piece.clear()  # its lines need as much memory as the text
        text, reason = self.judge(text) if text else (text, None)
        if reason is not None:
            return Dropped(reason)
        if len(text) < self.minimum_characters:
            return Dropped("short" if text else "empty")
        return Document(id=origin.id, title=tidy(origin.title), text=text, source=self.source, url=origin.url)

    def _with_letters(self, paragraphs: Iterable[str]) -> Iterator[str]:
        """Yield the paragraphs that contain a letter or digit, and count the others: rows of stars between scenes."""
        for paragraph in paragraphs:
            if any(map(str.isalnum, paragraph)):
                yield paragraph
            else:
                has_symbols = any(unicodedata.category(character) == "So" for character in paragraph)
                self.paragraphs_removed["symbols" if has_symbols else "punctuation"] += 1


def paragraphs(lines: list[str], *, wrapped: bool) -> Iterator[str]:
    """Yield the tidy paragraphs of a text.

    Blank lines separate them, and the ideographic spaces with which paragraphs of Japanese and Chinese begin. The lines
    between are joined, because books are hard-wrapped: with a space, but not in scripts without spaces, nor after a
    soft hyphen. A line too long to be wrapped is a paragraph. Every line is one if too many are that long, if most that
    would be joined end as sentences before they are full, or without `wrapped`.
    """
    tidied = [tidy(line) for line in lines]
    is_wrapped = wrapped and _look_wrapped(tidied)
    paragraph: list[str] = []
    is_alone = False
    for line, given in zip([*tidied, ""], [*lines, ""], strict=True):
        was_alone, is_alone = is_alone, not is_wrapped or _is_long(line)
        if paragraph and (not line or was_alone or is_alone or given.startswith("\u3000")):
            yield tidy(_joined(paragraph)) if len(paragraph) > 1 else paragraph[0].removesuffix(SOFT_HYPHEN)
            paragraph = []
        if line:  # without the soft hyphen that tells how to join it
            paragraph.append(line + SOFT_HYPHEN if given.rstrip().endswith(SOFT_HYPHEN) else line)


def _look_wrapped(lines: list[str]) -> bool:
    short = ["" if _is_long(line) else line for line in lines]
    given = sum(map(bool, lines))
    long = given - sum(map(bool, short))
    inner = [(line, following) for line, following in pairwise(short) if line and following]
    if long and (long > MAX_LONG_LINES * given or not _look_full([_columns(line) for line, _ in inner])):
        return False
    longest = max(map(_columns, short), default=0)
    ended = sum(_ends_sentence(line) and _has_room(line, following, longest) for line, following in inner)
    return len(inner) < MIN_LINES_TO_JUDGE or ended <= MAX_WRAPPED_ENDS * len(inner)


def _is_long(line: str) -> bool:
    return _columns(line) > MAX_WRAPPED_LINE_LENGTH


def _look_full(lengths: list[int]) -> bool:
    lengths = sorted(lengths)
    enough = len(lengths) >= MIN_LINES_TO_JUDGE
    return enough and lengths[len(lengths) // 2] >= MIN_FULL * lengths[len(lengths) * 3 // 4]


def _has_room(line: str, following: str, longest: int) -> bool:
    """Return whether the next line's first word would have had room in a line."""
    first = following[:2] if _BEGINS_UNSPACED.match(following) else f" {following.split(' ', 1)[0]}"
    return _columns(line) + _columns(first) <= longest


def _columns(line: str) -> int:
    if line.isascii():
        return len(line)
    return len(line) + sum(unicodedata.east_asian_width(character) in "WF" for character in line)


def _joined(lines: list[str]) -> str:
    text = "\n".join(lines)
    if not text.isascii():
        text = _UNSPACED_BREAK.sub("", text.replace(f"{SOFT_HYPHEN}\n", ""))
    return text.replace("\n", " ")


def divide(lines: Iterable[str], separator: str) -> Iterator[Iterator[str]]:
    """Split lines into texts at every line that equals the separator, ignoring white space and what `tidy` removes.

    The texts are streamed: consume each before requesting the next.
    """
    wanted, remaining, ended = separator.strip(), iter(lines), False

    def text() -> Iterator[str]:
        nonlocal ended
        for line in remaining:
            if line.strip() == wanted or (wanted in line and tidy(line) == wanted):
                return
            yield line
        ended = True

    while not ended:
        yield text()


def divide_at_empty_lines(lines: Iterable[str]) -> Iterator[Iterator[str]]:
    """Split lines into texts at one or more blank lines; streamed like those of `divide`, and none is empty."""
    return (text for has_text, text in groupby(lines, key=_has_text) if has_text)


def _has_text(line: str) -> bool:
    """Return whether more is left of a line than white space and what `tidy` removes."""
    stripped = line.strip()
    return stripped != "" and (stripped[0].isprintable() or tidy(stripped) != "")


def looks_split(lines: Sequence[str]) -> bool:
    """Return whether the lines look like sentences, with blank lines between documents, and not like wrapped text.

    In wrapped text, lines before a blank one end like sentences and the others do not, or all are about equally long
    and most do not end like sentences.
    """
    inner: list[str] = []
    last: list[str] = []
    stripped = [line.strip() if _has_text(line) else "" for line in lines]
    for line, following in pairwise(stripped):
        if line:
            (inner if following else last).append(line)
    if min(len(inner), len(last)) < MIN_LINES_TO_JUDGE:
        return False
    of_inner, of_last = (sum(map(_ends_sentence, some)) / len(some) for some in (inner, last))
    lengths = sorted(map(len, inner))
    is_uneven = lengths[len(lengths) // 2] < 0.7 * lengths[len(lengths) * 19 // 20]
    return abs(of_inner - of_last) < 0.2 and (is_uneven or of_inner > MAX_WRAPPED_ENDS)


def _ends_sentence(line: str) -> bool:
    return line.rstrip("\"'”’»)」』").endswith(SENTENCE_MARKS)


def without_licence(lines: Iterable[str], converter: Converter) -> Iterator[str]:
    """Yield lines without Project Gutenberg's licence; streamed.

    The licence consists of the lines before a start marker and those after an end marker, up to the next start in a
    file of several books; of each, at most MAX_LICENCE_LENGTH characters. With a long title, a start marker has two
    lines. In some files the licence's "small print" marker, which is a start, follows the book's end. Old books end in
    a line without stars, which could be of any text: it is an end marker only if another marker precedes or follows it.
    """
    held: list[str] = []  # kept or removed when the next marker is known
    size, place, any_start, is_unclosed = 0, "book", False, False
    for line in lines:
        if is_unclosed:
            is_unclosed = False
            if line.rstrip().endswith("***"):
                converter.gutenberg_lines_removed += 1
                continue
        marker = _marker_of(line)
        if marker == "old_end" and (any_start or place == "licence"):
            marker = "end"
        elif marker == "old_end" and place == "perhaps licence":
            marker = None
        if marker is None:
            size += len(line) + 1
            if size > MAX_LICENCE_LENGTH:
                yield from held
                yield line
                held, place = [], "book"
            elif place == "licence":
                converter.gutenberg_lines_removed += 1
            else:
                held.append(line)
            continue
        if marker == "start" or (marker == "end" and place == "perhaps licence"):
            converter.gutenberg_lines_removed += len(held)
        else:
            yield from held
        held, size, any_start = [], 0, any_start or marker == "start"
        if marker == "old_end":
            held.append(line)
        else:
            converter.gutenberg_lines_removed += 1
        is_unclosed = marker == "start" and not line.rstrip().endswith("*")
        place = {"start": "book", "end": "licence", "old_end": "perhaps licence"}[marker]
    yield from held


def _marker_of(line: str) -> str | None:
    start = line.lstrip()[:60]
    marker = _GUTENBERG_MARKER.match(start) if start[:1] in "*Ee" else None
    return marker.lastgroup if marker else None


def _pieces(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield lines in pieces of about MAX_DOCUMENT_LENGTH characters; without lines, an empty piece."""
    piece: list[str] = []
    size, any_yet = 0, False
    for line in lines:
        piece.append(line)
        size += len(line) + 1
        if size > MAX_DOCUMENT_LENGTH:
            yield piece
            piece, size, any_yet = [], 0, True
    if piece or not any_yet:
        yield piece


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a string in the form that `decoded_lines` yields."""
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        yield from _split_long(line)


def decoded_lines(
    stream: BinaryIO,
    name: str,
    encoding: Encodings,
    max_row_length: int | None = None,
    chosen: Counter[str] | None = None,
) -> Iterator[str]:
    """Yield the lines of a text without their ends, which may be CR, LF or CRLF.

    A line of more than MAX_LINE_LENGTH characters is split at a space; with `max_row_length`, one longer than that is
    an error instead. Of several encodings, the first that decodes the text is taken, and counted in `chosen`.

    Raises BertlineError for bytes that are not in the encoding, with their offset.
    """
    if not isinstance(encoding, str):
        with first_that_decodes(stream, name, encoding) as (again, one):
            if chosen is not None:
                chosen[one] += 1
            yield from decoded_lines(again, name, one, max_row_length)
        return
    unfinished = ""
    for text in decoded(stream, name, encoding):
        *whole, unfinished = (unfinished + text).split("\n")
        for line in whole:
            yield from _split_long(line) if max_row_length is None else [line]
        if max_row_length is None:
            *finished, unfinished = _split_long(unfinished)
            yield from finished
        elif len(unfinished) > max_row_length:
            raise BertlineError(f"{name} has a row of more than {max_row_length} characters; divide its document")
    if unfinished:
        yield unfinished


def _split_long(line: str) -> Iterator[str]:
    while len(line) > MAX_LINE_LENGTH:
        end = line.rfind(" ", 1, MAX_LINE_LENGTH) + 1 or MAX_LINE_LENGTH
        yield line[:end]
        line = line[end:]
    yield line
