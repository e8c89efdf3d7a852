"""From the wikitext of a page to its text, in the passes that MediaWiki makes: templates, tables, links, lines.

The rules are MediaWiki's published ones, https://www.mediawiki.org/wiki/ Help:Formatting, Help:Links, Help:Images,
Help:Tables, Help:Templates, Help:Magic_words, Parser_extension_tags and Preprocessor_ABNF. What is opened and never
closed is text, less its marks. Every pass looks at a character a bounded number of times, whatever the page: the
regular expressions have one way to match, and what is nested is kept on a stack. Groups are not possessive, `(...)*+`:
Python before 3.11.5 loses matches with them (gh-106052).
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection
from typing import NamedTuple

from bertline.corpus.wikitext_lines import OTHER_SITE, ListItems, join_lines
from bertline.corpus.wikitext_templates import Shown, show_call, shows

# Calls that stand for words are nested two or three deep; what is deeper than this is dropped, so that work is bounded.
DEEPEST_TEMPLATE = 40
# A picture's caption holds links; nobody writes a third level.
LINK_PASSES = 4

# Elements that an extension of MediaWiki takes with all that is in them -> what stands for them in the text. The
# placeholders are wikiextractor's, which the cleaning knows.
_EXTENSIONS = {
    **dict.fromkeys(("math", "chem", "ce"), "formula"),
    **dict.fromkeys(("syntaxhighlight", "source", "pre"), "codice"),
    **dict.fromkeys(("ref", "references", "gallery", "timeline", "score", "imagemap", "graph", "mapframe"), ""),
    **dict.fromkeys(("maplink", "templatedata", "templatestyles", "inputbox", "categorytree", "hiero"), ""),
    **dict.fromkeys(("indicator", "includeonly", "charinsert", "rss", "section", "style", "script"), ""),
    "nowiki": "its content",
}
_END = {name: re.compile("</" + "".join(f"[{c}{c.upper()}]" for c in name) + r"\s*+>") for name in _EXTENSIONS}
_CALL = re.compile(rf"\{{\{{++|\}}\}}++|<!--|<((?i:{'|'.join(_EXTENSIONS)}))(?=[\s/>])[^<>]*+>")
_NAME = re.compile(r"[^{}|<>\[\]]{0,50}+")
_POEM = re.compile(r"<poem\b[^<>]*+>([^<]*+(?:<(?!/?poem)[^<]*+)*)</poem>")
_TABLE = re.compile(r"\n[ \t:*#;]*+(?:(\{\|)[^\n]*+|\|\})|<(?:(table)|/table)(?=[\s>])[^<>]*+>", re.I)

_EXTERNAL_LINK = re.compile(
    r"\[(?:(?:https?|ftps?|sftp|ircs?|git|svn|gopher|nntp|telnet|mms)://|//|(?:mailto|news|tel|urn|geo):)"
    r"[^\s\[\]<>\"]++[ \t]*+([^\[\]\n]*+)\]"
)
_PLAIN_LINK = re.compile(r"\[\[(?:[^\[\]|:\n]*+\|([^\[\]|]*+)|([^\[\]|:\n]*+))\]\]")
# With namespaces, or several parts, or single brackets inside; of "]]]" the last two end it.
_ANY_LINK = re.compile(r"\[\[([^\[\]]*+(?:(?:\[(?!\[)|\](?!\](?!\])))[^\[\]]*+)*)\]\]")
_LANGUAGE = re.compile(r"(?!(?:mw|wmf|doi|rfc)$)[a-z]{2,3}(?:-[a-z]+)*|simple|be-x-old")
_MEDIA = re.compile(
    r"\.(?:jpe?g|png|gif|svg|tiff?|webp|webm|og[gvam]|oga|mp[34]|wav|flac|mid|djvu|pdf|xcf|stl)\s*$", re.I
)

_BREAK = re.compile(r"</?br\b[^<>]*+>", re.I)
_BLOCK = re.compile(r"</?(?:div|p|blockquote|center|h[1-6]|[uod]l|d[td]|li|hr|tr|section|caption)\b[^<>]*+>", re.I)
_INLINE = re.compile(
    r"</?(?:a|abbr|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|mark|noinclude|onlyinclude|q|rb|rp|rt|rtc|ruby"
    r"|s|samp|small|span|strike|strong|sub|sup|t[dh]|time|tt|u|var|wbr|translate|languages|tvar|ref|nowiki|poem|gallery"
    r"|math|references|includeonly|pre|source|syntaxhighlight)(?=[\s/>])[^<>]*+>",
    re.I,
)
# What a language with several scripts shows to some readers: https://www.mediawiki.org/wiki/Writing_systems/Syntax
_VARIANTS = re.compile(r"-\{(?:([A-Z; -]*+)\|)?([^{}]*+)\}-")
_MAGIC_WORD = re.compile(r"__[^\W\d_]{2,30}+__")
_NO_CHARACTER = re.compile(r"&#\d{8,}+;?")  # Python refuses to read a number of thousands of digits
_NOTHING = "&#8203;"  # keeps marks apart, and vanishes from documents
_AS_TEXT = str.maketrans({mark: f"&#{ord(mark)};" for mark in "[]{}'<>*#:;=|_!-"} | {"\n": " "})


class Text(NamedTuple):
    """What a page shows."""

    text: str  # a paragraph, heading or list item a line; a heading ends with a full stop
    headings: list[str]  # those of the lines that are headings, without that full stop


def text_of_page(wikitext: str, hidden: Collection[str], list_items: ListItems) -> Text:
    """The text of a page.

    Parameters
    ----------
    wikitext: its source.
    hidden: the names, in lower case, of the wiki's namespaces for files and categories.
    list_items: which are kept; see `wikitext_lines`.
    """
    if "<poem" in wikitext:
        wikitext = _POEM.sub(lambda match: match[1].replace("\n", "\n\n"), wikitext)
    text = _without_tables(_without_templates("\n" + wikitext, hidden))
    if "-{" in text:
        text = _VARIANTS.sub(_of_first_variant, text)
    if "__" in text:
        text = _MAGIC_WORD.sub(lambda match: "" if match[0] == match[0].upper() else match[0], text)
    text = _without_links(text, hidden)
    if "<" in text:
        text = _INLINE.sub("", _BLOCK.sub("\n\n", _BREAK.sub(" ", text)))
    lines, headings = join_lines(text, list_items)
    return Text(_finished(lines), [_finished(heading) for heading in headings])


def _finished(text: str) -> str:
    """Without marks that had no partner, and with every entity as its character."""
    for mark in ("[[", "]]", "{{", "}}"):
        text = text.replace(mark, " ")
    return html.unescape(_NO_CHARACTER.sub("", text)) if "&" in text else text


def _without_templates(text: str, hidden: Collection[str]) -> str:
    """Comments, templates and the elements of extensions replaced by what they show: MediaWiki's preprocessor."""
    pieces: list[str] = []
    opened: list[tuple[int, Shown | None]] = []  # where the pieces of each call begin, and what it shows
    numbers = {"formula": 0, "codice": 0}
    endless: set[str] = set()
    at = 0
    while match := _CALL.search(text, at):
        start, end = match.span()
        pieces.append(text[at:start])
        at = end
        if text[start] == "{":
            opened += [(len(pieces), None)] * ((end - start) // 2)
            if len(opened) <= DEEPEST_TEMPLATE and (name := _NAME.match(text, end)):
                opened[-1] = (len(pieces), shows(name[0]))
        elif text[start] == "}":
            for _ in range(min((end - start) // 2, len(opened))):
                first, shown = opened.pop()
                call = "".join(pieces[first:]) if shown else ""
                del pieces[first:]
                if shown:
                    pieces.append(show_call(_without_links(call, hidden), shown))
        elif match[1] is None:
            at = _end_of_comment(text, start)
        elif match[0].endswith("/>"):
            if match[1].lower() == "nowiki":
                pieces.append(_NOTHING)
        elif (element := match[1].lower()) not in endless:
            if closed := _END[element].search(text, end):
                at = closed.end()
                kind = _EXTENSIONS[element]
                if kind in numbers:
                    numbers[kind] += 1
                    pieces.append(f"{kind}_{numbers[kind]}")
                elif kind:
                    pieces.append(text[end : closed.start()].translate(_AS_TEXT))
            else:
                endless.add(element)
    pieces.append(text[at:])
    return "".join(pieces)


def _end_of_comment(text: str, start: int) -> int:
    """Where the text goes on. A comment that fills a line takes the line with it, and one without an end the rest."""
    end = text.find("-->", start) + 3
    if end == 2:
        return len(text)
    return end + 1 if text[start - 1] == "\n" and text[end : end + 1] == "\n" else end


def _without_tables(text: str) -> str:
    if "{|" not in text and "<t" not in text and "<T" not in text:
        return text
    pieces: list[str] = []
    opened: list[int] = []  # where the pieces of each table begin
    at = 0
    for match in _TABLE.finditer(text):
        if match[1] or match[2]:
            pieces.append(text[at : match.start()])
            opened.append(len(pieces))
        elif opened:
            del pieces[opened.pop() :]
            pieces.append("\n\n")
        else:
            continue
        at = match.end()
    pieces.append(text[at:])
    return "".join(pieces)


def _of_first_variant(match: re.Match[str]) -> str:
    flags, text = match.groups()
    if flags and not {"H", "T", "-"}.isdisjoint(flags):  # a rule for the rest of the page, or its title
        return ""
    variant, colon, shown = text.partition(";")[0].partition(":")
    return shown.strip() if colon and _LANGUAGE.fullmatch(variant.strip()) else text


def _without_links(text: str, hidden: Collection[str]) -> str:
    """Every link as the text that it shows; pictures, categories and links to other languages show none."""

    def shown(match: re.Match[str]) -> str:
        target, bar, label = match[1].partition("|")
        prefix, colon, _ = target.partition(":")
        if colon and prefix:
            prefix = prefix.strip().replace("_", " ")
            if prefix.lower() in hidden or _LANGUAGE.fullmatch(prefix) or _MEDIA.search(target):
                return ""
        return label if bar else target.strip().removeprefix(":")

    if "[" not in text:
        return text
    text = _EXTERNAL_LINK.sub(rf"{OTHER_SITE}\1", text)
    for _ in range(LINK_PASSES):
        if "[[" not in text:
            break
        # The text between the links and what each shows, in their order: many times faster than to substitute.
        text = "".join(filter(None, _PLAIN_LINK.split(text)))
        text = _ANY_LINK.sub(shown, text)
    return text
