"""Conversion of a page's wikitext into text, in MediaWiki's passes: elements, templates, tables, links, lines.

The rules are MediaWiki's published ones, https://www.mediawiki.org/wiki/ Help:Formatting, Help:Links, Help:Images,
Help:Tables, Help:Templates, Help:Magic_words, Parser_extension_tags and Preprocessor_ABNF. An unclosed construct is
text without its marks. Every pass visits a character a bounded number of times, whatever the page: the regular
expressions have one way to match, and nesting uses a stack. Groups are not possessive, `(...)*+`: Python before 3.11.5
loses matches with them (gh-106052).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from bertline.corpus.entities import unescape
from bertline.corpus.wikitext_lines import OTHER_SITE, ListItems, join_lines
from bertline.corpus.wikitext_tables import Tables, replace_tables
from bertline.corpus.wikitext_templates import Shown, show_call, shows

# Calls that show words are nested two or three deep; deeper ones than this are dropped, so that work is bounded.
MAX_TEMPLATE_DEPTH = 40
# A picture's caption contains links; a third level does not occur.
LINK_PASSES = 4

# Elements that a MediaWiki extension processes with their content -> their replacement in the text. The placeholders
# are wikiextractor's, which the cleaning removes.
_EXTENSIONS = {
    **dict.fromkeys(("math", "chem", "ce"), "formula"),
    **dict.fromkeys(("syntaxhighlight", "source", "pre"), "codice"),
    **dict.fromkeys(("ref", "references", "gallery", "timeline", "score", "imagemap", "graph", "mapframe"), ""),
    **dict.fromkeys(("maplink", "templatedata", "templatestyles", "inputbox", "categorytree", "hiero"), ""),
    **dict.fromkeys(("indicator", "includeonly", "charinsert", "rss", "section", "style", "script"), ""),
    "nowiki": "its content",
}
_END = {name: re.compile("</" + "".join(f"[{c}{c.upper()}]" for c in name) + r"\s*+>") for name in _EXTENSIONS}
_ELEMENT = re.compile(
    r"<(?:ref(?=[\s>])[^<>]*+(?<!/)>[^<]*+</ref\s*+>"  # nearly all of them
    rf"|!--|((?i:{'|'.join(_EXTENSIONS)}))(?=[\s/>])[^<>]*+>)"
)
_BRACES = re.compile(r"(\{\{++|\}\}++)")
_NAME = re.compile(r"[^{}|<>\[\]]{0,50}+")
_POEM = re.compile(r"<poem\b[^<>]*+>([^<]*+(?:<(?!/?poem)[^<]*+)*)</poem>")
_EXTERNAL_ADDRESS = (
    r"\[(?:(?:https?|ftps?|sftp|ircs?|git|svn|gopher|nntp|telnet|mms)://|//|(?:mailto|news|tel|urn|geo):)"
    r"[^\s\[\]<>\"]++[ \t]*+"
)
_EXTERNAL_LINK = re.compile(rf"{_EXTERNAL_ADDRESS}([^\[\]\n]*+)\]")
# Once links within the site are replaced: the label ends at the first bracket that closes, whatever it contains.
_REST_OF_EXTERNAL_LINKS = re.compile(rf"{_EXTERNAL_ADDRESS}([^\]\n]{{0,500}}+)\]")
_PLAIN_LINK = re.compile(r"\[\[(?:[^\[\]|:\n]*+\|([^\[\]|]*+)|([^\[\]|:\n]*+))\]\]")
# A link may have namespaces, several parts, or single brackets inside; the last two of "]]]" end it.
_ANY_LINK = re.compile(r"\[\[([^\[\]]*+(?:(?:\[(?!\[)|\](?!\](?!\])))[^\[\]]*+)*)\]\]")
_LANGUAGE = re.compile(r"(?!(?:mw|wmf|voy|wp|wt|doi|hdl|rfc)$)[a-z]{2,3}(?:-[a-z]+)*|simple|be-x-old")
# A file in a namespace whose alias no dump lists; not one of another site, which is a link, as [[Media:a.ogg|b]] is.
_MEDIA = re.compile(
    r"(?!(?i:media):)[^:]*:[^:]*\.(?:jpe?g|png|gif|svg|tiff?|webp|webm|og[gvam]|oga|mp[34]|wav|flac|mid|djvu|pdf|xcf|stl)\s*$",
    re.I,
)

_BREAK = re.compile(r"</?br\b[^<>]*+>", re.I)
_BLOCK = re.compile(r"</?(?:div|p|blockquote|center|h[1-6]|[uod]l|d[td]|li|hr|tr|section|caption)\b[^<>]*+>", re.I)
_INLINE = re.compile(
    r"</?(?:a|abbr|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|mark|noinclude|onlyinclude|q|rb|rp|rt|rtc|ruby"
    r"|s|samp|small|span|strike|strong|sub|sup|t[dh]|time|tt|u|var|wbr|translate|languages|tvar|ref|nowiki|poem|gallery"
    r"|math|references|includeonly|pre|source|syntaxhighlight)(?=[\s/>])[^<>]*+>",
    re.I,
)
# Variants of text in languages with several scripts: https://www.mediawiki.org/wiki/Writing_systems/Syntax
_VARIANTS = re.compile(r"-\{(?:([A-Za-z; -]*+)\|)?([^{}]*+)\}-")
# Help:Magic_words, "Behavior switches". Other languages have names of their own, which a dump does not list: words in
# capitals, with underscores between them, are taken for one if they have letters beyond ASCII, or are alone on a line.
_SWITCH = re.compile(
    r"__(?:(?i:(?:NO|FORCE)?TOC|NOEDITSECTION|NOGALLERY|NOC(?:ONTENTCONVERT|C)|NOT(?:ITLECONVERT|C))"
    r"|(?:NO)?NEWSECTIONLINK|HIDDENCAT|EXPECTUNUSED(?:CATEGORY|TEMPLATE)"
    r"|START|END|(?:NO)?INDEX|STATICREDIRECT|DISAMBIG|NOGLOBAL"
    r"|EXPECTED_UNCONNECTED_PAGE|EXPECTWITHOUTSCANS|ARCHIVEDTALK|NOTALK)__"
)
_WORDS = r"__[^\W\d_]{2,30}+(?:_[^\W\d_]{1,30}+){0,5}__"
_LIKELY_SWITCH = re.compile(rf"(?<=\n)((?:[ \t]*+{_WORDS})+)[ \t]*+(?=\n|\Z)|{_WORDS}")
_AFTER_GAP = re.compile(r"\)|[,.;:!?،؛](?:[\s<')]|$)")  # "5 {{cn}})", "is {{x}}, old"
_NOTHING = "&#8203;"  # keeps marks apart, and is removed from documents
_IN_CALL = str.maketrans({"=": "&#61;", "|": "&#124;"})  # what a template shows divides no call around it; nor do links
_AS_TEXT = str.maketrans({mark: f"&#{ord(mark)};" for mark in "[]{}'<>*#:;=|_!-"} | {"\n": " "})


class Text(NamedTuple):
    """The visible text of a page."""

    text: str  # one paragraph, heading or list item per line; a heading ends with a full stop
    headings: list[str]  # the lines that are headings, without that full stop


def text_of_page(
    wikitext: str,
    hidden: Collection[str],
    list_items: ListItems,
    templates: Mapping[str, Shown] | None = None,
    tables: Tables = "none",
    unread: Counter[str] | None = None,
) -> Text:
    """Return the text of a page.

    Args:
        wikitext: its source.
        hidden: the names, in lower case, of the wiki's namespaces for files and categories.
        list_items: which ones to keep; see `wikitext_lines`.
        templates: further ones that show words, by `wikitext_templates.known_name`.
        tables: whether to leave them out.
        unread: the constructs that are not read are added: `templates`, `tables`, `list_items`, `language_links`,
            `files_and_categories`, and the elements of extensions by their names, as `ref` and `math`.
    """
    unread = Counter() if unread is None else unread
    if "<poem" in wikitext:
        wikitext = _POEM.sub(lambda match: match[1].replace("\n", "\n\n"), wikitext)
    text = "\n" + wikitext
    if "<" in text:
        text = _without_elements(text, unread)
    if "{{" in text or "}}" in text:
        text = _without_templates(text, hidden, templates or {}, unread)
    if "{|" in text or "<t" in text or "<T" in text:
        text, count = replace_tables(text, tables, lambda table: _without_links(table, hidden, unread))
        unread["tables"] += count
    if "-{" in text:
        text = _VARIANTS.sub(_of_first_variant, text)
    if "__" in text:
        text = _LIKELY_SWITCH.sub(_unless_switch, _SWITCH.sub("", text))
    text = _without_links(text, hidden, unread)
    if "<" in text:
        text = _INLINE.sub("", _BLOCK.sub("\n\n", _BREAK.sub(" ", text)))
    lines, headings, count = join_lines(text, list_items)
    unread["list_items"] += count
    return Text(_finished(lines), [_finished(heading) for heading in headings])


def _finished(text: str) -> str:
    """Remove unmatched marks, and replace every entity by its character."""
    for mark in ("[[", "]]", "{{", "}}"):
        text = text.replace(mark, " ")
    return unescape(text)


def _without_elements(text: str, unread: Counter[str]) -> str:
    """Remove comments, and replace the elements of extensions by their visible text."""
    pieces: list[str] = []
    numbers = {"formula": 0, "codice": 0}
    endless: set[str] = set()
    references = at = 0
    while match := _ELEMENT.search(text, at):
        start, end = match.span()
        pieces.append(text[at:start])
        at = end
        if match[1] is None:
            if text[start + 1] == "!":
                at, fills_line = _end_of_comment(text, start)
                if fills_line:
                    pieces[-1] = pieces[-1].rstrip(" \t")
            else:
                references += 1
        elif text[end - 2] == "/":
            if match[1].lower() == "nowiki":
                pieces.append(_NOTHING)
        elif (element := match[1].lower()) not in endless:
            if closed := _END[element].search(text, end):
                at = closed.end()
                kind = _EXTENSIONS[element]
                if element != "nowiki":
                    unread[element] += 1
                if kind in numbers:
                    numbers[kind] += 1
                    pieces.append(f"{kind}_{numbers[kind]}")
                elif kind:
                    pieces.append(text[end : closed.start()].translate(_AS_TEXT))
            else:
                endless.add(element)
        pieces.append(_apart(pieces[-1], text[at : at + 2]))
    if references:
        unread["ref"] += references
    pieces.append(text[at:])
    return "".join(pieces)


def _without_templates(text: str, hidden: Collection[str], templates: Mapping[str, Shown], unread: Counter[str]) -> str:
    """Replace templates by their visible text."""
    tokens = _BRACES.split(text)
    pieces: list[str] = [tokens[0]]
    opened: list[tuple[int, Shown | None]] = []  # where the pieces of each call begin, and its visible text
    parameters: list[int] = []  # the numbers of calls around each "{{{", which a third brace closes
    dropped = 0
    for at in range(1, len(tokens), 2):
        braces, rest = tokens[at], tokens[at + 1]
        if braces[0] == "{":
            opened += [(len(pieces), None)] * (len(braces) // 2)
            if len(braces) % 2:
                parameters.append(len(opened))
            if len(opened) <= MAX_TEMPLATE_DEPTH and (name := _NAME.match(rest)):
                opened[-1] = (len(pieces), shows(name[0], templates))
        else:
            left = len(braces)
            while left >= 2 and opened:
                left -= 2
                if parameters and parameters[-1] >= len(opened):
                    # The third brace of "{{{{{a}}|b}}}" is that of the call around.
                    parameters[-1] = len(opened) - 1
                    if left:
                        parameters.pop()
                        left -= 1
                if left == 1:
                    rest = "}" + rest
                first, shown = opened.pop()
                call = "".join(pieces[first:]) if shown else ""
                del pieces[first:]
                if shown:
                    if "[[" in call:
                        call = _ANY_LINK.sub(_link_in_call, call)
                    words = show_call(_without_links(call, hidden, unread), shown)
                    pieces.append(words.translate(_IN_CALL) if opened else words)
                else:
                    dropped += not opened
                    if apart := _apart(pieces[-1] if pieces else "", rest):
                        pieces.append(apart)
                    elif _AFTER_GAP.match(rest):
                        _close_gap(pieces)
        pieces.append(rest)
    unread["templates"] += dropped
    return "".join(pieces)


def _link_in_call(link: re.Match[str]) -> str:
    # {{!}} in a link is its bar; an equal sign in one does not name a parameter of the call.
    return link[0].replace("&#124;", "|").replace("=", "&#61;")


def _apart(before: str, after: str) -> str:
    """Return what is between the marks of type on both sides of what is removed, which would become others."""
    return _NOTHING if before.endswith("''") and after.startswith("''") else ""


def _close_gap(pieces: list[str]) -> None:
    """Remove the spaces at the end."""
    for at in range(len(pieces) - 1, -1, -1):
        pieces[at] = pieces[at].rstrip(" ")
        if pieces[at]:
            break


def _end_of_comment(text: str, start: int) -> tuple[int, bool]:
    """Return where the text continues, and whether nothing but comments and spaces is on the lines since the last.

    Such lines are removed, with their end. An unclosed comment includes all the rest.
    """
    end = at = _after_comment(text, start)
    before = start
    while text[before - 1] in " \t":
        before -= 1
    if text[before - 1] != "\n":
        return end, False
    while at < len(text) and text[at] != "\n":
        if text[at] in " \t":
            at += 1
        elif text.startswith("<!--", at):
            at = _after_comment(text, at)
        else:
            return end, False
    return at + 1, True


def _after_comment(text: str, start: int) -> int:
    end = text.find("-->", start) + 3
    return end if end > 2 else len(text)


def _unless_switch(match: re.Match[str]) -> str:
    is_switch = match[0] == match[0].upper() and (match[1] is not None or not match[0].isascii())
    return "" if is_switch else match[0]


def _of_first_variant(match: re.Match[str]) -> str:
    flags, text = match.groups()
    if flags and not {"H", "T", "-"}.isdisjoint(map(str.strip, flags.split(";"))):  # a rule for the page, or its title
        return ""
    variant, colon, shown = text.partition(";")[0].partition(":")
    variant = variant.rpartition("=>")[2]  # a rule in one direction
    return shown.strip() if colon and _LANGUAGE.fullmatch(variant.strip()) else text


def _around(match: re.Match[str]) -> tuple[str, str]:
    start, end = match.span()
    return match.string[max(0, start - 2) : start], match.string[end : end + 2]


def _without_links(text: str, hidden: Collection[str], unread: Counter[str]) -> str:
    """Replace every link by its visible text; pictures, categories and links to other languages have none."""

    def shown(match: re.Match[str]) -> str:
        target, bar, label = match[1].partition("|")
        prefix, colon, _ = target.partition(":")
        if colon and prefix:
            prefix = prefix.strip().replace("_", " ")
            if prefix.lower() in hidden or _MEDIA.match(target):
                unread["files_and_categories"] += 1
                return _apart(*_around(match))
            if _LANGUAGE.fullmatch(prefix):
                unread["language_links"] += 1
                return _apart(*_around(match))
        return label if bar else target.strip().removeprefix(":")

    if "[" not in text:
        return text
    text = _EXTERNAL_LINK.sub(rf"{OTHER_SITE}\1", text)
    for _ in range(LINK_PASSES):
        if "[[" not in text:
            break
        # Alternates text between links and the links' text: many times faster than `sub`.
        text = "".join(filter(None, _PLAIN_LINK.split(text)))
        text = _ANY_LINK.sub(shown, text)
    return _REST_OF_EXTERNAL_LINKS.sub(rf"{OTHER_SITE}\1", text)
